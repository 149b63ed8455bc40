"""Seconds of the actions of one rank of each layout, where ranks are placed in several ways: the rank whose
groups take the longest.

Only kernels take as long on all ranks. A step ends when all ranks have, so that any single rank gives a lower
bound. The tables are built once more, with the groups of this rank in place of those of rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .sharded_times import ShardedTimes
from .tables import ScreenTables
from .times import ActionTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.action import ActionKind
    from ...lowering.layers.stages import Stage

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class SlowestRanks:
    """The slowest rank of each of the layouts ``rows`` of a base; their own ``tables`` have these layouts
    alone."""

    rows: Codes
    tables: ScreenTables
    times: ShardedTimes

    def ranks(self, rows: Codes) -> Codes:
        """For each layout in ``rows``, the place in the pipeline of the rank whose groups take longest."""
        return self.tables.pipeline_ranks(self._places(rows))

    def of(self, kind: ActionKind, stage: Stage, rows: Codes) -> Floats:
        """Seconds of an action of that kind on such a stage of that rank, for each layout."""
        return self.times.of(kind, stage, self._places(rows))

    def ask(self, rows: Codes) -> None:
        """Set the layouts that are asked for from now on."""
        self.times.plain.ask(self.tables.layer[self._places(rows)])

    def _places(self, rows: Codes) -> Codes:
        places: Codes = np.searchsorted(self.rows, rows)
        return places


def slowest_ranks(tables: ScreenTables, rows: Codes) -> SlowestRanks:
    """The slowest ranks of some layouts of a base, in order; ``tables`` are those of the whole base."""
    own = ScreenTables(
        space=tables.space,
        base=tables.base,
        rows=tables.rows[rows],
        cluster=tables.cluster,
        profile=tables.profile,
        kernels=tables.kernels,
        slowest=True,
    )
    plain = ActionTimes(tables=own, used=own.layer)
    return SlowestRanks(rows=rows, tables=own, times=ShardedTimes(tables=own, plain=plain))
