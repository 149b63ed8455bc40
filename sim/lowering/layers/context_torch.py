"""Context parallelism as torch has it: tiles around a ring, merged by kernels of their own in 32 bit.

``context_parallel`` stands below scaled_dot_product_attention, which gets keys and values repeated to as many
heads as queries (torchtitan's repeat_kv), so that all of these travel. ``all_gather`` brings them at once,
beside the first tile; else each step passes them on. Gradients of keys go around in 32 bit either way. Knows
what is exchanged and copied when; the attention kernels themselves are attention_core's.

References:
    torch/distributed/tensor/experimental/_attention.py at 2.6 (_templated_ring_attention and its backward,
    _SDPAMerger, _AllGatherRotater, _partial_update; convert_to_f32 is on by default).
    pytorch/torchtitan models/llama/model.py (repeat_kv before the GEMM).
"""

from __future__ import annotations

from .context_tiles import AttentionKernel, tiles_of
from .layer_builder import LayerBuilder
from .local_shape import LocalShape

WIDEN = 6.0
"""Bytes for each element that goes from 16 to 32 bit, or back: read and written."""

MERGE = 32.0
"""Bytes for each element of ``out - sigmoid(...) * (out - tile)`` in 32 bit: two differences of two tensors,
and one product with a column."""

REPLACE = 8.0
"""Bytes for each element that torch.cat copies where half of the rows have changed, in 32 bit."""

ADD = 10.0
"""Bytes for each element of 16 bit that is added to one of 32."""


def torch_forward(builder: LayerBuilder, ring: str, attend: AttentionKernel) -> None:
    """Append the attention of one layer as torch runs it: tile after tile in a ring, each merged in FP32 into
    the output of the tiles before it."""
    local = builder.local
    whole = _outputs(local, local.sequence // local.cp)
    arrived: int | None = None
    for step, tile in enumerate(tiles_of(local)):
        arrived = _exchange_keys(builder, ring, step, arrived)
        attend(builder, tile)
        mine = _outputs(local, tile.queries)
        partly = REPLACE * whole if mine < whole else 0.0
        builder.memory("attention merge", WIDEN * mine + (MERGE * mine + partly if step else 0.0))
    builder.memory("attention output cast", WIDEN * whole)


def torch_backward(builder: LayerBuilder, ring: str, attend: AttentionKernel) -> None:
    """Append the backward of ``torch_forward``: tile after tile. Gradients of keys and values follow these
    around the ring, and are cast when they are back on their own rank."""
    local = builder.local
    elements = repeated_kv_bytes(local) / local.element_bytes
    whole = _outputs(local, local.sequence // local.cp)
    arrived: int | None = None
    gradients: int | None = None
    for step, tile in enumerate(tiles_of(local)):
        arrived = _exchange_keys(builder, ring, step, arrived)
        attend(builder, tile)
        if gradients is not None:
            builder.join(gradients)
        added = (ADD / 2 + REPLACE) * elements if tile.keys < tile.queries else ADD * elements
        builder.memory("dKV add and copy", added + REPLACE * elements)
        gradients = builder.collective(ring, "KV gradient exchange", "neighbours", 4.0 * elements, wait=False)
        builder.memory("dQ add", (ADD / 2 + REPLACE if tile.queries < tile.keys else ADD) * whole)
    assert gradients is not None
    builder.join(gradients)
    builder.memory("dQ and dKV cast", WIDEN * (whole + elements))


def torch_received_bytes(local: LocalShape, *, gathers: bool) -> tuple[float, float]:
    """Bytes that forward and backward hold for keys and values of other ranks, and for sums in 32 bit.

    Gathered keys and values, or one buffer that comes beside one that goes; outputs in 32 bit, before and
    after a merge; gradients of queries, and of keys twice, where they go and come.
    """
    keys = repeated_kv_bytes(local)
    there = (local.cp if gathers else 2) * keys
    sums = 4.0 * _outputs(local, local.sequence // local.cp)
    return there + 2 * sums, there + sums + 4 * keys


def repeated_kv_bytes(local: LocalShape) -> float:
    """Keys and values of this rank, with the heads of its queries."""
    return local.kv_bytes * local.heads / local.kv_heads


def _exchange_keys(builder: LayerBuilder, ring: str, step: int, arrived: int | None) -> int | None:
    """What a step begins with: keys that have come, packed again, and passed on; gathered ones come once."""
    local, keys = builder.local, repeated_kv_bytes(builder.local)
    if arrived is not None:
        builder.join(arrived)
    if step == local.cp - 1:
        return None
    builder.memory("KV copy", 2.0 * keys)
    if builder.software.exchange.cp_comm != "all_gather":
        return builder.collective(ring, "KV exchange", "neighbours", keys, wait=False)
    if step:
        return None
    return builder.collective(ring, "KV all_gather", "all_gather", local.cp * keys, wait=False)


def _outputs(local: LocalShape, queries: int) -> float:
    """Elements of the attention output of so many ``queries`` of each sequence on this rank."""
    return float(local.batch * queries * local.attention_width)
