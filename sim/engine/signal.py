"""An event that happens once: callbacks run at once, and so does a process that waits.

A step waits for a hundred thousand ends: an entry of the queue for each would double those of a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import simpy

from .clock import happen_now

Callback = Callable[[], object]

NONE: list[Callback] = []
"""No callbacks; most signals have one and need no list."""


class Done(Protocol):
    """Told once, when something has ended."""

    def happen(self, value: Any) -> None:
        """Called when it has ended; ``value`` is what it ended with."""


class Signal:
    """Something that happens once. ``happened`` says whether it has, and ``value`` with what."""

    __slots__ = ("_callback", "_event", "_others", "happened", "value")

    def __init__(self) -> None:
        self.happened = False
        self.value: Any = None
        self._callback: Callback | None = None
        self._others: list[Callback] = NONE
        self._event: simpy.Event | None = None

    def then(self, callback: Callback) -> None:
        """Run ``callback`` when it happens. To be asked only before that."""
        if self._callback is None:
            self._callback = callback
        elif self._others is NONE:
            self._others = [callback]
        else:
            self._others.append(callback)

    def event(self, env: simpy.Environment) -> simpy.Event:
        """A SimPy event for a process that waits for it. To be asked only before it happens."""
        if self._event is None:
            self._event = simpy.Event(env)
        return self._event

    def happen(self, value: Any = None) -> None:
        """Let it happen: run all callbacks, and last resume processes, which go on with what comes after all
        this."""
        self.happened, self.value = True, value
        callback = self._callback
        if callback is not None:
            others, self._callback, self._others = self._others, None, NONE
            callback()
            for callback in others:
                callback()
        if self._event is not None:
            happen_now(self._event)
