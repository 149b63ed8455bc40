"""Something that happens once: what waits by callback hears at once, a process by an event of its own.

A step waits for a hundred thousand ends, most of them by callbacks: an event for each would double the
events of a replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import simpy

Callback = Callable[[], None]


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
            self._event = env.event()
        return self._event

    def happen(self, value: Any = None) -> None:
        """Tell all who wait."""
        self.happened, self.value = True, value
        if self._event is not None:
            self._event.succeed()
        for callback in self._callbacks or ():
            callback()
