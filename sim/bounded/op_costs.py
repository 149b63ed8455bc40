"""What the ops of programs do: their transfers, and the least speed of their kernels beside others.

Knows programs. A program that several classes share is read once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...kernels.gemm import IN_TWO_PASSES
from ..program.program import Collective, Compute, Exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..network.transfer import Transfer
    from ..program.program import Programs, Work


def each_transfer(programs: Programs) -> Iterator[Transfer]:
    """What collectives and messages send."""
    for work in _each_work(programs):
        if isinstance(work, Exchange):
            yield from (part.transfer for part in work.parts)
        elif isinstance(work, Collective):
            yield work.transfer


def least_speed(programs: Programs) -> float:
    """The part of its speed that a kernel which needs all SMs keeps while any SM is held; 1 where there is
    none."""
    stays = any(isinstance(work, Compute) and work.static_schedule for work in _each_work(programs))
    return IN_TWO_PASSES if stays else 1.0


def _each_work(programs: Programs) -> Iterator[Work]:
    for program in {id(one): one for one in programs.classes}.values():
        yield from (op.work for op in program.each_op())
