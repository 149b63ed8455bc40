"""Each bucket of gradients may be checked before it is reduced, which the host waits for."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.program.program import Compute, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def run(
    *,
    nan_check: bool,
    bucket_elements: float = 1e6,
    zero: int = 1,
    pp: int = 1,
    graphs: bool = False,
    eight_bits: bool = False,
) -> Scenario:
    gradients = {"nan_check": nan_check, "bucket_elements": bucket_elements, "scaled_first": False}
    host = {"host_s_per_kernel": 1e-4, "cuda_graphs": graphs}
    kernels = {"fp8_scaling": "delayed", "fp8_parameters": True} if eight_bits else {}
    software = {"preset": "megatron-core-2025", "gradients": gradients, "host": host, "kernels": kernels}
    fields = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "dp": 4, "zero": zero, "pp": pp}
    fields |= {"precision": "fp8" if eight_bits else "bf16", "mlp": "swiglu"}
    return scenario(software=software, schedule="1f1b" if pp > 1 else "none", **fields)


def ops(job: Scenario) -> list[list[Op]]:
    return [list(program.ops) for program in lowered(job).programs.classes]


@settings(max_examples=20, deadline=None)
@given(bucket=st.sampled_from([2e5, 1e6, 1e9]), zero=st.sampled_from([0, 1]), pp=st.sampled_from([1, 2]))
def test_every_reduction_has_its_own(bucket: float, zero: int, pp: int) -> None:
    """It reads each gradient once, right before its reduction is issued, and the host waits for it twice:
    whether its norm is NaN, and whether it is infinite."""
    for program in ops(run(nan_check=True, bucket_elements=bucket, zero=zero, pp=pp)):
        names = [op.name for op in program]
        checks = [i for i, name in enumerate(names) if name == "check gradients"]
        assert [i + 1 for i in checks] == [i for i, name in enumerate(names) if name == "check for infinity"]
        assert [i + 2 for i in checks] == [
            i
            for i, name in enumerate(names)
            if name.startswith("gradient re") or name == "gradient all_reduce"
        ]
        assert checks
        for i in checks:
            work = program[i].work
            assert program[i].host_sync
            assert program[i + 1].host_sync
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


def test_a_matrix_is_checked_when_it_has_its_gradient() -> None:
    """Hooks fire for each parameter, so that a layer's backward is cut behind each of four matrices; in a
    graph a layer gives all gradients at once."""

    def pieces(*, graphs: bool) -> int:
        (program,) = ops(run(nan_check=True, bucket_elements=64, graphs=graphs))
        last = max(i for i, op in enumerate(program) if op.name == "backward")
        checks = [i for i, op in enumerate(program[:last]) if op.name == "check gradients"]
        return sum(program[i - 1].name == "backward" for i in checks)

    layers = run(nan_check=True).model.num_layers
    assert pieces(graphs=False) >= 4 * layers
    assert pieces(graphs=True) <= layers + 1


def test_what_is_not_in_eight_bits_is_checked_at_the_end() -> None:
    """Its buckets go with the last ones of matrices, and each is checked by itself: with small buckets two
    norms a layer, the last one, and both tables."""
    (program,) = ops(run(nan_check=True, bucket_elements=64, eight_bits=True))
    one, *_, last = (op.host_s for op in program if op.name == "check gradients")
    layers = run(nan_check=True).model.num_layers
    assert last == pytest.approx((2 * layers + 3) * one)
