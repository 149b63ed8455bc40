"""Key and value heads that several tensor-parallel ranks share, where there are more ranks than heads.

Each rank multiplies its even part of the columns of queries, keys and values; the ranks gather all of them
and take their own queries with the head that these read. Backward scatters the sum of their gradients.

Reference: Megatron-LM core/transformer/attention.py (get_query_key_value_tensors where num_query_groups is
below the tensor-parallel size) and core/tensor_parallel/mappings.py (_gather_along_last_dim,
_reduce_scatter_along_last_dim), from Megatron core 0.16 on.
"""

from __future__ import annotations

from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def gather_shared_heads(builder: LayerBuilder) -> None:
    """Append what brings a rank its queries, and the key and value head that it shares, if it shares one."""
    local = builder.local
    if local.kv_sharers == 1:
        return
    whole = _whole_bytes(local)
    builder.tp("QKV all_gather", "all_gather", whole)
    builder.memory("QKV side by side", 2 * whole)  # torch.cat of what came one after the other
    builder.memory("queries of the group", 2 * _group_bytes(local))  # reshape of a slice


def scatter_shared_heads(builder: LayerBuilder) -> None:
    """Append what brings each rank the gradient of the columns that it multiplied, if heads are shared."""
    local = builder.local
    if local.kv_sharers == 1:
        return
    whole = _whole_bytes(local)
    # of each slice: zeros as large as what it was cut from, and the gradient written into them
    builder.memory("gradient of the group", 3 * _group_bytes(local), launches=2)
    builder.memory("gradient of QKV", whole + 2 * _group_bytes(local), launches=2)
    builder.memory("gradients one after the other", 2 * whole)  # torch.cat of the parts of all ranks
    builder.tp("QKV gradient reduce_scatter", "reduce_scatter", whole)


def _whole_bytes(local: LocalShape) -> float:
    """Bytes of the queries, keys and values of all ranks."""
    return float(local.tokens * local.qkv_columns * local.tp * local.element_bytes)


def _group_bytes(local: LocalShape) -> float:
    """Bytes of the queries that read the head which this rank shares."""
    return float(local.tokens * local.heads * local.kv_sharers * local.head_dim * local.element_bytes)
