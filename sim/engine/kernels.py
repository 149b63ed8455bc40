"""Kernels in progress on a class of ranks: each goes on at its new speed when what is beside it changes.

A kernel needs no process of its own: its stream waits until it has ended, however often its speed changes
meanwhile.
"""

from __future__ import annotations

from ..program.program import Compute
from .clock import Clock
from .rank_state import RankState
from .signal import Signal


class Kernel:
    """``work`` on ``rank``, which has ``left`` seconds before it at full speed; ``ended`` happens at its end.

    ``rates`` takes, where given, the time and the new speed whenever that changes.
    """

    __slots__ = ("_env", "_left", "_number", "_rank", "_rate", "_rates", "_since", "_slow", "_work", "ended")

    def __init__(
        self,
        env: Clock,
        rank: RankState,
        work: Compute,
        left: float,
        rates: list[tuple[float, float]] | None,
    ) -> None:
        self._env, self._rank, self._work, self._left, self._rates = env, rank, work, left, rates
        self._since, self._slow, self._number = env.time, rank.slow, 0
        self.ended = Signal()
        rank.running[self] = None
        self._go_on(rank.speed(work))

    def look(self) -> None:
        """Go on at the speed that follows from what now runs beside the kernel, and from how slow its rank
        now is."""
        env, rank = self._env, self._rank
        rate = rank.speed(self._work)
        if rate == self._rate and rank.slow == self._slow:
            return
        self._number += 1  # the end that was to come does not
        self._left = max(0.0, self._left - self._rate * (env.time - self._since))
        self._since = env.time
        if rank.stopped:
            del rank.running[self]
            return
        if rank.slow != self._slow:
            self._left, self._slow = self._left * rank.slow / self._slow, rank.slow
        self._go_on(rate)

    def _go_on(self, rate: float) -> None:
        self._rate = rate
        if self._rates is not None:
            self._rates.append((self._since, rate))
        self._env.call(self._left / rate, self._end, self._number)

    def _end(self, number: int) -> None:
        if number == self._number:
            del self._rank.running[self]
            self.ended.happen()
