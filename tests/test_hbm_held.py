"""Collectives take bandwidth of HBM from kernels that are bound by it, as long as they are there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import scenario

from stepsim.hardware.gpus import get_gpu
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.collectives import collective_transfer
from stepsim.sim.network.group_placement import placement_of_parts
from stepsim.sim.network.transfer import MOST_HBM, Transfer
from stepsim.sim.program.program import Collective, Compute, Op, Program, Programs
from stepsim.sim.simulate import build_cluster


def end_s(kind: str, *held: int, lasting_s: float = 0.4) -> float:
    """When a kernel of a second ends beside collectives that hold so many thousandths of HBM."""
    ops = [
        Op(
            "all_gather",
            f"dp {i}",
            "dp",
            Collective("all_gather", "dp", Transfer(lasting_s, 0.0, 1.0, hbm=one)),
        )
        for i, one in enumerate(held)
    ]
    ops.append(Op("kernel", "compute", "compute", Compute(1.0, kind)))
    program = Program(ops=tuple(ops))
    programs = Programs(classes=(program,), communicators={}, links=({},), sms=100, corun_slowdown=0.0)
    return replay(programs).makespan_s


def test_what_is_bound_by_memory_is_slower_while_it_lasts() -> None:
    assert end_s("memory-bound", 250) == pytest.approx(1.0 + 0.4 * 0.25)
    assert end_s("memory-bound", 250, 200) == pytest.approx(1.0 + 0.4 * 0.45)
    assert end_s("gemm", 250) == end_s("attention", 250) == pytest.approx(1.0)


@given(held=st.lists(st.integers(0, 1000), min_size=1, max_size=3))
def test_a_kernel_keeps_half_of_it(held: list[int]) -> None:
    assert end_s("memory-bound", *held) == pytest.approx(1.0 + 0.4 * min(sum(held), MOST_HBM) / 1000)


@pytest.mark.parametrize("gpu", ["A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM-180GB"])
def test_a_ring_takes_three_times_what_arrives(gpu: str) -> None:
    """Whatever the payload: what a large one does; one rank alone takes nothing."""
    job = scenario(gpu=gpu, interconnect="ib-ndr400-x8", gpus=16, dp=16)
    cluster, known = build_cluster(job), get_gpu(gpu)

    def held(*parts: int, size: float = 1e9) -> int:
        return collective_transfer("all_gather", size, placement_of_parts(list(parts)), cluster).hbm

    near = collective_transfer("all_gather", 1e9, placement_of_parts([8]), cluster)
    arriving = 7 / 8 * near.bytes / (near.solo_s - near.latency_s)
    assert held(8) == pytest.approx(3000 * arriving / known.hbm_bytes_per_s, rel=0.02)
    assert held(8, size=1e3) == held(8)
    assert held(1) == 0 < min(held(8, 8), held(8))
