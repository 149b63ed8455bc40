"""Context parallelism: a sequence cut over ranks, and what moves so that every query meets its keys.

A rank holds two of 2 cp slices, one from either end, so that a causal mask leaves all ranks the same work.
``p2p``: keys and values go around a ring while the part at hand is attended to. ``all_gather``: they are
gathered first, not overlapped. ``a2a`` (Ulysses): heads are exchanged for tokens before and after; beside
one of the others where only ``cp_a2a`` neighbours do it (hierarchical). Knows what is exchanged when;
the attention kernels themselves are attention_core's. What a ring copies besides is in context_copies.py,
what torch does in place of the first two in context_torch.py.

References:
    Liu et al. 2023, arXiv:2310.01889 (ring attention). Jacobs et al. 2023, arXiv:2309.14509 (Ulysses).
    Dubey et al. 2024, arXiv:2407.21783, section 3.3.2 (all-gather).
    TransformerEngine, attention/dot_product_attention/context_parallel.py (AttnFuncWithCPAndKVP2P,
    AttnFuncWithCPAndKVAllGather, AttnFuncWithCPAndQKVOA2A).
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .context_copies import (
    COPY,
    exchange_launches,
    halve_sums,
    merge_outputs,
    output_bytes,
)
from .context_tiles import AttentionKernel, ContextTile, tiles_of
from .context_torch import torch_backward, torch_forward, torch_received_bytes
from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def context_forward(builder: LayerBuilder, attend: AttentionKernel) -> None:
    """Append the attention of this rank's queries to the keys of all ranks, with what brings these here;
    ``attend`` appends the attention kernel of one tile."""
    local, software = builder.local, builder.software
    inside = _exchanged(local)
    _exchange_heads(builder, local.qkv_width, "QKV all_to_all")
    if inside.cp == 1:
        attend(builder.on(inside), ContextTile(queries=inside.sequence, keys=inside.sequence, causal=True))
    elif software.exchange.cp_engine == "torch":
        torch_forward(builder.on(inside), _ring(local), attend)
    elif software.exchange.cp_comm == "all_gather":
        builder.collective(_ring(local), "KV all_gather", "all_gather", inside.cp * inside.kv_bytes)
        attend(builder.on(inside), _gathered(inside))
    else:
        _ring_forward(builder.on(inside), _ring(local), attend)
    _exchange_heads(builder, local.attention_width, "attention output all_to_all")


def context_backward(builder: LayerBuilder, attend: AttentionKernel) -> None:
    """Append the gradients of queries, keys and values, with what carries gradients of other ranks' keys and
    values back to these; ``attend`` appends the attention kernel of one tile."""
    local, software = builder.local, builder.software
    inside = _exchanged(local)
    _exchange_heads(builder, local.attention_width, "attention output gradient all_to_all")
    if inside.cp == 1:
        attend(builder.on(inside), ContextTile(queries=inside.sequence, keys=inside.sequence, causal=True))
    elif software.exchange.cp_engine == "torch":
        torch_backward(builder.on(inside), _ring(local), attend)
    elif software.exchange.cp_comm == "all_gather":
        whole = inside.cp * inside.kv_bytes
        builder.collective(_ring(local), "KV all_gather", "all_gather", whole)
        attend(builder.on(inside), _gathered(inside))
        builder.collective(_ring(local), "KV gradient reduce_scatter", "reduce_scatter", whole)
    else:
        _ring_backward(builder.on(inside), _ring(local), attend)
    _exchange_heads(builder, local.qkv_width, "QKV gradient all_to_all")


def received_bytes(local: LocalShape, software: Software) -> tuple[float, float]:
    """Bytes that forward and backward hold during attention for keys and values of other ranks.

    A ring receives into a new buffer at every step of forward (TransformerEngine's p2p_comm_buffers), and
    into two of keys and values with their gradients in backward; the first of each is the rank's own, packed.
    Gathered ones are there whole, in backward with their gradients. Heads exchanged for tokens are there
    before and after, as is what backward makes of them.
    """
    inside = _exchanged(local)
    whole = inside.cp * inside.kv_bytes
    twice = float(local.tokens * local.qkv_width * local.element_bytes) if local.cp_a2a > 1 else 0.0
    if inside.cp == 1:
        return twice, twice
    if software.exchange.cp_engine == "torch":
        gathers = software.exchange.cp_comm == "all_gather"
        forward, backward = torch_received_bytes(inside, gathers=gathers)
        return twice + forward, twice + backward
    return twice + whole, twice + (
        2 * whole if software.exchange.cp_comm == "all_gather" else 4 * inside.kv_bytes
    )


def _exchanged(local: LocalShape) -> LocalShape:
    """The local shape of attention once heads have been exchanged for tokens: more of the sequence, and fewer
    heads."""
    a2a = local.cp_a2a
    kv_heads = max(1, local.kv_heads // a2a)
    return local.with_(cp=local.cp // a2a, cp_a2a=1, heads=local.heads // a2a, kv_heads=kv_heads)


def _exchange_heads(builder: LayerBuilder, width: int, name: str) -> None:
    local = builder.local
    if local.cp_a2a > 1:
        axis = "cp" if local.cp_a2a == local.cp else "cp.heads"
        builder.collective(axis, name, "all_to_all", float(local.tokens * width * local.element_bytes))


def _ring(local: LocalShape) -> str:
    return "cp" if local.cp_a2a == 1 else "cp.ring"


def _gathered(local: LocalShape) -> ContextTile:
    return ContextTile(queries=local.sequence // local.cp, keys=local.sequence, causal=True)


def _ring_forward(builder: LayerBuilder, ring: str, attend: AttentionKernel) -> None:
    """The next part's keys and values are on their way while this part's are attended to."""
    local, tiles = builder.local, tiles_of(builder.local)
    builder.memory("KV packed", COPY * local.kv_bytes)
    arrived: int | None = None
    for step, tile in enumerate(tiles):
        posted = builder.last_kernel() if arrived is None else arrived
        if arrived is not None:
            builder.join(arrived)
        if step < local.cp - 1:
            arrived = _pass_on(builder, ring, "KV exchange", local.kv_bytes, after=posted)
        attend(builder, tile)
    merge_outputs(builder, tiles)


def _ring_backward(builder: LayerBuilder, ring: str, attend: AttentionKernel) -> None:
    """Key gradients follow their keys one step behind; the last step sends gradients only."""
    local = builder.local
    tiles = tiles_of(local)
    own = tiles[0].queries
    halve_sums(builder, tiles[0])
    builder.memory("KV copy", COPY * local.kv_bytes)
    arrived: int | None = None
    for step, tile in enumerate(reversed(tiles)):
        if arrived is not None:
            builder.join(arrived)
        # what is sent: the keys while a next step needs them, gradients once there are any
        parts = (step < local.cp - 1) + (step > 0)
        arrived = _pass_on(builder, ring, "KV and gradient exchange", parts * local.kv_bytes)
        attend(builder, tile)
        passes, verb = (3.0, "add") if step else (COPY, "copy")  # of two read, or one
        builder.memory(f"dQ {verb}", passes * output_bytes(local, tile.queries))
        builder.memory(f"dKV {verb}", passes * local.kv_bytes * tile.keys / own)
    assert arrived is not None
    builder.join(arrived)


def _pass_on(
    builder: LayerBuilder, ring: str, name: str, payload_bytes: float, *, after: int | None = None
) -> int:
    """A step of the ring, which kernels run beside. Returns its index."""
    launches = exchange_launches(builder.local, builder.software)
    return builder.collective(
        ring, name, "neighbours", payload_bytes, after=after, wait=False, launches=launches
    )
