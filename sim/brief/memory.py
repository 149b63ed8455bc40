"""Memory from the order of each rank's actions, without a clock.

What a rank holds changes where its actions begin and end, one after the other. So their order gives every
amount that it ever holds, and the largest of them. Only the clock tells when that is, and how far a host runs
ahead of its GPU. Under presets that record streams, buffers of collectives depend on the latter; for these
there are two bills, and that of the replay lies between them.

A pipeline that is full holds no more, however long it goes on, so that a few groups of microbatches stand for
all.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engine.accounting import action_spans
from ..engine.collection import collection_paused
from ..engine.record import Record
from ..lowering.profiled_costs import overlaps
from ..scenario.schedules import traits_of
from .steady import of_length

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..lowering.lower import Lowered
    from ..lowering.plan import StepPlan
    from ..result.step import ActionSpan, StageMemory
    from ..scenario.models import Scenario

ENOUGH = 2
"""Groups of microbatches beyond those that fill the pipeline. In the first of them every stage has its first
backward, and so its gradients, while the pipeline is full; in the next it holds all that it ever holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryByOrder:
    """Two bills of every pipeline rank: one if hosts are never ahead of their GPUs, one if they always are as
    far ahead as their queue of launches lets them.

    Both are the same except under presets that record streams. ``peak_s`` is nan, and there is no timeline.
    """

    low: tuple[StageMemory, ...]
    high: tuple[StageMemory, ...]

    @property
    def exact(self) -> bool:
        """Whether both bills are equal, so that the replay has the same."""
        return self.low == self.high

    @property
    def fits(self) -> bool:
        """Whether no rank runs out of memory in either bill."""
        return all(stage.fits for stage in self.high)


def memory_by_order(scenario: Scenario) -> MemoryByOrder:
    """The memory of a step of ``scenario``.

    Terms and peaks are those of ``simulate``, up to rounding, or bounds of them. Raises as ``simulate`` does,
    except for too much work: nothing is replayed.
    """
    from ...hardware.calibrated.overlay import calibrated_profile
    from ..lowering.lower import lower, make_plan
    from ..simulate import build_cluster

    with collection_paused():
        cluster = build_cluster(scenario)
        profile = calibrated_profile(cluster.gpu, scenario.calibration)
        short = of_length(scenario, enough_microbatches(scenario))
        found = memory_of_plan(make_plan(short, cluster, profile), scenario.num_microbatches)
        if found is not None:
            return found
        lowered = lower(
            short, cluster, profile=profile
        )  # which pairs run as one is known when all is written
        return _by_order(lowered.plan, _as_written(lowered), scenario.num_microbatches)


def enough_microbatches(scenario: Scenario) -> int:
    """How many microbatches a step needs to take as much memory as the whole one; all of them where a
    schedule has no steady state."""
    filling, all_ = traits_of(scenario.schedule).filling, scenario.num_microbatches
    if not filling:
        return all_
    own = scenario.schedule_options.group
    group = max(scenario.parallelism.pp, own or 0)
    drains = filling if own else 0  # what a larger group fills is not told in groups
    return min(all_, (filling + drains + ENOUGH) * group + all_ % group)


def memory_of_plan(plan: StepPlan, microbatches: int) -> MemoryByOrder | None:
    """The memory of a step of ``microbatches``, from a plan that has enough of them; None where its orders
    overlap a forward with a backward."""
    from ..lowering.memory import memory_of_orders

    if overlaps(plan.orders):
        return None
    return _both(plan, lambda leads_s: memory_of_orders(plan, leads_s, microbatches))


def _by_order(plan: StepPlan, actions: Sequence[ActionSpan], microbatches: int) -> MemoryByOrder:
    from ..lowering.memory import memory_of

    return _both(plan, lambda leads_s: memory_of(plan, actions, leads_s, microbatches, traced=False))


def _both(plan: StepPlan, memory: Callable[[Mapping[int, float]], tuple[StageMemory, ...]]) -> MemoryByOrder:
    """The bill if no host is ahead, and the bill if all are as far ahead as they can be."""

    def bill(lead_s: float) -> tuple[StageMemory, ...]:
        found = memory(dict.fromkeys(range(plan.shape.ranks), lead_s))
        return tuple(replace(stage, peak_s=math.nan) for stage in found)

    high = bill(math.inf)
    if not any(stage.terms["in flight"] for stage in high):
        return MemoryByOrder(low=high, high=high)
    return MemoryByOrder(low=bill(0.0), high=high)


def _as_written(lowered: Lowered) -> tuple[ActionSpan, ...]:
    """The actions of a program of each pipeline rank, as if each op took one unit of time."""
    record, stages = Record.empty(lowered.programs), lowered.plan.process_groups.stages
    for r, program in enumerate(lowered.programs.classes):
        record.start[r] = record.begin[r] = array("d", range(len(program.ops)))
        record.end[r] = array("d", range(1, len(program.ops) + 1))
    return action_spans(record, {int(lowered.program_of[ranks[0]]): pp for pp, ranks in enumerate(stages)})
