"""Moments in a step at which ranks change speed, links change capacity, or ranks stop.

Whatever is in progress then goes on from where it is: kernels at their new speed, communications at shares
that are solved anew, repeated blocks in detail. Knows nothing of why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..network.sharing import Link
from ..program.program import Change, Programs
from .clock import Clock
from .flows import Flows
from .groups import JointGroups
from .rank_state import RankState, is_down
from .scope import SLACK_S


def begin_changes(
    env: Clock, programs: Programs, ranks: Sequence[RankState], flows: Flows, groups: JointGroups
) -> None:
    """Have each change of ``programs`` happen at its time, after whatever ends at that time.

    Times that should be equal differ by rounding. So a change comes ``SLACK_S`` late, and it does not depend
    on rounding whether a rank stops before or after an op ends.
    """
    before = programs
    for change in programs.changes:
        after = _changed(before, change)
        one = _Edge(env, before, after, ranks, flows, groups)
        env.call(change.at_s + SLACK_S, one.reached)
        before = after


def _changed(before: Programs, change: Change) -> Programs:
    """The programs as they are from the change on."""
    bindings = tuple(replace(before.binding(r), slow=slow) for r, slow in enumerate(change.slow))
    paths = replace(before.paths, capacity={**before.paths.capacity, **change.capacity})
    return replace(before, bindings=bindings, links=change.links, paths=paths)


class _Edge:
    """The moment of one change. Repeated blocks on ranks that change go on in detail, from their state of
    that moment; after all else of the instant the change comes into force."""

    def __init__(
        self,
        env: Clock,
        before: Programs,
        after: Programs,
        ranks: Sequence[RankState],
        flows: Flows,
        groups: JointGroups,
    ) -> None:
        self.env, self.ranks, self.flows, self.groups, self.after = env, ranks, flows, groups, after
        self.touched = [
            r
            for r in range(len(after.classes))
            if before.binding(r).slow != after.binding(r).slow or before.links[r] != after.links[r]
        ]
        was, now = _capacities(before), _capacities(after)
        self.capacity = {link: rate for link, rate in now.items() if rate != was[link]}

    def reached(self, _: object) -> None:
        for r in self.touched:
            self.ranks[r].changing = True
            self.ranks[r].open()
        self.env.call_after_all(self._apply)

    def _apply(self, _: object) -> None:
        self.groups.renew(self.after)
        for r in self.touched:
            rank, slow = self.ranks[r], self.after.binding(r).slow
            rank.stopped = rank.stopped or slow == math.inf
            rank.changing = rank.stopped or is_down(self.after.links[r])
            if slow != rank.slow:
                rank.slow = slow
                rank.tell_kernels()
            if rank.stopped:
                self.flows.stop((r, name) for name in self.after.links[r])
        self.flows.change(self.capacity)


def _capacities(programs: Programs) -> dict[Link, float]:
    found: dict[Link, float] = {
        (r, name): rate for r, links in enumerate(programs.links) for name, rate in links.items()
    }
    found.update(programs.paths.capacity.items())
    return found
