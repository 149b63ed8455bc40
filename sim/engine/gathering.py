"""Members of a group as they gather for repeated blocks: waiting for the last, then run as a whole.

Until the last has come, the others count as running: nothing that they do before could end on any of them
(groups.py). When something interferes with one, all go on in detail, each from its own state.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..program.program import RepeatedBlocks
from .blocks import RepeatedRun
from .clock import Clock
from .groups import How, JointGroup
from .rank_state import Contention, RankState
from .runs import NEVER, Runs


class Member(Protocol):
    """Repeated blocks of one member (blocks_in_progress.py)."""

    def interrupt(self) -> None:
        """Something is about to happen that may interfere with the member's run: it is to go on in detail."""

    def whole_over(self, here: Here) -> None:
        """The run of all the member's blocks has ended."""


@dataclass(slots=True)
class Here:
    """A member that has reached block ``number``, or reaches it ``at`` a time soon to come.

    Its ``run`` counts from ``zero`` and is known when all have come or when it has ``opened``; ``member`` is
    told when it has ended.
    """

    member: Member
    rank: RankState
    number: int
    at: float
    lead_s: float
    contention: Contention
    run: RepeatedRun | None = None
    zero: float = 0.0
    opened: bool = False

    def first_use(self, link: str, since: float, until: float) -> float:
        """When its run first uses ``link`` between two times, infinite where it does not; at once, for all
        that is known before there is a run."""
        if self.run is None:
            return since
        return self.zero + self.run.first_use(link, since - self.zero, until - self.zero)


@dataclass(slots=True)
class Gathering:
    """Repeated blocks of each member of ``group``, the ``number``-th of each program; ``ways`` by block,
    or None where a class by itself runs every block as a whole.

    ``expected`` members have not reached theirs; ``detail`` is the last block that one of them has
    gone into in detail; ``here`` are members in a run, by class.
    """

    group: JointGroup
    repeated_blocks: tuple[RepeatedBlocks, ...]
    ways: tuple[How, ...] | None
    number: int
    expected: int = field(init=False)
    detail: int = -1
    here: dict[int, Here] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.expected = len(self.group.members)

    def meets(self, number: int) -> bool:
        """Whether members meet in block ``number`` or later."""
        return self.ways is not None and self.ways[number] != "alone"

    def joins(self, number: int) -> bool:
        """Whether a member that reaches a block can run it as a whole, with the others."""
        return self.ways is None or (number > self.detail and self.ways[number] == "together")

    def arrive(self, r: int, here: Here, env: Clock, runs: Runs) -> None:
        """Let a member run its repeated blocks as a whole; when the last one has come, all begin."""
        if len(self.group.members) == 1:
            lead_s = here.lead_s if here.lead_s > 0 else 0.0
            run = runs.alone(self.group, self.repeated_blocks[0], here.number, lead_s, here.contention)
            here.run, here.zero = run, here.at
            after_s = here.at + run.last - env.time
            env.call(after_s if after_s > 0 else 0.0, here.member.whole_over, here)
            return
        self.here[r] = here
        if len(self.here) < len(self.group.members):
            return
        self._plan(runs)
        for one in self.here.values():
            assert one.run is not None
            env.call(max(0.0, one.zero + one.run.last - env.time), one.member.whole_over, one)

    def leave(self, r: int) -> None:
        """Note that the member of class ``r`` has ended its repeated blocks. A class by itself waits for
        nobody after that."""
        self.here.pop(r, None)

    def open(self, runs: Runs) -> None:
        """Let all members whose blocks run as a whole go on in detail, each from its own state."""
        here = self.here
        if not here:
            return
        if next(iter(here.values())).run is None:
            self._plan(runs)
        self.here = {}
        for one in here.values():
            one.opened = True
            one.rank.open_if(one.member)

    def goes_in_detail(self, number: int, runs: Runs) -> None:
        """Note that a member runs block ``number`` in detail; others that wait for it there run it in detail,
        too."""
        if self.ways is not None and number > self.detail:
            self.detail = number
            if any(one.run is None and one.number <= number for one in self.here.values()):
                self.open(runs)

    def _plan(self, runs: Runs) -> None:
        """Find the runs of the members that are here; the others never come."""
        here, members = self.here, self.group.members
        zero = min([one.at for one in here.values()])
        arrivals = []
        for r in members:
            one = here.get(r)
            if one is None:
                arrivals.append(NEVER)
            else:
                arrivals.append((one.at - zero, one.lead_s if one.lead_s > 0 else 0.0, one.contention))
        number = next(iter(here.values())).number
        found = runs.repeated_blocks(self.group, self.repeated_blocks, number, tuple(arrivals))
        for r, run in zip(members, found, strict=True):
            if r in here:
                here[r].run, here[r].zero = run, zero
