"""Messages that nothing orders: each waits for its own ops, its host, and its other ends, by callbacks.

A step has thousands of them, most of which wait from the start: a SimPy process for each would cost
two more events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import simpy

from ..program.program import Exchange
from .flows import call_at_end
from .scope import Scope

Post = Callable[[Scope, int, Exchange], Sequence[simpy.Event]]
"""Posts the parts of an op and gives their ends."""


@dataclass(slots=True)
class Unordered:
    """Op ``i`` of a program, a group of messages."""

    env: simpy.Environment
    scope: Scope
    i: int
    post: Post
    posted: Sequence[simpy.Event] = ()

    def start(self, _: object = None) -> None:
        """Once all that it waits for has ended, wait for the host."""
        scope, i = self.scope, self.i
        sync = () if scope.issued_at is None or scope.issue[i][0] < 0 else (scope.issue[i][0],)
        for dependency in (*scope.ops[i].after, *sync):
            if scope.end[dependency] is None:
                call_at_end(scope.ended(dependency, self.env), self.start)
                return
        wait_s = 0.0 if scope.issued_at is None else scope.issued(i) - self.env.now
        if wait_s > 0:
            call_at_end(self.env.timeout(wait_s), self._reached)
        else:
            self._reached()

    def _reached(self, _: object = None) -> None:
        scope, i = self.scope, self.i
        work = scope.ops[i].work
        assert isinstance(work, Exchange)
        scope.start[i] = scope.begin[i] = self.env.now
        self.posted = self.post(scope, i, work)
        self._await()

    def _await(self, _: object = None) -> None:
        """Once all parts have ended, so has the op."""
        for done in self.posted:
            if not done.processed:
                call_at_end(done, self._await)
                return
        self.scope.begun(self.i, self.posted)
        self.scope.ends(self.i, self.env.now)
