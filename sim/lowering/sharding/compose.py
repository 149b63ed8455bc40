"""Blocks with the collectives of sharded data parallelism around them.

A layer waits for its parameters. While it runs, those of the next layer are gathered and the gradients of the
one before are reduced, and the next layer begins when all of that has ended. That is torch's rule: one
prefetch ahead, and one reduction in flight. So a block with its collectives is itself a block, and a run of
equal layers is replayed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....kernels.kernel import MemoryBound
from ...program.program import Block, Op
from ..layers.layer_builder import LayerBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What runs around a block of compute: collectives as ops without ``after``, copies out as bytes at HBM,
    and copies in as kernels.

    ``delayed`` and ``reductions`` belong to earlier blocks. The compute waits for ``first``; ``overlapping``
    runs beside it. ``copies_out`` precede the compute and ``copies_in`` follow it. With ``early`` the host
    issues ``overlapping`` before the compute (backward), otherwise after it (forward).
    """

    reductions: tuple[Op, ...] = ()
    delayed: tuple[Op, ...] = ()
    first: tuple[Op, ...] = ()
    overlapping: tuple[Op, ...] = ()
    copies_out: float = 0.0
    copies_in: tuple[MemoryBound, ...] = ()
    early: bool = False


@dataclass
class Composer:
    """Composes blocks with the collectives around them; each distinct one is built once."""

    begin: Callable[[], LayerBuilder]
    """An empty block of this machine."""
    known: dict[tuple[tuple[Block, ...], Around], Block] = field(default_factory=dict)

    def block(self, inner: Sequence[Block], around: Around) -> Block:
        """One block of ``inner`` with ``around`` around it; ``inner`` itself if there is nothing around
        it."""
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
        for copy in around.copies_in:
            builder.kernel("gradient copy-in", copy)
        if not around.early:
            builder.ops += around.overlapping
        names = " + ".join(block.name for block in row) or "gradients"
        return builder.block(f"{names}, sharded")


def _append(builder: LayerBuilder, block: Block) -> None:
    """Append the ops of a block. Those that wait for no other op of the block wait for what the builder
    awaits and for its last kernel."""
    base, joined = len(builder.ops), _ends(builder)
    for op in block.ops:
        after = tuple(base + earlier for earlier in op.after) or joined
        builder.ops.append(op._replace(after=after))
    builder.awaited.clear()


def _ends(builder: LayerBuilder) -> tuple[int, ...]:
    """The ops that the next block waits for: those that the builder awaits, and its last kernel."""
    last = builder.last_kernel()
    return tuple(sorted({*builder.awaited, *(() if last < 0 else (last,))}))
