"""FLOPs of what of a layer runs again in backward: what HFU counts besides those that a step needs.

Knows the modules and the operators that recomputation names, layer by layer; not which layers run them.
Conventions are those of sizes.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .model import Model
from .sizes import (
    MLP_INPUT_BRANCHES,
    attention_width,
    layer_attention_flops,
    layer_matrix_flops,
    mlp_matrices,
)


def layer_flops_again(
    model: Model,
    tokens: float,
    seq_length: int,
    layer: int,
    *,
    modules: Collection[str] = (),
    keep: Collection[str] | None = None,
    prediction: bool = False,
    causal: bool = False,
) -> float:
    """FLOPs of one recomputation of layer number ``layer``, for ``tokens`` tokens of all sequences.

    ``modules`` run again (``full`` is all of it); or, where ``keep`` is given, all operators but those
    (by_operators). A layer of multi-token ``prediction`` makes its stream of two first.
    """
    attention = layer_attention_flops(model, tokens, seq_length, causal=causal, layer=layer)
    joint = 2 * model.hidden_size**2 if prediction else 0
    if keep is not None:
        matrices = _operators_again(model, layer, joint, keep)
        return 2.0 * tokens * matrices + (0.0 if "attention" in keep else attention)
    if "full" in modules:
        return layer_matrix_flops(model, tokens, layer) + attention + 2.0 * tokens * joint
    again = 2.0 * tokens * _modules_again(model, layer, modules)
    return again + (attention if "core_attn" in modules else 0.0)


def _modules_again(model: Model, layer: int, modules: Collection[str]) -> int:
    """Parameters that a token meets again."""
    moe, mla, total = model.moe, model.mla, 0
    if moe and model.has_experts(layer):
        shared = mlp_matrices(model, moe.shared_expert_ffn_hidden_size)
        visited = moe.topk * mlp_matrices(model, moe.expert_ffn_hidden_size)
        if "moe" in modules:
            total += shared + visited + model.hidden_size * moe.num_experts
        elif "shared_experts" in modules:
            total += shared
    elif "mlp" in modules:
        total += mlp_matrices(model, model.ffn_hidden_size)
    if mla and "mla_up_proj" in modules:
        heads = model.num_attention_heads
        total += mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
        total += (mla.q_lora_rank or 0) * heads * mla.qk_head_dim
    return total


def _operators_again(model: Model, layer: int, joint: int, keep: Collection[str]) -> int:
    """The same of matrix products whose outputs are not kept; the last of an MLP is never needed again."""
    moe = model.moe if model.has_experts(layer) else None
    counted = [*([joint] if joint else []), *_projections(model)]
    width = moe.shared_expert_ffn_hidden_size if moe else model.ffn_hidden_size
    if width:
        counted += [model.hidden_size * width] * MLP_INPUT_BRANCHES[model.mlp]
    every = 1 if "mm" in keep else 2 if "every_second_mm" in keep else 0
    again = sum(size for i, size in enumerate(counted) if not every or i % every)
    if moe:
        again += model.hidden_size * moe.num_experts
        first = MLP_INPUT_BRANCHES[model.mlp] * model.hidden_size * moe.expert_ffn_hidden_size
        again += 0 if "grouped_mm" in keep else moe.topk * first
    return again


def _projections(model: Model) -> Iterator[int]:
    """Parameters of the matrices of attention in the order in which they run."""
    h, heads, mla = model.hidden_size, model.num_attention_heads, model.mla
    if mla is None:
        yield h * attention_width(model)
        yield from (h * model.num_query_groups * model.kv_channels,) * 2
    else:
        queries = heads * mla.qk_head_dim
        yield from (
            (h * queries,) if mla.q_lora_rank is None else (h * mla.q_lora_rank, mla.q_lora_rank * queries)
        )
        yield h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
        yield mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    yield attention_width(model) * h
