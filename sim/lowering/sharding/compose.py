"""Blocks with collectives of sharded data parallelism around them: gathered before, prefetched beside.

A layer waits for its parameters; while it runs, those of the next are gathered and the gradients of the
one before are reduced; and the next layer begins when all of that is there. torch has it so: one prefetch
ahead, and one reduction in flight. So a block with its collectives is a block, and a run of equal layers
is replayed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...program.program import Block, Op
from ..layers.layer_builder import LayerBuilder


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
    overlapping: tuple[Op, ...] = ()
    copies_out: float = 0.0
    copies_in: float = 0.0
    early: bool = False


@dataclass
class Composer:
    """Composed blocks, each distinct one once."""

    begin: Callable[[], LayerBuilder]
    """An empty block of this machine."""
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
        builder = self.begin()
        builder.ops += around.delayed
        builder.ops += around.reductions
        start = len(builder.ops)
        builder.ops += around.first
        builder.join(*range(start, len(builder.ops)))
        if around.copies_out:
            builder.memory("parameter copy-out", around.copies_out)
        if around.early:
            builder.ops += around.overlapping
        for block in row:
            _append(builder, block)
        if around.copies_in:
            builder.memory("gradient copy-in", around.copies_in)
        if not around.early:
            builder.ops += around.overlapping
        names = " + ".join(block.name for block in row) or "gradients"
        return builder.block(f"{names}, sharded")


def _append(builder: LayerBuilder, block: Block) -> None:
    """The ops of a block, behind all that the builder awaits and all that it has on its streams."""
    base, joined = len(builder.ops), _ends(builder)
    for op in block.ops:
        after = tuple(base + earlier for earlier in op.after) or joined
        builder.ops.append(op._replace(after=after))
    builder.awaited.clear()


def _ends(builder: LayerBuilder) -> tuple[int, ...]:
    """What a block begins after: the awaited ops, the last kernel and the last of each block's streams."""
    last = builder.last_kernel()
    return tuple(sorted({*builder.awaited, *(() if last < 0 else (last,))}))
