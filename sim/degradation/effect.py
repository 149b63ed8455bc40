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
from ..lowering.process_groups import GROUPS, ProcessGroups
from ..result.step import AXES, PEERS
from ..result.step_faults import WAITING, Relation, Side, StepFaults
from .hang import hang_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..engine.record import Record
    from ..fold.fold import Folded
    from ..fold.ranks import Degradation
    from ..result.step import PathSegment
    from ..scenario.blocks import Parallelism

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
        """Seconds of a step that each class works, then those that it waits, ordered as WAITING."""
        rows, stages = [], [one.pp for one in self.folded.ranks]
        for r in range(len(self.record.programs.classes)):
            time = rank_time(self.record, r, stages)
            waits = [time.exposed.get(axis, 0.0) for axis in AXES]
            late = [time.late.get(name, 0.0) for name in PEERS]
            rows.append([sum(time.parts.values()), *waits, time.bubble_s, *late])
        return np.array(rows)

    def of_ranks(self, stage: Ids) -> Ids:
        """The class of every rank, by the pipeline rank of each."""
        return stage if self.folded.of_rank is None else self.folded.of_rank

    def side(self, classes: Ids) -> Side:
        """Seconds of work and of waiting, as the mean over ranks; ``classes`` is the class of each."""
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
    groups = ProcessGroups(parallelism=layout)
    before, after = healthy.of_ranks(groups.pipeline_rank), struck.of_ranks(groups.pipeline_rank)
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
                members=tuple(np.flatnonzero(ranks).tolist()),
            )
            for name, ranks in _relations(groups, struck_ranks(degradation))
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
    groups = ProcessGroups(parallelism=layout)
    side = healthy.side(healthy.of_ranks(groups.pipeline_rank))
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
            struck.of_ranks(groups.pipeline_rank),
            stopped_ranks(degradation.states[-1]),
            _relations(groups, stopped),
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


def _relations(groups: ProcessGroups, struck: list[int]) -> Iterator[tuple[str, Mask]]:
    """Every rank once, by its closest relation to a faulty one; none where no rank is faulty."""
    if not struck:
        return
    left = np.ones_like(groups.pipeline_rank, dtype=bool)
    joined = np.zeros_like(left)
    joined[struck] = True
    yield "struck", joined
    left &= ~joined
    for name, along in (
        ("same TP group", GROUPS["tp"]),
        ("same CP group", GROUPS["cp"]),
        ("same replica and stage", (*GROUPS["cp"], "tp")),
        ("same replica, other stages", (*GROUPS["model"], *GROUPS["cp"])),
        ("same stage, other replicas", (*GROUPS["dp"], "tp")),
        ("other replicas and stages", GROUPS["world"]),
    ):
        number = groups.number(along)
        found = left & np.isin(number, number[struck])
        if found.any():
            yield name, found
        left &= ~found
