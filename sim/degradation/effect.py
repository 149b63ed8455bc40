"""What faults cost a step: the replay with them against the healthy one, rank by rank.

Knows two replays of the same ranks. Ranks are told apart by what joins them to a struck one: its tensor- or
context-parallel group, its pipeline (the other stages of the replica), its data-parallel group (the same
stage of other replicas).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..engine.accounting import rank_time
from ..lowering.seats import rank_grid
from ..result.step import AXES, PEERS
from ..result.step_faults import WAITING, Relation, Side, StepFaults
from .hang import hang_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.record import Record
    from ..fold.ranks import Degradation
    from ..fold.whole import Folded
    from ..result.step import PathSegment
    from ..scenario.models import Parallelism

    Ids = np.typing.NDArray[np.int64]
    Mask = np.typing.NDArray[np.bool_]
    Table = np.typing.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """One step: its classes, its record and its critical path."""

    folded: Folded
    record: Record
    path: tuple[PathSegment, ...]

    @cached_property
    def seconds(self) -> Table:
        """Of each class: work, then WAITING."""
        rows, stages = [], [one.pp for one in self.folded.ranks]
        for r in range(len(self.record.programs.classes)):
            time = rank_time(self.record, r, stages)
            waits = [time.exposed.get(axis, 0.0) for axis in AXES]
            late = [time.late.get(name, 0.0) for name in PEERS]
            rows.append([sum(time.parts.values()), *waits, time.bubble_s, *late])
        return np.array(rows)

    def of_ranks(self, stage: Ids) -> Ids:
        """The class of every rank."""
        return stage if self.folded.of_rank is None else self.folded.of_rank

    def side(self, classes: Ids) -> Side:
        """The mean over ranks of these classes."""
        counts = np.bincount(classes, minlength=len(self.seconds))
        work, *waits = (counts @ self.seconds / counts.sum()).tolist()
        return Side(work_s=work, waiting_s=dict(zip(WAITING, waits, strict=True)))


def effect(
    faults: tuple[str, ...],
    degradation: Degradation,
    layout: Parallelism,
    healthy: Replayed,
    struck: Replayed,
) -> StepFaults:
    """The step with ``faults`` against the healthy one."""
    place = _places(layout)
    before, after = healthy.of_ranks(place[0]), struck.of_ranks(place[0])
    return StepFaults(
        faults=faults,
        healthy_step_time_s=healthy.record.step_s,
        step_time_s=struck.record.step_s,
        before=healthy.side(before),
        after=struck.side(after),
        relations=tuple(
            Relation(
                name=name,
                ranks=int(ranks.sum()),
                before=healthy.side(before[ranks]),
                after=struck.side(after[ranks]),
            )
            for name, ranks in _relations(place, struck_ranks(degradation))
        ),
        critical_path_before=healthy.path,
        critical_path_after=struck.path,
        classes_before=len(healthy.folded.ranks),
        classes_after=len(struck.folded.ranks),
    )


def hang_effect(
    faults: tuple[str, ...],
    degradation: Degradation,
    layout: Parallelism,
    healthy: Replayed,
    struck: Replayed,
    watchdog_s: float,
) -> StepFaults:
    """A step that never ends, since ranks stop."""
    place = _places(layout)
    side = healthy.side(healthy.of_ranks(place[0]))
    at_s, stopped = next((at_s, gone) for at_s, state in degradation.later if (gone := stopped_ranks(state)))
    return StepFaults(
        faults=faults,
        healthy_step_time_s=healthy.record.step_s,
        step_time_s=math.inf,
        before=side,
        after=side,
        relations=(),
        critical_path_before=healthy.path,
        critical_path_after=(),
        classes_before=len(healthy.folded.ranks),
        classes_after=len(struck.folded.ranks),
        hang=hang_of(
            struck.record,
            struck.of_ranks(place[0]),
            stopped_ranks(degradation.states[-1]),
            _relations(place, stopped),
            at_s=at_s,
            watchdog_s=watchdog_s,
        ),
    )


def struck_ranks(degradation: Degradation) -> list[int]:
    """Ranks that are slow, or whose own link is weak, at some time."""
    states = degradation.states
    ports = (rank for state in states for rank, _ in state.link_share)
    return sorted({*(rank for state in states for rank in state.slow), *ports})


def stopped_ranks(state: Degradation) -> list[int]:
    """Ranks that make no progress."""
    return sorted(rank for rank, slow in state.slow.items() if slow == math.inf)


def _places(layout: Parallelism) -> Ids:
    """(pp, dp, cp, tp) of every rank, as four rows."""
    grid = rank_grid(layout)
    place = np.empty((4, grid.size), dtype=np.int64)
    place[:, grid.ravel()] = np.indices(grid.shape).reshape(4, grid.size)
    return place


def _relations(place: Ids, struck: list[int]) -> Iterator[tuple[str, Mask]]:
    """Every rank once, by the closest relation to a struck one; none where no rank is struck."""
    if not struck:
        return
    left = np.ones(place.shape[1], dtype=bool)
    joined = np.zeros_like(left)
    joined[struck] = True
    yield "struck", joined
    left &= ~joined
    for name, alike in (
        ("same TP group", (0, 1, 2)),
        ("same CP group", (0, 1, 3)),
        ("same replica and stage", (0, 1)),
        ("same replica, other stages", (1,)),
        ("same stage, other replicas", (0,)),
        ("other replicas and stages", ()),
    ):
        found = left & _like(place, struck, alike)
        if found.any():
            yield name, found
        left &= ~found


def _like(place: Ids, struck: list[int], axes: tuple[int, ...]) -> Mask:
    """Ranks that have the coordinates of a struck one along ``axes``."""
    key = np.zeros(place.shape[1], dtype=np.int64)
    for axis in axes:
        key = key * (int(place[axis].max()) + 1) + place[axis]
    return np.isin(key, key[struck])
