"""Which link bound the communication of which axis, and for how long: from the record of a replay.

A communication moves at its own ceiling, which one tier of a lone group's links sets (nvlink, nic, ...), or
slower where it shares a link that is full: a port with others of its rank, or a link of the fabric. Seconds
are of moving, without latencies, added up over a step and averaged over ranks; what overlaps counts each by
itself. Messages count where they are sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..network.transfer import Transfer
from ..program.program import Collective, Exchange, Op, Program, Programs
from ..result.step import Bound
from .record import Record, SlowedBy


def bounds(record: Record, counts: Sequence[int]) -> tuple[Bound, ...]:
    """By axis and link, the longest of each axis first; ``counts`` are the ranks of each class."""
    found: dict[tuple[str, str], float] = {}
    ranks = sum(counts)

    def add(axis: str, link: str, seconds: float) -> None:
        found[axis, link] = found.get((axis, link), 0.0) + seconds / ranks

    axes: dict[str | None, str] = {None: "pp"}
    for program, classes in _by_program(record.programs).values():
        count = sum(counts[r] for r in classes)
        names: dict[str, str] = {}
        for op, times in program.counted_ops():
            if isinstance(op.work, Collective):
                names[op.work.communicator] = op.category
            for transfer in _moved(op):
                if transfer.bytes and transfer.ceiling_bytes_per_s:
                    at_ceiling_s = transfer.bytes / transfer.ceiling_bytes_per_s
                    add(op.category, transfer.binding or "its own pace", times * count * at_ceiling_s)
        for binding in map(record.programs.binding, classes):
            axes |= {binding.communicators.get(name, name): axis for name, axis in names.items()}
    for slowed in record.slowed:
        for sender, _ in slowed.ends:
            axis, count = axes[slowed.between], counts[sender]
            add(axis, _tier(slowed), count * slowed.seconds)
            add(axis, slowed.binding or "its own pace", -count * slowed.bytes / slowed.ceiling)
    least = 1e-9 * max(found.values(), default=0.0)
    rows = [Bound(axis=axis, link=link, seconds=s) for (axis, link), s in found.items() if s > least]
    return tuple(sorted(rows, key=lambda bound: (bound.axis, -bound.seconds, bound.link)))


def _tier(slowed: SlowedBy) -> str:
    """A link of the fabric by its name; a rank's own port by its tier."""
    if isinstance(slowed.link, tuple):
        return f"{str(slowed.link[1]).split('.')[0]}, shared"
    return str(slowed.link)


def _by_program(programs: Programs) -> dict[int, tuple[Program, list[int]]]:
    """Each distinct program, with the classes that run it."""
    found: dict[int, tuple[Program, list[int]]] = {}
    for r, program in enumerate(programs.classes):
        found.setdefault(id(program), (program, []))[1].append(r)
    return found


def _moved(op: Op) -> Iterator[Transfer]:
    if isinstance(op.work, Collective):
        yield op.work.transfer
    elif isinstance(op.work, Exchange):
        yield from (part.transfer for part in op.work.parts if part.send)
