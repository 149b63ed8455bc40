"""What a replay leaves behind: when each op was reached, began in earnest, and ended."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from ..program.program import Collective, Program, Programs
from .blocks import RepeatedRun
from .scope import BITS, NOBODY, Layout, Scope, Times, layout_of, unknown


@dataclass(slots=True)
class Stretch:
    """The first ``count`` blocks of ``run``, which ran as a whole; its times count from ``at``."""

    run: RepeatedRun
    at: float
    count: int


@dataclass(frozen=True, slots=True)
class SlowedBy:
    """How long, and with how many bytes, ``link`` held communications of one kind below their ceiling.

    ``between`` is their communicator (None: messages), ``ends`` (sending, receiving) classes,
    ``binding`` what sets the ceiling.
    """

    between: str | None
    ends: tuple[tuple[int, int], ...]
    ceiling: float
    binding: str
    link: Hashable
    seconds: float
    bytes: float


Piece = Stretch | Scope
"""Part of repeated blocks: some of them as a whole, or one in detail."""


@dataclass(slots=True)
class Record:
    """The times of a replay by class and op index, in seconds.

    ``start`` is when the op was reached; ``begin`` when it made progress (a communication begins when its
    last member arrives); ``source`` says whose arrival began it (``released``). ``at_once`` has, by class,
    the repeated blocks that ran as a whole, ``in_pieces`` the pieces of all others.
    """

    programs: Programs
    start: list[array[float]]
    begin: list[array[float]]
    end: list[array[float]]
    source: list[array[int]]
    at_once: list[dict[int, RepeatedRun]]
    in_pieces: dict[tuple[int, int], list[Piece]] = field(default_factory=dict)
    slowed: list[SlowedBy] = field(default_factory=list)
    events: int = 0
    last_s: list[float] = field(default_factory=list)  # latest end of each class
    makespan_s: float = 0.0  # latest end over all classes
    step_s: float = 0.0  # from one step to the next
    _calls: dict[int, dict[str, list[int]]] = field(default_factory=dict)
    _layouts: dict[int, Layout] = field(default_factory=dict)

    @classmethod
    def empty(cls, programs: Programs) -> Record:
        """A record of programs of which no op has run yet."""
        columns = [unknown(len(program.ops)) for program in programs.classes]
        start, begin, end, source = map(list, zip(*columns, strict=True)) if columns else ([], [], [], [])
        return cls(programs, start, begin, end, source, [{} for _ in columns])

    def of_class(self, r: int) -> Times:
        """Start, begin, end and source of the ops of class ``r``, to be filled."""
        return self.start[r], self.begin[r], self.end[r], self.source[r]

    def add_piece(self, r: int, i: int, piece: Piece) -> None:
        """Record one of the pieces in which op ``i`` of class ``r``, a row of repeated blocks, runs."""
        self.in_pieces.setdefault((r, i), []).append(piece)

    def add_whole(self, r: int, i: int, run: RepeatedRun, zero: float) -> None:
        """Record that op ``i`` of class ``r``, a row of repeated blocks, ran to its last block without
        interruption, from block ``run.number`` on; times of ``run`` count from ``zero``."""
        if run.number:
            self.add_piece(r, i, Stretch(run, zero, len(run.runs)))
        else:
            self.at_once[r][i] = run

    def pieces(self, r: int, i: int) -> Sequence[Piece]:
        """The pieces in which op ``i`` of class ``r``, a row of repeated blocks, ran."""
        run = self.at_once[r].get(i)
        if run is None:
            return self.in_pieces.get((r, i), ())
        return (Stretch(run, self.start[r][i] - run.first, len(run.runs)),)

    def repeated_blocks(self) -> Iterator[tuple[int, int]]:
        """Class and op of all repeated blocks that have run."""
        yield from ((r, i) for r, runs in enumerate(self.at_once) for i in runs)
        yield from self.in_pieces

    def whole(self, r: int, i: int) -> RepeatedRun | None:
        """The run of op ``i``, repeated blocks, if it ran as a whole at once; else None."""
        return self.at_once[r].get(i)

    def close(self, events: int, *, stopped: bool = False) -> None:
        """End the record of a replay that took so many ``events``, and set the makespan.

        Where a class has ``stopped`` and others wait for it, the makespan is infinite.

        Raises:
            RuntimeError: some ops have not ended although no class has stopped; names what waits for ever.
        """
        self.events = events
        if stopped and any(min(ends, default=0.0) < 0 for ends in self.end):
            self.makespan_s = math.inf
            return
        self._check_finished()
        self.last_s = [max(ends, default=0.0) for ends in self.end]
        self.makespan_s = max(self.last_s, default=0.0)

    def calls(self, r: int, communicator: str) -> Sequence[int]:
        """Indices of the collectives of class ``r`` over a communicator that joins classes, in the order of
        its program. The n-th of one class is the same collective as the n-th of each other class.
        """
        program = self.programs.classes[r]
        if id(program) not in self._calls:
            found: dict[str, list[int]] = {}
            for i, op in enumerate(program.ops):
                if isinstance(op.work, Collective):
                    found.setdefault(op.work.communicator, []).append(i)
            self._calls[id(program)] = found
        named = self._calls[id(program)].items()
        mine = (which for name, which in named if self.programs.joins(r, name) == communicator)
        return sorted(i for which in mine for i in which)

    def predecessors(self, r: int) -> Sequence[int]:
        """For each op of class ``r``, the one before it on its stream; -1 for none."""
        return self._layout(r).predecessors

    def knows(self, program: Program, layout: Layout) -> None:
        """Keep the layout of the classes that run ``program``."""
        self._layouts[id(program)] = layout

    def issues(self, r: int) -> Sequence[tuple[int, float]]:
        """For each op of class ``r``, which the host waits for and the host time since (``issue_times``)."""
        return self._layout(r).issue

    def _layout(self, r: int) -> Layout:
        program = self.programs.classes[r]
        found = self._layouts.get(id(program))
        if found is None:
            found = self._layouts[id(program)] = layout_of(program, host=True)
        return found

    def times(self, r: int, i: int) -> tuple[float, float, float]:
        """(start, begin, end) of an op that has run."""
        return self.start[r][i], self.begin[r][i], self.end[r][i]

    def released(self, r: int, i: int) -> tuple[int, int] | None:
        """The (class, op) whose arrival began an op, if any did."""
        source = self.source[r][i]
        return None if source == NOBODY else (source >> BITS, source & ((1 << BITS) - 1))

    def _check_finished(self) -> None:
        stuck = []
        for r, ends in enumerate(self.end):
            missing = [i for i, t in enumerate(ends) if t < 0]
            if missing:
                op = self.programs.classes[r].ops[missing[0]]
                stuck.append(f"class {r} at op {missing[0]} ({op.name} {op.action}, stream {op.stream})")
        if stuck:
            raise RuntimeError("deadlock: " + "; ".join(stuck[:8]))
