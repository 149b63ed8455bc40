"""The stages of a pipeline by what they hold: a few kinds, however many stages there are.

Stages with the same layers, recomputed in the same way, and the same ends of the model are of one kind; ranks
with stages of the same kinds hold the same. Follows ``sim/lowering/layers/stages.py`` for which layers are
where.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.schedule import holders
from ...lowering.layers.kinds import LayerKind, LayerRun
from ...lowering.layers.stages import Stage, build_stages
from ...scenario.schedules import schedule_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...scenario.models import Scenario


_but_index = attrgetter(*(one.name for one in fields(Stage) if one.name != "index"))
"""All that makes the kind of a stage."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """The stages of a pipeline. ``kinds`` are the distinct ones, ``kind_of`` is the kind of each virtual
    stage, and ``held`` has the virtual stages of each pipeline rank in the order of the model."""

    kinds: tuple[Stage, ...]
    kind_of: tuple[int, ...]
    held: tuple[tuple[int, ...], ...]

    def of_rank(self, rank: int) -> tuple[int, ...]:
        """The kinds of the stages of a rank, in the order of the model."""
        return tuple(self.kind_of[stage] for stage in self.held[rank])

    def ends(self, rank: int) -> tuple[int, ...]:
        """The first and the last virtual stage of the model, as far as this rank holds them."""
        return tuple(stage for stage in self.held[rank] if stage in (0, len(self.kind_of) - 1))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many stages of each kind each rank has: ranks x kinds."""
        found = np.zeros((len(self.held), len(self.kinds)), dtype=np.int64)
        for rank in range(len(self.held)):
            np.add.at(found[rank], list(self.of_rank(rank)), 1)
        return found

    @cached_property
    def ends_meet(self) -> bool:
        """Whether a rank holds both ends of the model."""
        last = len(self.kind_of) - 1
        return any({0, last} <= set(stages) for stages in self.held)


def pipeline_of(scenario: Scenario) -> Pipeline:
    """The stages of a layout."""
    known: dict[tuple[object, ...], int] = {}
    kinds: list[Stage] = []
    kind_of: list[int] = []
    for stage in build_stages(scenario):
        number = known.setdefault(_but_index(stage), len(known))
        if number == len(kinds):
            kinds.append(replace(stage, index=0))
        kind_of.append(number)
    shape, rank_of = scenario.pipeline_shape, schedule_named(scenario.schedule).rank_of
    held: list[list[int]] = [[] for _ in range(shape.ranks)]
    for index in range(shape.stages):
        for rank in holders(index, rank_of, shape):
            held[rank].append(index)
    return Pipeline(kinds=tuple(kinds), kind_of=tuple(kind_of), held=tuple(map(tuple, held)))


def without_recompute(stage: Stage) -> Stage:
    """The same stage without recomputation: for what moves around its layers."""
    return replace(stage, runs=tuple(LayerRun(kind=run.kind, count=run.count) for run in stage.runs))


def merged(stages: Iterable[Stage]) -> Stage:
    """All ``stages`` of a rank as one stage without recomputation: for whatever depends on sums alone."""
    counts: Counter[LayerKind] = Counter()
    found = list(stages)
    for stage in found:
        for run in stage.runs:
            counts[run.kind] += run.count
    runs = sorted(counts.items(), key=lambda item: repr(item[0]))
    return Stage(
        index=0,
        runs=tuple(LayerRun(kind=kind, count=count) for kind, count in runs),
        embedding=any(stage.embedding for stage in found),
        head=any(stage.head for stage in found),
        loss=any(stage.loss for stage in found),
    )
