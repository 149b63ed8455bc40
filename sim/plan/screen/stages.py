"""The stages of a pipeline by what they hold: a few kinds, however many stages there are.

Stages with the same layers, recomputed in the same way, and the same ends of the model are of one kind; ranks with
stages of the same kinds hold the same. Follows ``sim/lowering/layers/stages.py`` for which layers are where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ....schedules.orders.schedule import holders
from ...lowering.layers.kinds import LayerRun
from ...lowering.layers.stages import Stage, build_stages
from ...scenario.schedules import schedule_named

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """``kinds`` are the distinct stages, ``kind_of`` says which each virtual stage is of; ``held`` are the
    virtual stages of each pipeline rank, in the order of the model."""

    kinds: tuple[Stage, ...]
    kind_of: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """The kinds of the stages of a rank, in the order of the model."""
        return tuple(self.kind_of[stage] for stage in self.held[rank])

    def merged(self, rank: int) -> Stage:
        """All that a rank holds as one stage, for what depends on sums alone."""
        return merged(self.kinds[kind] for kind in self.of_rank(rank))


def pipeline_of(scenario: Scenario) -> Pipeline:
    """The stages of a layout."""
    known: dict[Stage, int] = {}
    kind_of = tuple(known.setdefault(replace(stage, index=0), len(known)) for stage in build_stages(scenario))
    shape, rank_of = scenario.pipeline_shape, schedule_named(scenario.schedule).rank_of
    held: list[list[int]] = [[] for _ in range(shape.ranks)]
    for stage in range(shape.stages):
        for rank in holders(stage, rank_of, shape):
            held[rank].append(stage)
    return Pipeline(kinds=tuple(known), kind_of=kind_of, held=tuple(map(tuple, held)))


def merged(stages: Iterable[Stage]) -> Stage:
    """One stage with the layers of all, in no order, and without what of them is recomputed."""
    counts: Counter[LayerRun] = Counter()
    found = list(stages)
    for stage in found:
        for run in stage.runs:
            counts[LayerRun(kind=run.kind)] += run.count
    runs = sorted(counts.items(), key=lambda item: repr(item[0]))
    return Stage(
        index=0,
        runs=tuple(replace(run, count=count) for run, count in runs),
        embedding=any(stage.embedding for stage in found),
        head=any(stage.head for stage in found),
        loss=any(stage.loss for stage in found),
    )
