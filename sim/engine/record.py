"""What a replay leaves behind: when each op was reached, began in earnest, and ended."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from ..program.program import Programs
from .blocks import SegmentRun
from .period import step_seconds
from .scope import Scope, Times


@dataclass(slots=True)
class Stretch:
    """Blocks that ran as a whole: the first ``count`` of ``run``, whose times count from ``at``."""

    run: SegmentRun
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
"""Part of a segment: some blocks as a whole, or one in detail."""


@dataclass(slots=True)
class Record:
    """Times by class and op index, in seconds.

    ``start`` is when the op was reached; ``begin`` when it made progress (a communication begins
    when its last member arrives); ``source`` is the (class, op) whose arrival began it. ``pieces``
    says how each segment ran.
    """

    programs: Programs
    start: list[list[float | None]]
    begin: list[list[float | None]]
    end: list[list[float | None]]
    source: list[list[tuple[int, int] | None]]
    pieces: dict[tuple[int, int], list[Piece]] = field(default_factory=dict)
    slowed: list[SlowedBy] = field(default_factory=list)
    events: int = 0
    makespan_s: float = 0.0  # latest end over all classes
    step_s: float = 0.0  # from one step to the next

    @classmethod
    def empty(cls, programs: Programs) -> Record:
        sizes = [len(program.ops) for program in programs.classes]
        return cls(
            programs,
            [[None] * n for n in sizes],
            [[None] * n for n in sizes],
            [[None] * n for n in sizes],
            [[None] * n for n in sizes],
        )

    def of_class(self, r: int) -> Times:
        """Its start, begin, end and source, to be filled."""
        return self.start[r], self.begin[r], self.end[r], self.source[r]

    def add_piece(self, r: int, i: int, piece: Piece) -> None:
        """How op ``i``, a segment, went on."""
        known = self.pieces.get((r, i))
        if known is None:
            self.pieces[r, i] = [piece]
        else:
            known.append(piece)

    def whole(self, r: int, i: int) -> SegmentRun | None:
        """How op ``i``, a segment, ran, if all of it did as a whole at once."""
        pieces = self.pieces.get((r, i), ())
        return pieces[0].run if len(pieces) == 1 and isinstance(pieces[0], Stretch) else None

    def close(self, events: int) -> None:
        """The replay is over. Raises RuntimeError naming what waits for ever when not all ops have ended."""
        self.events = events
        self._check_finished()
        self.makespan_s = max((t for ends in self.end for t in ends if t is not None), default=0.0)
        self.step_s = step_seconds(self)

    def times(self, r: int, i: int) -> tuple[float, float, float]:
        """(start, begin, end) of an op that has run."""
        start, begin, end = self.start[r][i], self.begin[r][i], self.end[r][i]
        assert start is not None
        assert begin is not None
        assert end is not None
        return start, begin, end

    def _check_finished(self) -> None:
        stuck = []
        for r, ends in enumerate(self.end):
            missing = [i for i, t in enumerate(ends) if t is None]
            if missing:
                op = self.programs.classes[r].ops[missing[0]]
                stuck.append(f"class {r} at op {missing[0]} ({op.name} {op.action}, stream {op.stream})")
        if stuck:
            raise RuntimeError("deadlock: " + "; ".join(stuck[:8]))
