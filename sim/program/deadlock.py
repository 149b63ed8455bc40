"""Runs programs without time: what can ever end does, and the rest waits in a circle that it names.

Knows streams, waits, host synchronisation, collectives and messages as the engine does. Expects
programs whose collectives and messages match (matching.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .matching import Calls, Message, OpEnds, Place, message_of, messages, place_name, shared_calls
from .program import UNORDERED, Collective, Exchange, Op, Programs, RepeatedBlocks


@dataclass(kw_only=True)
class _Untimed:
    """A run in progress. ``missing`` counts what an op still waits for before it can start."""

    programs: Programs
    before: list[list[tuple[int, ...]]]
    missing: list[list[int]] = field(init=False)
    after: list[list[list[int]]] = field(init=False)
    calls: Calls = field(init=False)
    call_of: dict[Place, tuple[str, int]] = field(init=False)
    arrived: dict[tuple[str, int], list[Place]] = field(default_factory=dict)
    posted: dict[Message, list[Place]] = field(default_factory=dict)
    parts_left: dict[Place, int] = field(default_factory=dict)
    ended: set[Place] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.missing = [[len(deps) for deps in ops] for ops in self.before]
        self.after = [[[] for _ in ops] for ops in self.before]
        for r, ops in enumerate(self.before):
            for i, deps in enumerate(ops):
                for d in deps:
                    self.after[r][d].append(i)
        self.calls = shared_calls(self.programs)
        self.call_of = {
            (r, i): (name, number)
            for name, by_class in self.calls.items()
            for r, calls in by_class.items()
            for number, i in enumerate(calls)
        }

    def run(self) -> None:
        """End everything that can end."""
        ready = [(r, i) for r, ops in enumerate(self.missing) for i, left in enumerate(ops) if not left]
        while ready:
            for r, i in self._start(ready.pop()):
                self.ended.add((r, i))
                for later in self.after[r][i]:
                    self.missing[r][later] -= 1
                    if not self.missing[r][later]:
                        ready.append((r, later))

    def _start(self, place: Place) -> list[Place]:
        """Start an op; all the ops that end with it."""
        work = self.programs.classes[place[0]].ops[place[1]].work
        if place in self.call_of:
            name, _ = call = self.call_of[place]
            here = self.arrived.setdefault(call, [])
            here.append(place)
            return here if len(here) == len(self.programs.communicators[name]) else []
        if not isinstance(work, Exchange) or not work.parts:
            return [place]
        self.parts_left[place] = len(work.parts)
        done = []
        for part in work.parts:
            ends = self.posted.setdefault(message_of(place[0], part), [])
            ends.append(place)
            if len(ends) == 2:
                for end in ends:
                    self.parts_left[end] -= 1
                    done += [end] if not self.parts_left[end] else []
        return done

    def awaited(self, place: Place) -> Place:
        """An op that has not ended and that this one, which has not either, waits for."""
        r, i = place
        for d in self.before[r][i]:
            if (r, d) not in self.ended:
                return r, d
        if place in self.call_of:
            name, number = call = self.call_of[place]
            here = {member for member, _ in self.arrived[call]}
            late = next(m for m in self.programs.communicators[name] if m not in here)
            return late, self.calls[name][late][number]
        work = self.programs.classes[r].ops[i].work
        assert isinstance(work, Exchange)
        part = next(p for p in work.parts if len(self.posted[message_of(r, p)]) < 2)
        ends = self.ends[message_of(r, part)]
        return (ends.receives if part.send else ends.sends)[0][0]

    @cached_property
    def ends(self) -> dict[Message, OpEnds]:
        """The two ends of every message; computed when a deadlock asks for them."""
        return messages(self.programs)


def deadlock_problems(programs: Programs) -> Iterator[str]:
    """One circle of ops that wait for one another for ever; nothing when every op ends."""
    run = _Untimed(programs=programs, before=[_predecessors(program.ops) for program in programs.classes])
    run.run()
    stuck = ((r, i) for r, p in enumerate(programs.classes) for i in range(len(p.ops)))
    first = next((place for place in stuck if place not in run.ended), None)
    if first is None:
        return
    chain, awaited = {first: None}, run.awaited(first)
    while awaited not in chain:
        chain[awaited] = None
        awaited = run.awaited(awaited)
    circle = list(chain)[list(chain).index(awaited) :]
    waiting = [place for place in circle if _meets(programs, place)]
    # Begun at the lowest class, so that the same deadlock reads the same from wherever it was found.
    turn = waiting.index(min(waiting))
    names = [_described(programs, place) for place in waiting[turn:] + waiting[:turn]]
    yield "deadlock: " + ", which waits for ".join([*names, names[0]])


def _predecessors(ops: tuple[Op, ...]) -> list[tuple[int, ...]]:
    """For each op, the ops of its class that end before it can start.

    Repeated blocks are on the streams of each block too; nothing in them waits for what starts after them.
    """
    last: dict[str, int] = {}
    sync: tuple[int, ...] = ()
    found = []
    for i, op in enumerate(ops):
        streams = (op.stream, *(op.work.last_on if isinstance(op.work, RepeatedBlocks) else ()))
        before = {last[stream] for stream in streams if stream in last and stream != UNORDERED}
        found.append(tuple({*op.after, *before, *sync}))
        last |= dict.fromkeys(streams, i)
        if op.host_sync:
            sync = (i,)
    return found


def _meets(programs: Programs, place: Place) -> bool:
    work = programs.classes[place[0]].ops[place[1]].work
    shared = isinstance(work, Collective) and work.communicator in programs.communicators
    return shared or isinstance(work, Exchange)


def _described(programs: Programs, place: Place) -> str:
    work = programs.classes[place[0]].ops[place[1]].work
    if isinstance(work, Collective):
        return f"{place_name(programs, place)}: {work.kind} of {work.communicator!r}"
    assert isinstance(work, Exchange)
    parts = [
        f"{'send' if p.send else 'receive'} {p.tag} {'to' if p.send else 'from'} class {p.peer}"
        for p in work.parts
    ]
    return f"{place_name(programs, place)}: {' and '.join(parts)}"
