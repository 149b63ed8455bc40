"""Parameters a bucket at a time: which bucket each is in, and when each bucket is sent for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import lowered, scenario

from stepsim.sim.lowering.gather_chain import GatherChain, buckets_of
from stepsim.sim.lowering.lower import Lowered
from stepsim.sim.lowering.stage_parameters import Elements
from stepsim.sim.program.program import Collective, Op
from stepsim.sim.program.program_builder import ProgramBuilder
from stepsim.sim.scenario.software.software import grouped

GATHER = "parameter all_gather"


@given(st.lists(st.integers(0, 50), min_size=1), st.integers(1, 200))
def test_a_bucket_closes_with_the_parameter_that_fills_it(elements: list[int], bucket: int) -> None:
    """From the last parameter back; only the bucket of the first ones may stay short."""
    numbers = buckets_of(elements, bucket)
    assert numbers[0] == 0
    assert all(after - before in (0, 1) for before, after in pairwise(numbers))
    for number in range(numbers[-1] + 1):
        own = [size for size, one in zip(elements, numbers, strict=True) if one == number]
        assert sum(own[1:]) < bucket  # all but the one that closed it
        assert number == 0 or sum(own) >= bucket


def test_buckets_of_llama_8b_are_those_that_a_run_printed() -> None:
    """The matrices of MLPerf 5.1's Llama 3.1 8B on 64 H200 (HPE's logs), with bucket_size 134217728."""
    qkv, projection, into, out = 4096 * 6144, 4096 * 4096, 4096 * 28672, 14336 * 4096
    head = 128256 * 4096
    elements = [head, *[qkv, projection, into, out] * 32, head]
    sizes: dict[int, int] = {}
    for size, number in zip(elements, buckets_of(elements, 134217728), strict=True):
        sizes[number] = sizes.get(number, 0) + size
    row = [sizes[number] for number in sorted(sizes)]
    assert row == [head + qkv + projection, *[218103808] * 31, 176160768, head]


def test_one_bucket_is_sent_for_ahead_of_what_has_come() -> None:
    writer, sent = ProgramBuilder(), []

    def gather(size: Elements) -> tuple[int, ...]:
        sent.append(size)
        return (len(sent) - 1,)

    sizes = [Elements(shared=float(each)) for each in range(4)]
    chain = GatherChain(writer=writer, gather=gather, sizes=sizes)
    for bucket, many in ((0, 2), (0, 2), (2, 4), (3, 4)):
        chain.wait(bucket)
        assert not chain.awaits(bucket)
        assert len(sent) == many
    assert sent == sizes


def step(bucket_elements: float, *, narrow: bool = False, **fields: Any) -> Lowered:
    software = {
        "preset": "megatron-core-2025",
        **grouped({"bucket_elements": bucket_elements, "fp8_parameters": narrow}),
    }
    return lowered(scenario(dp=4, zero=1, gpu="H100-SXM5-80GB", software=software, **fields))


def gathers(found: Lowered) -> list[tuple[int, Op]]:
    return [(i, op) for i, op in enumerate(found.programs.classes[0].ops) if op.name == GATHER]


def sizes_of(found: list[tuple[int, Op]]) -> list[float]:
    return [op.work.transfer.bytes for _, op in found if isinstance(op.work, Collective)]


@pytest.mark.parametrize("bucket_elements", [1.0, 2e5, 6e5, 2e6, 1e12])
def test_what_runs_after_a_gather_was_sent_for_has_the_one_before(bucket_elements: float) -> None:
    """Every gather is awaited, and by the first piece of the forward behind the next one's sending."""
    job = step(bucket_elements)
    ops, found = job.programs.classes[0].ops, gathers(job)
    forward = [(i, op) for i, op in enumerate(ops) if op.stream == "compute" and op.action.endswith("F0")]
    for (index, _), (after, _) in pairwise(found):
        assert index in set().union(*(op.after for i, op in forward if i <= forward_after(forward, after)))
    assert found[-1][0] in set().union(*(op.after for _, op in forward))
    assert sum(sizes_of(found)) == pytest.approx(sum(sizes_of(gathers(step(1e12)))))


def forward_after(forward: list[tuple[int, Op]], index: int) -> int:
    """The first piece of the forward that comes after an op."""
    return next(i for i, _ in forward if i > index)


def test_buckets_smaller_than_layers_cut_them() -> None:
    """With the smallest bucket, each of eight layers is four pieces; with the largest, all is one."""
    many, one = gathers(step(1.0)), gathers(step(1e12))
    assert len(one) == 1
    assert len(many) == 8 * 4 + 2


def test_with_weights_of_8_bits_the_ends_are_in_the_first_bucket() -> None:
    """As Megatron core's partition_buckets: embedding and head, in 16 bits, join the first layers' bucket."""
    sizes = sizes_of(gathers(step(1.0, precision="fp8", num_layers=4, narrow=True)))
    assert len(sizes) == 4 * 4
    assert sizes[0] > 2 * 2 * 512 * 256


def test_chunks_reduce_their_gradients_a_bucket_at_a_time() -> None:
    """Two chunks of two layers: one message each, or, where buckets are small, one for every matrix."""
    layout: dict[str, Any] = {"pp": 2, "vpp": 2, "schedule": "interleaved"}
    counts = {}
    for bucket in (1.0, 1e12):
        ops = step(bucket, **layout).programs.classes[0].ops
        counts[bucket] = sum(
            op.work.calls
            for op in ops
            if op.name == "gradient reduce_scatter" and isinstance(op.work, Collective)
        )
    assert (counts[1e12], counts[1.0]) == (2, 2 * 2 * 4 + 1)  # and the embedding


def test_a_bucket_that_all_ranks_hold_is_one_message() -> None:
    """Without shards, an all_reduce of the buffer of all parameters, not of one after the other."""
    job = lowered(scenario(dp=4, zero=0, gpu="H100-SXM5-80GB", software="megatron-core-2025"))
    plan = job.plan
    (reduced,) = [op for op in job.programs.classes[0].ops if op.name == "gradient all_reduce"]
    size = plan.parameters[0].total * plan.local.grad_bytes
    assert isinstance(reduced.work, Collective)
    assert reduced.work.transfer == plan.communication.collective("all_reduce", size, plan.groups["dp"])
