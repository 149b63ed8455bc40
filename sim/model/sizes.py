"""How many parameters a model has and how many operations a step takes, as Megatron-LM counts them.

Conventions: a multiply-add is 2 FLOPs; the backward pass takes twice the forward; the logits count,
looking up embeddings, norms and activations do not. Attention is counted over the full square of
scores (``causal=False``) or over half of it. Does not know layouts: counts are of the whole model.

References:
    Narayanan et al. 2021, arXiv:2104.04473 section 5.1 and appendix; Korthikanti et al. 2022,
    arXiv:2205.05198 appendix A.
"""

from __future__ import annotations

from dataclasses import dataclass

from .model import Model

MLP_INPUT_BRANCHES = {"gelu": 1, "relu2": 1, "swiglu": 2}
"""Matrices that read the MLP's input; one more writes its output."""

_FORWARD_AND_BACKWARD = 3


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters by component, all layers together; ``output`` is 0 with tied embeddings."""

    embedding: int
    position: int
    attention: int
    mlp: int
    norms: int
    output: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.embedding + self.position + self.attention + self.mlp + self.norms + self.output


def parameters(model: Model, *, positions: int = 0) -> Parameters:
    """Exact parameter count; ``positions`` are the rows of a learned position table (the longest sequence).

    Raises:
        ValueError: experts or latent attention, which are not counted.
    """
    _require_dense(model)
    h, layers = model.hidden_size, model.num_layers
    branches = MLP_INPUT_BRANCHES[model.mlp]
    attention_biases = qkv_width(model) + h if model.biases else 0
    mlp_biases = branches * model.ffn_hidden_size + h if model.biases else 0
    norm = h if model.norm == "rmsnorm" else 2 * h
    return Parameters(
        embedding=model.vocab_size * h,
        position=positions * h if model.position == "learned" else 0,
        attention=layers * (h * (qkv_width(model) + attention_width(model)) + attention_biases),
        mlp=layers * ((branches + 1) * h * model.ffn_hidden_size + mlp_biases),
        norms=(2 * layers + 1) * norm,
        output=0 if model.tied_embeddings else model.vocab_size * h,
    )


def attention_width(model: Model) -> int:
    """Columns of the attention output: heads times head dimension."""
    return model.num_attention_heads * model.kv_channels


def qkv_width(model: Model) -> int:
    """Columns of queries, keys and values together."""
    return attention_width(model) + 2 * model.num_query_groups * model.kv_channels


def layer_matrix_flops(model: Model, tokens: float) -> float:
    """Forward FLOPs of one layer's weight matrices for ``tokens`` tokens."""
    _require_dense(model)
    attention = qkv_width(model) + attention_width(model)
    mlp = (MLP_INPUT_BRANCHES[model.mlp] + 1) * model.ffn_hidden_size
    return 2.0 * tokens * model.hidden_size * (attention + mlp)


def layer_attention_flops(model: Model, tokens: float, seq_length: int, *, causal: bool = False) -> float:
    """Forward FLOPs of one layer's scores and weighted sum; ``tokens`` is all tokens of all sequences."""
    _require_dense(model)
    full = 4.0 * tokens * seq_length * attention_width(model)
    return full / 2 if causal else full


def logits_flops(model: Model, tokens: float) -> float:
    """Forward FLOPs of the output layer."""
    return 2.0 * tokens * model.hidden_size * model.vocab_size


def model_flops(model: Model, global_batch: int, seq_length: int, *, causal: bool = False) -> float:
    """FLOPs that a step needs, forward and backward, nothing recomputed: what MFU counts.

    >>> from .catalogue import get_model
    >>> round(model_flops(get_model("gpt3-175b"), 64, 2048) / 1e15)  # 72Bslh²(1 + s/6h + V/12lh)
    141
    """
    tokens = float(global_batch * seq_length)
    layer = layer_matrix_flops(model, tokens) + layer_attention_flops(
        model, tokens, seq_length, causal=causal
    )
    return _FORWARD_AND_BACKWARD * (model.num_layers * layer + logits_flops(model, tokens))


def recomputed_flops(
    model: Model,
    global_batch: int,
    seq_length: int,
    *,
    full_layers: int = 0,
    attention_layers: int = 0,
    mlp_layers: int = 0,
    operator_layers: int = 0,
    causal: bool = False,
) -> float:
    """FLOPs of running layers again in the backward pass: what HFU counts besides ``model_flops``.

    ``full_layers`` run whole, ``attention_layers`` only their scores and weighted sum (selective),
    ``mlp_layers`` only their MLP, ``operator_layers`` every second of their matrices (K, the projection
    and a second branch).
    """
    tokens = float(global_batch * seq_length)
    branches = MLP_INPUT_BRANCHES[model.mlp]
    mlp = 2.0 * tokens * model.hidden_size * (branches + 1) * model.ffn_hidden_size
    keys = model.num_query_groups * model.kv_channels
    second = keys + attention_width(model) + (branches - 1) * model.ffn_hidden_size
    attention = layer_attention_flops(model, tokens, seq_length, causal=causal)
    return (
        full_layers * (layer_matrix_flops(model, tokens) + attention)
        + attention_layers * attention
        + mlp_layers * mlp
        + operator_layers * 2.0 * tokens * model.hidden_size * second
    )


def _require_dense(model: Model) -> None:
    for block in ("moe", "mla"):
        if getattr(model, block) is not None:
            raise ValueError(f"model.{block}: sizes of models with {block} are not counted yet")
