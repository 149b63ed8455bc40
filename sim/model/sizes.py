"""How many parameters a model has and how many operations a step takes, as Megatron-LM counts them.

Conventions: a multiply-add is 2 FLOPs; the backward pass takes twice the forward; the logits count,
looking up embeddings, norms and activations do not. Attention is counted over the full square of
scores (``causal=False``) or over half of it, or over what a window leaves of either. Of routed experts
those that a token visits count, and the router. Does not know layouts: counts are of the whole model.

References:
    Narayanan et al. 2021, arXiv:2104.04473 section 5.1 and appendix; Korthikanti et al. 2022,
    arXiv:2205.05198 appendix A.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .model import Model

MLP_INPUT_BRANCHES = {"gelu": 1, "relu2": 1, "swiglu": 2}
"""Matrices that read the MLP's input; one more writes its output."""

_FORWARD_AND_BACKWARD = 3


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters by component, all layers together; ``output`` is 0 with tied embeddings.

    ``mlp`` has shared experts and routers too, ``experts`` the routed ones, of which a token visits
    ``active_experts``; ``prediction`` is what multi-token prediction adds: whole layers.
    """

    embedding: int
    position: int
    attention: int
    mlp: int
    norms: int
    output: int
    experts: int = 0
    active_experts: int = 0
    prediction: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        trunk = self.embedding + self.position + self.attention + self.mlp + self.norms + self.output
        return trunk + self.experts + self.prediction

    @property
    def active(self) -> int:
        """Those that one token meets; multi-token prediction, which serves training alone, is left out."""
        return self.total - self.experts + self.active_experts - self.prediction


def parameters(model: Model, *, positions: int = 0) -> Parameters:
    """Exact parameter count; ``positions`` are rows of a learned position table (the longest sequence)."""
    h, layers = model.hidden_size, model.num_layers
    with_experts = sum(map(model.has_experts, range(layers)))
    norm = h if model.norm == "rmsnorm" else 2 * h
    latent = (model.mla.q_lora_rank or 0) + model.mla.kv_lora_rank if model.mla else 0
    dense = mlp_matrices(model, model.ffn_hidden_size) + _mlp_biases(model, model.ffn_hidden_size)
    return Parameters(
        embedding=model.embedding_rows * h,
        position=positions * h if model.position == "learned" else 0,
        attention=layers * (attention_matrices(model) + _attention_biases(model)),
        mlp=(layers - with_experts) * dense + with_experts * beside_experts(model),
        norms=layers * (2 * norm + latent) + norm,
        output=0 if model.tied_embeddings else model.embedding_rows * h,
        experts=with_experts * (model.moe.num_experts if model.moe else 0) * expert_parameters(model),
        active_experts=with_experts * (model.moe.topk if model.moe else 0) * expert_parameters(model),
        prediction=model.mtp_layers * _prediction_layer(model, norm, latent, dense),
    )


def _prediction_layer(model: Model, norm: int, latent: int, dense: int) -> int:
    """A layer like the last, a projection of two streams into one, and a norm for each and for the output."""
    held = dense
    if model.moe and model.has_experts(model.num_layers - 1):
        held = beside_experts(model) + model.moe.num_experts * expert_parameters(model)
    attention = attention_matrices(model) + _attention_biases(model)
    return attention + held + 5 * norm + latent + 2 * model.hidden_size**2


def attention_matrices(model: Model) -> int:
    """Parameters of the matrices of one layer's attention."""
    h, mla, heads = model.hidden_size, model.mla, model.num_attention_heads
    if mla is None:
        return h * (qkv_width(model) + attention_width(model))
    queries = heads * mla.qk_head_dim
    rank = mla.q_lora_rank
    down_up = h * queries if rank is None else rank * (h + queries)
    keys = h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    values = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return down_up + keys + values + attention_width(model) * h


def mlp_matrices(model: Model, ffn: int) -> int:
    """Parameters of the matrices of an MLP whose branches are ``ffn`` wide."""
    return (MLP_INPUT_BRANCHES[model.mlp] + 1) * model.hidden_size * ffn


def expert_parameters(model: Model) -> int:
    """Parameters of one routed expert; 0 without any."""
    ffn = model.moe.expert_ffn_hidden_size if model.moe else 0
    return mlp_matrices(model, ffn) + (_mlp_biases(model, ffn) if ffn else 0)


def beside_experts(model: Model) -> int:
    """Parameters of the router and the shared experts of one layer."""
    moe = model.moe
    if moe is None:
        return 0
    return model.hidden_size * moe.num_experts + mlp_matrices(model, moe.shared_expert_ffn_hidden_size)


def _mlp_biases(model: Model, ffn: int) -> int:
    return MLP_INPUT_BRANCHES[model.mlp] * ffn + model.hidden_size if model.biases else 0


def _attention_biases(model: Model) -> int:
    if model.mla is not None:
        return 0
    return (qkv_width(model) if model.biases or model.qkv_biases else 0) + (
        model.hidden_size if model.biases else 0
    )


def attention_width(model: Model) -> int:
    """Columns of the attention output: heads times head dimension."""
    return model.num_attention_heads * (model.mla.v_head_dim if model.mla else model.kv_channels)


def qkv_width(model: Model) -> int:
    """Columns of queries, keys and values together."""
    if model.mla:
        return model.num_attention_heads * (2 * model.mla.qk_head_dim + model.mla.v_head_dim)
    return attention_width(model) + 2 * model.num_query_groups * model.kv_channels


def layer_matrix_flops(model: Model, tokens: float, layer: int | None = None) -> float:
    """Forward FLOPs of the weight matrices of layer number ``layer`` (None: of the last one)."""
    moe = model.moe
    if moe and model.has_experts(model.num_layers - 1 if layer is None else layer):
        mlp = beside_experts(model) + moe.topk * mlp_matrices(model, moe.expert_ffn_hidden_size)
    else:
        mlp = mlp_matrices(model, model.ffn_hidden_size)
    return 2.0 * tokens * (attention_matrices(model) + mlp)


def layer_attention_flops(
    model: Model, tokens: float, seq_length: int, *, causal: bool = False, layer: int | None = None
) -> float:
    """Forward FLOPs of one layer's scores and weighted sum; ``tokens`` is all tokens of all sequences."""
    query = model.mla.qk_head_dim if model.mla else model.kv_channels
    value = model.mla.v_head_dim if model.mla else model.kv_channels
    full = 2.0 * tokens * seq_length * model.num_attention_heads * (query + value)
    window = model.window_of(model.num_layers - 1 if layer is None else layer)
    reach = min(1.0, window / seq_length) if window else 1.0
    visible = full * 2 * reach * (1 - reach / 2)
    return visible / 2 if causal else visible


def logits_flops(model: Model, tokens: float) -> float:
    """Forward FLOPs of the output layer."""
    return 2.0 * tokens * model.hidden_size * model.embedding_rows


def model_flops(model: Model, global_batch: int, seq_length: int, *, causal: bool = False) -> float:
    """FLOPs that a step needs, forward and backward, nothing recomputed: what MFU counts.

    >>> from .catalogue import get_model
    >>> round(model_flops(get_model("gpt3-175b"), 64, 2048) / 1e15)  # 72Bslh²(1 + s/6h + V/12lh)
    141
    """
    tokens = float(global_batch * seq_length)
    layers = _layers_flops(model, tokens, seq_length, causal=causal)
    last = layer_matrix_flops(model, tokens) + layer_attention_flops(model, tokens, seq_length, causal=causal)
    joined = 4.0 * tokens * model.hidden_size**2
    predicted = model.mtp_layers * (last + joined + logits_flops(model, tokens))
    return _FORWARD_AND_BACKWARD * (layers + logits_flops(model, tokens) + predicted)


def _layers_flops(model: Model, tokens: float, seq_length: int, *, causal: bool) -> float:
    """Forward FLOPs of all layers; equal ones are counted together."""
    kinds = Counter((model.has_experts(i), model.window_of(i)) for i in range(model.num_layers))
    first = {(model.has_experts(i), model.window_of(i)): i for i in reversed(range(model.num_layers))}
    return sum(
        count
        * (
            layer_matrix_flops(model, tokens, first[kind])
            + layer_attention_flops(model, tokens, seq_length, causal=causal, layer=first[kind])
        )
        for kind, count in kinds.items()
    )
