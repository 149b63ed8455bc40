"""Collectives of several streams that ask for more SMs than there are leave kernels a share of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import lowered

from stepsim.kernels.gemm import LEAST_SMS
from stepsim.sim.engine.replay import replay
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.check import program_problems
from stepsim.sim.program.program import Block, Collective, Compute, Op, Program, Programs
from stepsim.sim.program.solo import solo_ends
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

SMS = 58
"""Of an L4."""


def ops(held: list[int], lasting_s: float) -> list[Op]:
    """A GEMM of a second behind collectives that hold so many SMs each, on streams of their own."""
    moves = [Transfer(lasting_s, 0.0, 1.0, sms=one) for one in held]
    gathers = [
        Op("all_gather", f"dp {i}", "dp", Collective("all_gather", f"dp {i}", move))
        for i, move in enumerate(moves)
    ]
    return [*gathers, Op("GEMM", "compute", "compute", Compute(1.0, "gemm"))]


def end_s(held: list[int], lasting_s: float) -> float:
    """When that GEMM ends, replayed."""
    members = {f"dp {i}": (0,) for i in range(len(held))}
    program = Program(ops=tuple(ops(held, lasting_s)))
    programs = Programs(classes=(program,), communicators=members, links=({},), sms=SMS, corun_slowdown=0.0)
    assert not program_problems(programs)
    return replay(programs).end[0][-1]


@given(held=st.lists(st.integers(0, SMS), min_size=1, max_size=4), lasting_s=st.floats(0.01, 20.0))
def test_a_kernel_keeps_a_share_of_them(held: list[int], lasting_s: float) -> None:
    speed = max(LEAST_SMS, 1.0 - sum(held) / SMS)
    expected_s = 1.0 / speed if lasting_s > 1.0 / speed else 1.0 + lasting_s * (1.0 - speed)
    assert end_s(held, lasting_s) == pytest.approx(expected_s)
    assert solo_ends(Block("block", tuple(ops(held, lasting_s))), sms=SMS)[1] == pytest.approx(expected_s)


@pytest.mark.parametrize("sms", [4, 8, 24])
@pytest.mark.parametrize("software", ["nanotron-2024", "llama3-meta-2024", "generic-fsdp"])
def test_a_gpu_of_fewer_sms_than_nccl_takes_is_slow(sms: int, software: str) -> None:
    """No kernel takes no time or less, and what is saved of the step can be read."""

    def step_s(sms: int) -> float:
        gpu = {"name": "small", "extends": "A10", "sms": sms, "bf16_flops": f"{sms} TFLOP/s"}
        job = load_scenario(
            {
                "model": "llama3-8b",
                "cluster": {"gpu": gpu, "gpus": 8, "gpus_per_node": 8},
                "parallelism": {"tp": 2, "zero": 1},
                "training": {"global_batch": 8, "micro_batch": 1, "seq_length": 1024, "precision": "bf16"},
                "software": software,
            }
        )
        assert not program_problems(lowered(job).programs)
        return simulate(job).step_time_s

    assert step_s(sms) > step_s(2 * sms) > 0.0
