"""Each bucket of gradients may be checked before it is reduced, which the host waits for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.program.program import Compute, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def run(*, nan_check: bool, bucket_elements: float = 1e6, zero: int = 1, pp: int = 1) -> Scenario:
    gradients = {"nan_check": nan_check, "bucket_elements": bucket_elements, "scaled_first": False}
    software = {"preset": "megatron-core-2025", "gradients": gradients, "host": {"host_s_per_kernel": 1e-4}}
    fields = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "dp": 4, "zero": zero, "pp": pp}
    return scenario(software=software, schedule="1f1b" if pp > 1 else "none", **fields)


def ops(job: Scenario) -> list[list[Op]]:
    return [list(program.ops) for program in lowered(job).programs.classes]


@settings(max_examples=20, deadline=None)
@given(bucket=st.sampled_from([2e5, 1e6, 1e9]), zero=st.sampled_from([0, 1]), pp=st.sampled_from([1, 2]))
def test_every_reduction_has_its_own(bucket: float, zero: int, pp: int) -> None:
    """It reads each gradient once, right before its reduction is issued, and the host waits for it."""
    for program in ops(run(nan_check=True, bucket_elements=bucket, zero=zero, pp=pp)):
        names = [op.name for op in program]
        checks = [i for i, name in enumerate(names) if name == "check gradients"]
        assert [i + 1 for i in checks] == [
            i
            for i, name in enumerate(names)
            if name.startswith("gradient re") or name == "gradient all_reduce"
        ]
        assert checks
        for i in checks:
            work = program[i].work
            assert program[i].host_sync
            assert isinstance(work, Compute)
            assert work.bytes > 0


def test_the_bytes_are_those_of_the_gradients() -> None:
    (program,) = ops(run(nan_check=True))
    read = sum(
        op.work.bytes for op in program if op.name == "check gradients" and isinstance(op.work, Compute)
    )
    plan = lowered(run(nan_check=True)).plan
    assert read == pytest.approx(plan.held_elements(0).total * plan.local.grad_bytes)


def test_a_host_that_waits_is_the_slower() -> None:
    """More so, the more buckets there are."""

    def lost(bucket: float) -> float:
        one, other = (
            simulate(run(nan_check=check, bucket_elements=bucket)).step_time_s for check in (True, False)
        )
        return one - other

    assert 0 < lost(1e9) < lost(5e5)
