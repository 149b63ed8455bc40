"""Messages of one class that no stream orders: each is posted when what it waits for has ended.

When the host issues one is known by then, so it is posted at that time although it may be yet to come: a
receive that waits for its sender costs no event. They are half of a step's ops.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ..program.program import Exchange
from .clock import Clock
from .meetings import Meetings
from .scope import Scope
from .signal import Signal


@dataclass(slots=True)
class Posts:
    """Exchanges of ``scope``; ``lacks`` counts by index what each still waits for."""

    env: Clock
    meetings: Meetings
    scope: Scope
    lacks: dict[int, int]

    def begin(self, _: object = None) -> None:
        """Post all that wait for nothing."""
        for i in [i for i, lacks in self.lacks.items() if not lacks]:
            self._post(i)

    def lose(self, indices: Iterable[int]) -> None:
        """What these exchanges waited for has ended, one thing of each."""
        lacks = self.lacks
        for i in indices:
            lacks[i] -= 1
            if not lacks[i]:
                self._post(i)

    def _post(self, i: int) -> None:
        scope, at = self.scope, self.env.time
        if scope.issued_at is not None:
            at = max(at, scope.issued(i))
        scope.start[i] = scope.begin[i] = at
        work = scope.ops[i].work
        assert isinstance(work, Exchange)
        place, post = (scope.r, i), self.meetings.post
        if len(work.parts) == 1:
            (part,) = work.parts
            done = post(part, place, at)
            done.then(partial(self._one_over, i, done))
            return
        posted = [post(part, place, at) for part in work.parts]
        over = partial(self._over, i, posted)
        for done in posted:
            done.then(over)

    def _over(self, i: int, posted: Sequence[Signal]) -> None:
        """A part has ended: the exchange has, if all have."""
        for done in posted:
            if not done.happened:
                return
        self.scope.begun(i, posted)
        self.scope.ends(i, self.env.time)

    def _one_over(self, i: int, done: Signal) -> None:
        """The only part has ended."""
        scope = self.scope
        began, scope.source[i] = done.value
        if began > scope.start[i]:
            scope.begin[i] = began
        scope.ends(i, self.env.time)
