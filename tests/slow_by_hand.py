"""Steps with slow GPUs, computed by hand from the seconds of their kernels."""

from __future__ import annotations

from typing import Any

from small_scenarios import every_op, lowered

from stepsim.sim.program.program import Compute, Program
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

LARGE: dict[str, Any] = {
    "hidden_size": 4096,
    "ffn_hidden_size": 16384,
    "num_attention_heads": 32,
    "seq_length": 2048,
    "software": "megatron-2021",
    "interconnect": "ib-ndr400-x8",
}
"""Kernels that take longer than their launches, on a stack that overlaps nothing."""


def kernels_s(run: Scenario, stage: int = 0, action: str | None = None) -> float:
    """Seconds of a rank's kernels: all, or those of forwards (F), of backwards (B), or of neither."""
    found = 0.0
    for op in lowered(run).programs.classes[stage].ops:
        kind = "".join(letter for letter in op.action if letter.isalpha())
        if action is None or kind == action:
            inner = every_op(Program(ops=(op,)))
            found += sum(count * one.work.seconds for one, count in inner if isinstance(one.work, Compute))
    return found


def step_s(run: Scenario, *faults: str) -> float:
    return simulate(run, faults=faults).step_time_s


def update_s(run: Scenario, stage: int, *, behind_norm: bool) -> float:
    """Seconds of a rank's kernels of the update, before the norm on which all stages wait, or behind it."""
    ops = lowered(run).programs.classes[stage].ops
    norm = [op.name for op in ops].index("gradient norm all_reduce")
    return sum(
        op.work.seconds
        for i, op in enumerate(ops)
        if isinstance(op.work, Compute) and not op.action and (i > norm) == behind_norm
    )
