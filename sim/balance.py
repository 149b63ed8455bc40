"""The layers of each pipeline stage that let GPUs of different kinds end together.

Knows lowered steps and the time of actions by themselves; what a split is worth is replayed by whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..schedules.orders.action import Action, ActionKind
from .lowering.actions import action_blocks
from .lowering.layers.stages import build_stages
from .program.solo import solo_seconds

if TYPE_CHECKING:
    from .lowering.actions import Blocks
    from .lowering.layers.stages import Stage
    from .lowering.plan import StepPlan

Loads = Callable[[tuple[int, ...]], list[float]]
"""For each pipeline rank, the seconds of a microbatch as a function of the layers of each virtual stage."""


def balanced_split(plan: StepPlan) -> tuple[int, ...] | None:
    """The layers of each virtual stage with which the slowest pipeline rank takes the least for a microbatch,
    found by moving single layers from the split that the scenario has; None where there is no pipeline, or
    stages share ranks."""
    par = plan.scenario.parallelism
    if par.pp == 1 or plan.two_way:
        return None
    loads = _loads(plan)
    best = tuple(stage.layers - _predicted(stage) for stage in plan.stages)
    while True:
        now = loads(best)
        slowest = max(range(par.pp), key=now.__getitem__)
        moved = [
            _moved(best, source, target)
            for source in range(len(best))
            if plan.rank_of(source) == slowest and best[source] > 0
            for target in range(len(best))
            if plan.rank_of(target) != slowest
        ]
        found = min(moved, key=lambda split: sorted(loads(split), reverse=True), default=best)
        if sorted(loads(found), reverse=True) >= sorted(now, reverse=True):
            return best
        best = found


def _predicted(stage: Stage) -> int:
    """Layers of multi-token prediction, which no split places."""
    return sum(run.count for run in stage.runs if run.kind.prediction)


def _moved(split: tuple[int, ...], source: int, target: int) -> tuple[int, ...]:
    """The split with one layer less here, and one more there."""
    changed = list(split)
    changed[source] -= 1
    changed[target] += 1
    return tuple(changed)


def _loads(plan: StepPlan) -> Loads:
    blocks = [_blocks_of_stage(plan, index) for index in range(plan.shape.ranks)]
    known: dict[tuple[int, Stage], float] = {}

    def seconds(index: int, stage: Stage) -> float:
        """Seconds of a forward and a backward on the slowest kind of GPU of this pipeline rank."""
        if (index, stage) not in known:
            actions = (Action(0, ActionKind.FORWARD, 0), Action(0, ActionKind.BACKWARD, 0))
            known[index, stage] = max(
                sum(solo_seconds(action_blocks(action, stage, one)) for action in actions)
                for one in blocks[index]
            )
        return known[index, stage]

    def loads(split: tuple[int, ...]) -> list[float]:
        par = plan.scenario.parallelism.model_copy(update={"stage_split": split})
        found = [0.0] * plan.shape.ranks
        for stage in build_stages(plan.scenario.model_copy(update={"parallelism": par})):
            index = plan.rank_of(stage.index)
            found[index] += seconds(index, stage)
        return found

    return loads


def _blocks_of_stage(plan: StepPlan, index: int) -> list[Blocks]:
    """The blocks of a pipeline rank, for each way in which its ranks are placed and for each kind of GPU."""
    return [plan.of_groups(groups.replica[index]).blocks for groups in plan.groups_of_stage(index)]
