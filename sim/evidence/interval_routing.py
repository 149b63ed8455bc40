"""What a step with experts would take if its router spread tokens as real ones do.

A scenario takes every rank's experts to get as many tokens, unless it says otherwise. Benchmarks force that;
a router that learns does not balance each microbatch, and all ranks of an expert group wait for the one that
gets most. Knows what that cost where both were measured. Replays nothing, and fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..result.step import IntervalPart
from .measured_steps import experts_of_plan

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan

ROUTER = "router"
"""The kind of its cause. Its ``sigma`` is no residual: it is the logarithm of how many times as long the
whole step would take."""

MOST = 295 / 237
"""How many times as long a step takes with a real router as with forced balance: the most of four that were
measured both ways, Qwen3 235B on 256 H100 with 16K to 128K tokens, 295 and 237, 335 and 277, 368 and 320, 389
and 357 TFLOP/s (yanring/Megatron-MoE-ModelZoo, best_practice/qwen3/readme.md at 020b8136)."""


def uneven_router(plan: StepPlan) -> Iterator[IntervalPart]:
    """The part by which ranks wait for the one with most tokens; none where balance is forced or a spread is
    given, where a capacity makes all ranks equal, or each rank holds all experts."""
    moe, routing = plan.scenario.model.moe, plan.scenario.training.routing
    if moe is None or routing != "balanced" or moe.capacity_factor is not None:
        return
    if plan.scenario.parallelism.ep > 1:
        yield IntervalPart(
            name="training.routing balanced: real routers spread tokens less evenly (forced: they cannot)",
            share=experts_of_plan(plan).share,
            sigma=math.log(MOST),
            source="Qwen3 235B with a real router and with forced balance (Megatron-MoE-ModelZoo)",
            kind=ROUTER,
        )
