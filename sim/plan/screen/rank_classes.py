"""Which ranks of a layout's pipeline hold the same, so that memory is worked out once for each such class.

Knows stages, orders of schedules and how ranks are placed. Does not know what anything weighs (memory.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...lowering.common_to_layouts import runs_pairs
from ...lowering.overlapped import runs_as_one
from ...scenario.schedules import schedule_named
from .in_flight import actions_of_rank, held_rows, largest
from .stages import merged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import Overlap
    from ....schedules.orders.schedule import Shape
    from ...lowering.layers.kinds import LayerRun
    from ...lowering.layers.stages import Stage
    from ...scenario.models import Scenario
    from .stages import Pipeline
    from .tables import ScreenTables

    Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class AlikeRanks:
    """Pipeline ranks that hold the same: the kinds of their stages, and what any of them may hold at its
    peak.

    ``first`` is the lowest of the ranks, ``whole`` all its stages as one, ``leading`` its first run of
    layers. ``rows`` are those of ``in_flight.held_rows`` for the ``kinds`` in order. With ``shares_table``
    the other end of the model, on another rank, also holds this one's word table; with ``ends_meet`` one rank
    has both ends. ``giving`` are all its stages, if the model has others. ``placed`` is ``first`` where ranks
    of the layout are placed in several ways, so that NCCL's buffers are this rank's own; else -1.
    """

    first: int
    kinds: tuple[Stage, ...]
    whole: Stage
    leading: LayerRun | None
    shares_table: bool
    ends_meet: bool
    versions: int
    rows: Floats
    giving: tuple[Stage, ...]
    placed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _LikeRanks:
    """Ranks of a pipeline whose stages are of the same kinds, before their orders are known.

    ``ranks`` are enough of them to know what any holds. ``own`` is the kind of each virtual stage that these
    have (-1 for all others), one of so many ``kinds``; ``stages`` are the numbers of the kinds of a rank's
    stages, and of the kinds.
    """

    ranks: tuple[int, ...]
    shares_table: bool
    versions: int
    kinds: int
    own: tuple[int, ...]
    stages: tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(kw_only=True)
class RankClasses:
    """The classes of the pipeline ranks of the layouts of one base, each worked out once."""

    tables: ScreenTables
    moments: dict[Any, Floats] = field(default_factory=dict)
    kinds: dict[Stage, int] = field(default_factory=dict)
    alike: dict[Any, list[_LikeRanks]] = field(default_factory=dict)
    known: dict[Any, AlikeRanks] = field(default_factory=dict)

    def of(self, row: int) -> list[AlikeRanks]:
        """The classes of a layout's pipeline ranks. Layouts that have a class in common share one object."""
        draft, pipeline = self.tables.draft(row), self.tables.pipeline(row)
        shape, found = self.tables.shape(row), []
        depth = pipeline.ends_meet, shape.ranks, shape.chunks, draft.training.activation_offload
        ways = self._ways_placed(row)
        for like in self._like_ranks(draft, pipeline, ways):
            rows = self._moments(row, shape, like)
            placed = like.ranks[0] if ways else -1
            same = like.stages, like.shares_table, like.versions, depth, placed, rows.tobytes()
            if same not in self.known:
                self.known[same] = _alike_ranks(pipeline, like, rows, placed)
            found.append(self.known[same])
        return found

    def _ways_placed(self, row: int) -> tuple[tuple[int, ...], ...]:
        """The placements of the ranks of each pipeline rank; none where all ranks are placed alike."""
        if not self.tables.uneven[row]:
            return ()
        of_rank = self.tables.placements(row).of_rank
        stages = self.tables.groups(row)[0].process_groups.stages
        return tuple(tuple(np.flatnonzero(np.bincount(of_rank[ranks])).tolist()) for ranks in stages)

    def _like_ranks(
        self, draft: Scenario, pipeline: Pipeline, ways: tuple[tuple[int, ...], ...]
    ) -> list[_LikeRanks]:
        """The ranks of a pipeline, grouped by the kinds of their stages and by the ``ways`` in which each is
        placed; worked out once for a pipeline."""
        traits, model = schedule_named(draft.schedule), draft.model
        ties = model.table_at_both_ends and not pipeline.ends_meet
        several = bool(traits.weight_versions)
        key = id(pipeline), ties, several, bool(traits.filling), ways  # of all pipelines, which tables keep
        if key not in self.alike:
            alike: dict[Any, list[int]] = {}
            for rank in range(len(pipeline.held)):
                kinds = tuple(sorted(pipeline.of_rank(rank)))
                way = ways[rank] if ways else ()
                same = kinds, ties and bool(pipeline.ends(rank)), rank if several else 0, way
                alike.setdefault(same, []).append(rank)
            number = [self.kinds.setdefault(stage, len(self.kinds)) for stage in pipeline.kinds]
            # Each next rank of a schedule that fills runs fewer forwards ahead, in the same turns.
            most = 1 if traits.filling else len(pipeline.held)
            self.alike[key] = [
                _like_ranks(pipeline, tuple(ranks[:most]), number, shares_table, versions)
                for (_, shares_table, versions, _), ranks in alike.items()
            ]
        return self.alike[key]

    def _moments(self, row: int, shape: Shape, like: _LikeRanks) -> Floats:
        """The rows of counts that may be the peak of a rank of this class."""
        draft = self.tables.draft(row)
        spread = draft.parallelism.ep > 1  # pairs of DualPipe run as one where experts exchange
        key = draft.schedule, shape, runs_pairs(draft), spread, like.own, like.ranks
        if key not in self.moments:
            orders, together = self.tables.orders(row), self._runs_as_one(row)
            each = [
                largest(held_rows(actions_of_rank(orders[rank], together), np.array(like.own), like.kinds))
                for rank in like.ranks
            ]
            rows = each[0] if len(each) == 1 else largest(np.concatenate(each))
            self.moments[key] = rows.astype(np.float64)
        return self.moments[key]

    def _runs_as_one(self, row: int) -> Callable[[Overlap], bool]:
        """Whether a pair of a forward and a backward runs as one in this layout, as a function of the
        pair."""
        local, pipeline = self.tables.layers[int(self.tables.layer[row])].local, self.tables.pipeline(row)

        @cache
        def of_kinds(forward: int, backward: int) -> bool:
            return runs_as_one(pipeline.kinds[forward], pipeline.kinds[backward], local)

        return lambda step: of_kinds(
            pipeline.kind_of[step.forward.stage], pipeline.kind_of[step.backward.stage]
        )


def _like_ranks(
    pipeline: Pipeline, ranks: tuple[int, ...], number: Sequence[int], shares_table: bool, versions: int
) -> _LikeRanks:
    held = pipeline.of_rank(ranks[0])
    names = sorted(set(held))
    stages = {stage for rank in ranks for stage in pipeline.held[rank]}
    place = {kind: place for place, kind in enumerate(names)}
    return _LikeRanks(
        ranks=ranks,
        shares_table=shares_table,
        versions=versions,
        kinds=len(names),
        own=tuple(place[kind] if stage in stages else -1 for stage, kind in enumerate(pipeline.kind_of)),
        stages=(tuple(number[kind] for kind in held), tuple(number[kind] for kind in names)),
    )


def _alike_ranks(pipeline: Pipeline, like: _LikeRanks, rows: Floats, placed: int) -> AlikeRanks:
    first = like.ranks[0]
    held = pipeline.of_rank(first)
    stages = [pipeline.kinds[kind] for kind in held]
    return AlikeRanks(
        first=first,
        kinds=tuple(pipeline.kinds[kind] for kind in sorted(set(held))),
        whole=merged(stages),
        leading=next((stage.runs[0] for stage in stages if stage.runs), None),
        shares_table=like.shares_table,
        ends_meet=pipeline.ends_meet,
        versions=like.versions,
        rows=rows,
        giving=tuple(stages) if len(pipeline.kind_of) > 1 else (),
        placed=placed,
    )
