"""What TransformerEngine's ring of context parallelism copies and puts right around its attention kernels.

Keys and values are packed before they travel, the sums of all softmaxes kept in 64 bit, outputs written anew
by them, gradients gathered in buffers of their own. All of these are kernels of torch's, launched one by one:
they move little, and cost the host more than attention does. Halves of a sequence are no copies: in Megatron
core's layout, whose first axis is the sequence, a half lies together, and ``contiguous`` gives it as it is.
Knows what is copied; which tile is attended to when is context.py's.

References:
    TransformerEngine pytorch/dot_product_attention/context_parallel.py at 4790d3d4 (2.3),
    AttnFuncWithCPAndKVP2P.forward and backward, flash_attn_p2p_communicate; Megatron core's layout is sbhd.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .context_tiles import ContextTile
from .layer_builder import LayerBuilder
from .local_shape import LocalShape

COPY = 2.0
"""Passes over a tensor that is copied: read, written."""

CAST_SUMS, HALF_SUMS = 12.0, 4.0
"""Bytes for each query and head of log-sum-exps: cast from 64 to 32 bit; of half the queries, made contiguous
for the tiles of backward that take no others."""


def exchange_launches(local: LocalShape, software: Software) -> float:
    """What a step of the ring costs the host, in launches: a send and a receive, each a call of its own where
    they are not batched (``batch_p2p_comm``: two ranks, before Blackwell)."""
    batched = local.cp == 2 and local.batches_pairs
    return software.host.launches_per_collective * (1 if batched else 2)


def output_bytes(local: LocalShape, queries: int) -> float:
    """Bytes of the attention output of so many ``queries`` of each sequence on this rank."""
    return float(local.batch * queries * local.attention_width * local.element_bytes)


def beside_tiles(local: LocalShape) -> int:
    """Launches of kernels that run beside the tiles of forward, and so cost the host alone.

    Tiles take turns on two streams, so that what keeps the sums of one passes while the attention of the next
    runs: two kernels for the first sums, one for each correction.
    """
    return 2 + (local.cp - 1)


def merge_outputs(builder: LayerBuilder, tiles: list[ContextTile]) -> None:
    """Append the kernels that make one output of those of all ``tiles``: the first is written anew, and each
    later one is added, scaled by the final sums of its softmax."""
    local = builder.local
    first, *later = tiles
    launches = 1 + beside_tiles(local)
    builder.memory("softmax sums cast", CAST_SUMS * _sums(local, first), counted=launches)
    builder.memory("attention output begun", COPY * output_bytes(local, first.queries))
    for tile in later:  # read two outputs, write one
        builder.memory("attention correction", 3.0 * output_bytes(local, tile.queries))


def halve_sums(builder: LayerBuilder, tile: ContextTile) -> None:
    """Append the copy of the softmax sums of the second half of the queries, which backward reads for tiles
    of half the queries."""
    builder.memory("half of softmax sums", HALF_SUMS * _sums(builder.local, tile))


def _sums(local: LocalShape, tile: ContextTile) -> float:
    return float(local.batch * tile.queries * local.heads)
