"""Blocks with collectives of sharded data parallelism around them: gathered before, prefetched beside.

A layer waits for its parameters; while it runs, those of the next are gathered and the gradients of the
one before are reduced; and the next layer begins when all of that is there. torch has it so: one prefetch
ahead, and one reduction in flight. So a block with its collectives is a block, and a run of equal layers
is replayed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...program.program import Block, Op
from ..layers.tape import Costs, Tape


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What runs around blocks: collectives as ops without ``after``, copies as bytes at HBM.

    ``reductions`` and ``delayed`` are of the blocks before; ``first`` must end before the compute starts;
    ``beside`` runs meanwhile. ``copies_out`` precedes the blocks, ``copies_in`` follows them.
    ``early``: the host issues ``beside`` before the blocks (backward), else after them (forward).
    """

    reductions: tuple[Op, ...] = ()
    delayed: tuple[Op, ...] = ()
    first: tuple[Op, ...] = ()
    beside: tuple[Op, ...] = ()
    copies_out: float = 0.0
    copies_in: float = 0.0
    early: bool = False


@dataclass
class Composer:
    """Composed blocks, each distinct one once."""

    costs: Costs
    known: dict[tuple[tuple[Block, ...], Around], Block] = field(default_factory=dict)

    def block(self, inner: Sequence[Block], around: Around) -> Block:
        """``inner`` in a row with ``around`` around them; ``inner`` itself where that is nothing."""
        row = tuple(inner)
        if around == Around(early=around.early) and len(row) == 1:
            return row[0]
        key = row, around
        if key not in self.known:
            self.known[key] = self._composed(row, around)
        return self.known[key]

    def _composed(self, row: tuple[Block, ...], around: Around) -> Block:
        tape = Tape(self.costs)
        tape.ops += around.delayed
        tape.ops += around.reductions
        start = len(tape.ops)
        tape.ops += around.first
        tape.join(*range(start, len(tape.ops)))
        if around.copies_out:
            tape.memory("parameter copy-out", around.copies_out)
        if around.early:
            tape.ops += around.beside
        for block in row:
            _append(tape, block)
        if around.copies_in:
            tape.memory("gradient copy-in", around.copies_in)
        if not around.early:
            tape.ops += around.beside
        names = " + ".join(block.name for block in row) or "gradients"
        return tape.block(f"{names}, sharded")


def _append(tape: Tape, block: Block) -> None:
    """The ops of a block, behind all that the tape awaits and all that it has on its streams."""
    base, joined = len(tape.ops), _ends(tape)
    for op in block.ops:
        after = tuple(base + earlier for earlier in op.after) or joined
        tape.ops.append(replace(op, after=after))
    tape.wait = ()


def _ends(tape: Tape) -> tuple[int, ...]:
    """What a block begins after: the awaited ops, the last kernel and the last of each block's streams."""
    last = tape.last_kernel()
    return tuple(sorted({*tape.wait, *(() if last < 0 else (last,))}))
