"""How long a block takes alone, without replaying it: what a schedule that searches is told of costs.

Streams in order, waits, the latency and the ceiling of each collective; no sharing of links and no SMs
taken from kernels, which only the engine knows (sim/engine).
"""

from __future__ import annotations

from collections.abc import Iterable

from .program import Block, Collective, Compute


def solo_seconds(blocks: Iterable[tuple[Block, int]]) -> float:
    """Seconds of blocks in a row, each so many times."""
    return sum(count * solo_ends(block)[0] for block, count in blocks)


def solo_ends(block: Block) -> tuple[float, float]:
    """When all of a block has ended, and when its last kernel has."""
    ends: list[float] = []
    streams: dict[str, float] = {}
    for op in block.ops:
        start = max((ends[before] for before in op.after), default=0.0)
        end = max(start, streams.get(op.stream, 0.0)) + _op_seconds(op.work)
        streams[op.stream] = end
        ends.append(end)
    return max(ends, default=0.0), streams.get("compute", 0.0)


def _op_seconds(work: object) -> float:
    if isinstance(work, Compute):
        return work.seconds
    assert isinstance(work, Collective), "a layer's block holds kernels and collectives"
    return work.transfer.solo_s
