"""Whether a rank that reaches a collective later can finish sooner because of it: never, if it arrives by
itself.

Kernels are slower while collectives hold SMs or HBM, which they do from the arrival of their rank on. Suppose
that ranks arrive by their own kernels, or directly from the collective before. Then of two replays, the one
that is later at a kernel has no fewer SMs held there, and cannot overtake the other. A rank that arrives
because of something else, such as a message, may gain by arriving later: its kernels run without the
collective meanwhile. Knows programs; replays nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine.scope import issue_times
from ..program.program import Collective, Compute, RepeatedBlocks
from .dependencies import dependencies_of
from .layer_edges import before_in_block

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..program.program import Block, Op, Program, Programs


def holds_follow_kernels(programs: Programs) -> bool:
    """Whether ranks arrive by themselves at all collectives of all programs that hold SMs or HBM."""
    blocks: dict[int, Block] = {}
    for program in {id(one): one for one in programs.classes}.values():
        if not _follow(program.ops, _awaited(program), programs.corun_slowdown):
            return False
        for op in program.ops:
            if isinstance(op.work, RepeatedBlocks):
                blocks.update((id(block), block) for block, _ in op.work.blocks)
    return all(_follow(one.ops, before_in_block(one), programs.corun_slowdown) for one in blocks.values())


def _awaited(program: Program) -> list[list[int]]:
    """For each op, the ops that it waits for, and the one that its host waits for before issuing it."""
    syncs = [sync for sync, _ in issue_times(program.ops)]
    return [
        [*before, *([sync] if sync >= 0 else [])]
        for before, sync in zip(dependencies_of(program), syncs, strict=True)
    ]


def _follow(ops: Sequence[Op], awaited: Sequence[Iterable[int]], corun: float) -> bool:
    """Whether all that a collective waits for has happened whenever a kernel runs that may run beside it, or
    is itself a collective of the same stream."""
    behind: list[int] = []
    for before in awaited:
        mine = 0
        for j in before:
            mine |= behind[j] | 1 << j
        behind.append(mine)
    kernels = [i for i, op in enumerate(ops) if isinstance(op.work, Compute | RepeatedBlocks)]
    for c, op in enumerate(ops):
        if not isinstance(op.work, Collective) or not (op.work.transfer.sms or op.work.transfer.hbm or corun):
            continue
        others = [
            j for j in awaited[c] if not (isinstance(ops[j].work, Collective) and ops[j].stream == op.stream)
        ]
        for k in kernels:
            if behind[c] >> k & 1 or behind[k] >> c & 1:
                continue
            if any(not behind[k] >> j & 1 for j in others):
                return False
    return True
