"""SimPy's environment, with calls beside its events: a communication needs no process, only to be called.

An event of SimPy costs five calls of functions before anybody hears of it; a step has a hundred thousand
that only one function waits for. Those are entries of the same queue, in the same order, that name it.
This file alone reads private names of SimPy 4: the queue, the clock and the numbering of its
``Environment``, and what an ``Event`` has come to. ``tests/test_simpy.py`` holds it to plain SimPy.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

import simpy

Call = Callable[[Any], object]

URGENT, NORMAL = 0, 1
TICK = 8192
"""Entries of the queue between two looks at how far a replay is: a tenth of a second."""

AFTER_ALL = 2
"""SimPy runs priorities 0 (urgent) and 1 (normal) of an instant first."""


class Clock(simpy.Environment):
    """``time`` is ``now`` as a plain attribute, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.tick: Callable[[int], object] | None = None
        """Told now and then how many entries have been run."""
        self._calls: Any = self._queue

    def call(self, delay_s: float, function: Call, value: Any = None) -> None:
        """Run ``function(value)`` after a delay."""
        heappush(self._calls, (self.time + delay_s, NORMAL, next(self._eid), function, value))

    def call_first(self, function: Call, value: Any = None) -> None:
        """Run ``function(value)`` next, before all else of this instant, as SimPy interrupts a process."""
        heappush(self._calls, (self.time, URGENT, next(self._eid), function, value))

    def call_after_all(self, function: Call, value: Any = None) -> None:
        """Run ``function(value)`` after all events of this instant."""
        heappush(self._calls, (self.time, AFTER_ALL, next(self._eid), function, value))

    def run_to_end(self) -> int:
        """Run until nothing is left; how many entries of the queue that took.

        Raises what a process raised.
        """
        queue, count = self._calls, 0
        while queue:
            entry = heappop(queue)
            count += 1
            if not count % TICK and self.tick is not None:
                self.tick(count)
            self._now = self.time = entry[0]
            if len(entry) == 5:
                entry[3](entry[4])
                continue
            event = entry[3]
            callbacks, event.callbacks = event.callbacks, None
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):  # noqa: SLF001
                raise event._value  # noqa: SLF001
        return count


def happen_now(event: simpy.Event) -> None:
    """An event that has not happened does at once: whoever waits for it goes on before this returns."""
    event._ok, event._value = True, None  # noqa: SLF001
    callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
    for callback in callbacks:
        callback(event)
