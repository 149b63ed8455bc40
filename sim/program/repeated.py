"""Several steps of a job in a row: each begins when all ranks have ended the one before.

Knows programs; knows no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..network.transfer import Transfer
from .program import UNORDERED, Collective, Exchange, Op, Program, Programs, Work

BARRIER = Collective(
    kind="barrier",
    communicator="world",
    transfer=Transfer(latency_s=0.0, bytes=0.0, ceiling_bytes_per_s=math.inf),
)


def repeated(programs: Programs, steps: int) -> Programs:
    """The programs repeated for a number of steps; the host waits for the end of each step, as it does at the
    first."""
    known = {id(program): program for program in programs.classes}
    longer = {key: _repeated(program.ops, steps) for key, program in known.items()}
    return replace(programs, classes=tuple(longer[id(program)] for program in programs.classes))


def _repeated(ops: Sequence[Op], steps: int) -> Program:
    found: list[Op] = []
    last = _last(ops)
    for step in range(steps):
        first = len(found)
        found += (
            op._replace(work=_of_step(op.work, step), after=tuple(first + i for i in op.after)) for op in ops
        )
        after = tuple(first + i for i in last)
        found.append(
            Op(name="step end", stream="compute", category="dp", work=BARRIER, after=after, host_sync=True)
        )
    return Program(ops=tuple(found))


def _last(ops: Sequence[Op]) -> tuple[int, ...]:
    """The ops with which the streams end."""
    last: dict[object, int] = {}
    for i, op in enumerate(ops):
        last[i if op.stream == UNORDERED else op.stream] = i
    return tuple(sorted(last.values()))


def _of_step(work: Work, step: int) -> Work:
    """Messages of different steps have tags of their own."""
    if not isinstance(work, Exchange):
        return work
    return Exchange(tuple(part._replace(tag=f"{part.tag} of step {step}") for part in work.parts))
