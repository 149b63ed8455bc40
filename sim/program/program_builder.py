"""Writes a rank's program: appends ops and repeated blocks, and knows what the next kernel awaits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .program import Op, RepeatedBlocks, Work


@dataclass
class ProgramBuilder:
    """A program being written. ``awaited`` are ops that the next op on the compute stream waits for."""

    ops: list[Op] = field(default_factory=list)
    awaited: set[int] = field(default_factory=set)
    last_compute: int = -1

    def compute(
        self,
        name: str,
        work: Work,
        *,
        category: str = "compute",
        action: str = "",
        host_s: float = 0.0,
        host_sync: bool = False,
    ) -> int:
        """Append to the compute stream, after everything awaited."""
        after = self._awaited() if self.awaited else ()
        self.last_compute = len(self.ops)
        self.ops.append(Op(name, "compute", category, work, after, action, host_s, host_sync))
        return self.last_compute

    def on_stream(
        self,
        name: str,
        stream: str,
        category: str,
        work: Work,
        *,
        after: tuple[int, ...] | None = None,
        host_s: float,
        host_sync: bool = False,
    ) -> int:
        """Append to another stream, after ``after`` or else all that the compute stream has done so far."""
        deps = self.frontier() if after is None else after
        return self._append(Op(name, stream, category, work, deps, "", host_s, host_sync))

    def frontier(self) -> tuple[int, ...]:
        """Everything issued that a new piece of work on the compute stream would wait for."""
        last = () if self.last_compute < 0 else (self.last_compute,)
        if not self.awaited:
            return last
        return tuple(sorted(self.awaited.union(last)))

    def wait(self, *indices: int) -> None:
        """Make the next op on the compute stream wait for these ops."""
        self.awaited.update(indices)

    def repeat(self, name: str, pieces: Sequence[RepeatedBlocks], *, action: str) -> int:
        """Append repeated blocks, one op of the compute stream for each piece; the index of the last. The
        host waits for the end of each piece before it issues the next.
        """
        last = pieces[-1]
        if len(pieces) > 1:
            for piece in pieces[:-1]:
                self.compute(name, piece, action=action, host_s=piece.host_s, host_sync=True)
        after = self._awaited() if self.awaited else ()
        self.last_compute = len(self.ops)
        # As ``Op(...)`` does, whose own constructor is a function of Python: most ops are written here.
        self.ops.append(
            tuple.__new__(Op, (name, "compute", "compute", last, after, action, last.host_s, False))
        )
        return self.last_compute

    def _awaited(self) -> tuple[int, ...]:
        """What the next op on the compute stream waits for, which from now on nothing else does."""
        awaited = self.awaited
        after = tuple(awaited) if len(awaited) == 1 else tuple(sorted(awaited))
        awaited.clear()
        return after

    def _append(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1
