"""Gradients may be divided by their ranks bucket by bucket, before they are reduced."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.program.program import Collective, Compute, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software
from stepsim.sim.simulate import simulate


def run(*, scaled_first: bool, bucket_elements: float = 1e6, zero: int = 1, pp: int = 1) -> Scenario:
    gradients = {"scaled_first": scaled_first, "bucket_elements": bucket_elements}
    software = {"preset": "megatron-core-2025", "gradients": gradients}
    fields = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "dp": 4, "zero": zero, "pp": pp}
    return scenario(software=software, schedule="1f1b" if pp > 1 else "none", **fields)


def ops(job: Scenario) -> list[list[Op]]:
    return [list(program.ops) for program in lowered(job).programs.classes]


def scaled_bytes(program: list[Op]) -> float:
    passes = [op.work for op in program if op.name == "scale gradients"]
    return sum(work.bytes for work in passes if isinstance(work, Compute))


@settings(max_examples=20, deadline=None)
@given(bucket=st.sampled_from([2e5, 1e6, 1e9]), zero=st.sampled_from([0, 1]), pp=st.sampled_from([1, 2]))
def test_every_reduction_has_a_pass_before_it_and_the_sum_none(bucket: float, zero: int, pp: int) -> None:
    for program in ops(run(scaled_first=True, bucket_elements=bucket, zero=zero, pp=pp)):
        names = [op.name for op in program]
        reductions = [i for i, name in enumerate(names) if name.startswith(("gradient re", "gradient all"))]
        assert [i - 1 for i in reductions] == [i for i, name in enumerate(names) if name == "scale gradients"]
        assert reductions


def test_all_gradients_are_read_and_written_and_not_a_shard_of_them() -> None:
    job = run(scaled_first=True)
    (first,), (last,) = ops(job), ops(run(scaled_first=False))
    plan = lowered(job).plan
    assert scaled_bytes(first) == pytest.approx(2 * plan.held_elements(0).total * plan.local.grad_bytes)
    assert scaled_bytes(last) == pytest.approx(scaled_bytes(first) / 4)


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_narrower_on_the_wire_is_cast_whenever_it_is_divided(zero: int) -> None:
    """Read in 32 bit, written in 16, and back, besides the division of 8 bytes an element."""
    job = run(scaled_first=True, zero=zero)
    narrow = job.with_({"software.gradients.reduce_grad_bytes": 2})
    (first,), (casting,) = ops(job), ops(narrow)
    assert scaled_bytes(casting) == pytest.approx(scaled_bytes(first) * (8 + 2 * (2 + 4)) / 8)


def test_the_host_launches_a_pass_for_each_of_the_buckets_that_a_layer_fills() -> None:
    """Buckets that cut parameters anywhere, several of which may be full at once."""
    job = run(scaled_first=True, bucket_elements=1e5).with_(
        {"software.gradients.reduction": "buckets", "software.host.host_s_per_kernel": 1e-4}
    )
    (program,) = ops(job)
    pairs = [(one, two) for one, two in pairwise(program) if one.name == "scale gradients"]
    counts = [two.work.calls for _, two in pairs if isinstance(two.work, Collective)]
    assert max(counts) > 1
    assert [one.host_s for one, _ in pairs] == pytest.approx([1e-4 * count for count in counts])


def test_a_pass_counts_as_work_of_the_memory_and_as_no_communication() -> None:
    """It runs on the compute stream: a GPU draws for it as for any other kernel bound by memory."""
    found = simulate(run(scaled_first=True))
    assert found.stream_s.get("dp", 0.0) == pytest.approx(found.exposed_communication_s["dp"])


def test_mlperf_6_0_divides_first_and_earlier_rounds_average_in_their_collectives() -> None:
    """training_results_v6.0 and v5.1, pretrain.py: average_in_collective False and True."""
    assert get_software("mlperf-6.0").gradients.scaled_first
    assert not get_software("mlperf-5.1").gradients.scaled_first
