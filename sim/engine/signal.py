"""Something that happens once: callbacks hear at once, and so does a process that waits.

A step waits for a hundred thousand ends: an entry of the queue for each would double those of a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import simpy

from .clock import happen_now

Callback = Callable[[], object]


class Done(Protocol):
    """Told once, when something has ended."""

    def happen(self, value: Any) -> None:
        """Called when it has ended; ``value`` is what it ended with."""


class Signal:
    """``happened`` says whether it has, ``value`` with what."""

    __slots__ = ("_callbacks", "_event", "happened", "value")

    def __init__(self) -> None:
        self.happened = False
        self.value: Any = None
        self._callbacks: list[Callback] | None = None
        self._event: simpy.Event | None = None

    def then(self, callback: Callback) -> None:
        """Run ``callback`` when it happens, which it has not yet."""
        if self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def event(self, env: simpy.Environment) -> simpy.Event:
        """What a process that waits for it yields, before it has happened."""
        if self._event is None:
            self._event = simpy.Event(env)
        return self._event

    def happen(self, value: Any = None) -> None:
        """Tell all who wait, processes last: they go on with what comes after all this."""
        self.happened, self.value = True, value
        callbacks, self._callbacks = self._callbacks, None
        if callbacks is not None:
            for callback in callbacks:
                callback()
        if self._event is not None:
            happen_now(self._event)
