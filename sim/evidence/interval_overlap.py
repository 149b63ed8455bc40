"""How long a step would take without an overlap that is assumed, since nobody has read the trainer's code.

A preset that stands for any trainer of its kind assumes that communication of data parallelism overlaps
compute, as in most frameworks of the kind. A trainer without that overlap waits for every gather and every
reduction. Knows how long these take alone; the critical path says how much of that the step waits for
already. Fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ..lowering.optional_parts import sharded_actions_of
from ..lowering.reductions import gradients_of
from ..program.program import Collective
from ..result.step import IntervalPart

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..lowering.plan import StepPlan
    from ..lowering.sharded_actions import ShardedActions
    from ..program.program import Op

OVERLAP = "overlap"
"""The kind of its cause. Its ``sigma`` is no residual: it is the logarithm of how many times as long the
whole step would take."""


def assumed_overlap(
    step_time_s: float, waited_s: float, plan: StepPlan, microbatches: int
) -> Iterator[IntervalPart]:
    """The part of a step of ``microbatches`` that is hidden by an overlap which is assumed; ``waited_s`` of
    data parallelism are on its path."""
    assumed = plan.scenario.software.gradients.overlap_assumed
    if assumed == "none":
        return
    hidden_s = hidden_at_most_s(plan, microbatches) - waited_s
    if hidden_s > 0:
        share = hidden_s / step_time_s
        yield IntervalPart(
            name=f"software.gradients.overlap_assumed {assumed}: not read in the trainer's code",
            share=share,
            sigma=math.log1p(share) / share,
            source=f"{plan.scenario.software.name}; the step with every gather and reduction waited for",
            kind=OVERLAP,
        )


def hidden_at_most_s(plan: StepPlan, microbatches: int) -> float:
    """Seconds of data parallelism that are assumed to run beside compute, of the rank that has most of it,
    each gather and reduction by itself."""
    apart = replace(plan, communication=plan.communication.apart())
    sharding = sharded_actions_of(apart)
    if sharding is None:
        return max(_whole_s(apart, index) for index in range(plan.shape.ranks))
    each = [_sharded_s(sharding, stage, microbatches) for stage in range(plan.shape.stages)]
    return max(sum(each[stage] for stage in plan.held_stages(index)) for index in range(plan.shape.ranks))


def _sharded_s(sharding: ShardedActions, stage: int, microbatches: int) -> float:
    """Gathers of a stage, in forward and again in backward, and its reductions, once or each microbatch."""
    rule, traffic = sharding.rule, sharding.rows.traffic
    gathers = {"never": 0, "once": 1, "each": microbatches}[rule.gathers] + rule.regathers * microbatches
    reductions = microbatches if rule.reduces_each else 1
    if sharding.plan.scenario.software.gradients.overlap_assumed == "gathers":
        reductions = 0
    seconds = 0.0
    for unit in sharding.units(stage):
        reduced = traffic.reduce(unit)
        seconds += gathers * _solo_s(traffic.gather(unit)) + reductions * _solo_s(
            (*reduced, *traffic.follow(reduced))
        )
    return seconds


def _solo_s(ops: Iterable[Op]) -> float:
    return sum(op.work.transfer.solo_s for op in ops if isinstance(op.work, Collective))


def _whole_s(plan: StepPlan, index: int) -> float:
    """Reductions of a rank that holds all its parameters, bucket by bucket, and gathers of updated ones;
    a rank between those with layers and the head holds none. What it waits for in any case counts, too: it is
    among what its path waits for."""
    gradients = plan.scenario.software.gradients
    held, seconds = plan.held_parameters(index), 0.0
    if plan.groups["dp"].ranks == 1 or not held:
        return seconds
    reductions, every = gradients_of(plan, index), gradients.overlap_assumed == "all"
    gathers = gradients.overlap_param_gather and reductions.sharded
    if not (gathers or (gradients.overlap_grad_reduce and every)):
        return seconds
    if every:
        bucket = min(reductions.bucket_elements, held) if gradients.overlap_grad_reduce else held
        kind = "reduce_scatter" if reductions.sharded else "all_reduce"
        seconds += held / bucket * reductions.transfer(kind, bucket * reductions.wire_bytes).solo_s
    if reductions.sharded:
        seconds += reductions.transfer("all_gather", held * plan.local.element_bytes).solo_s
    return seconds
