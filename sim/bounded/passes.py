"""Passes over the replicas of a step, with collectives as slow as the messages of all replicas make them.

A pass over all replicas and one over a few differ by what the others add to a replay of the few. Knows graphs
and factors; replays nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .max_plus import Pass, max_plus
from .traffic import Traffic

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..program.program import Programs
    from .graph import StepGraph

    Seconds = NDArray[np.float64]


class Passes:
    """Passes of one job.

    ``slow[u, stage]`` are the factors of all replicas. ``longer_s`` says for each collective of several
    replicas how many seconds longer it takes beside their messages than in the healthy step, from whose
    ``programs`` the ``graph`` was made.
    """

    def __init__(self, graph: StepGraph, programs: Programs, slow: Seconds) -> None:
        self.graph, self.slow = graph, slow
        self._traffic = Traffic(graph, programs)
        first = max_plus(graph, slow, sent=True)
        self.longer_s = self._traffic.longer_s(first)
        self.full = max_plus(graph, slow, self.longer_s) if any(self.longer_s) else first
        self.traffic = self.step_s / float(first.step_s) - 1
        """The share of the step that comes from replicas sending their messages at different times."""

    @property
    def step_s(self) -> float:
        """The step of all replicas."""
        return float(self.full.step_s)

    def of(self, slow: Seconds) -> Pass:
        """A pass over sets of other replicas, with collectives as slow as the messages of all replicas make
        them."""
        return max_plus(self.graph, slow, self.longer_s)

    def alone_s(self, slow: Seconds) -> float:
        """The step of a few replicas in seconds, with their own messages alone: as a replay of them has
        it."""
        longer_s = self._traffic.longer_s(max_plus(self.graph, slow, sent=True))
        return float(max_plus(self.graph, slow, longer_s).step_s)

    def without_each_s(self, rows: Sequence[int]) -> Seconds:
        """The step in seconds of these rows without each one of them in turn; of a single row, the step
        without it."""
        if len(rows) == 1:
            return self.of(self.slow[list(rows)]).step_s[None]
        return self.of(self.slow[[[u for u in rows if u != row] for row in rows]]).step_s
