"""The shape of a transformer, in Megatron-LM's words.

Knows the sizes that decide parameters, FLOPs and activations, and the defaults that follow from
them. Does not know how the model is split over GPUs: only the padding of the vocabulary depends on
the layout, and ``padded_for`` does it, by a multiple that the software decides.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from ....hardware.fields import Count, Flag, Layers, LayersOrZero, Text, ZeroOrOne, number, whole

Mlp = Literal["gelu", "swiglu", "relu2"]
AttentionKind = Literal["mha", "gqa", "mla"]
Norm = Literal["layernorm", "rmsnorm"]
Position = Literal["rope", "learned", "none"]

Width = Annotated[int, *whole(1, 10_000_000)]
WidthOrZero = Annotated[int, *whole(0, 10_000_000)]
"""Rows or columns of a weight; the widest published MLPs have some hundred thousand."""
HeadWidth = Annotated[int, *whole(1, 65_536)]
Heads = Annotated[int, *whole(1, 65_536)]
Experts = Annotated[int, *whole(1, 65_536)]
Residual = Annotated[int, *whole(2, 10_000_000)]
"""A norm over a single value is a constant."""
Vocabulary = Annotated[int, *whole(2, 100_000_000)]
"""With one token alone there is nothing to predict."""
Predicted = Annotated[int, *whole(0, 100)]
"""Tokens that a model predicts beyond the next; published ones have up to eight."""


def _no_rank(value: Any) -> Any:
    return None if value == "none" or (value == 0 and not isinstance(value, bool)) else value


QueryRank = Annotated[
    Width | None,
    BeforeValidator(_no_rank, json_schema_input_type=WidthOrZero | Literal["none"] | None),
]
"""A low rank of queries, or None, which trainers write as null (Hugging Face), or 0 (MaxText)."""

_FROZEN = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

# GPT-3, Llama and Nemotron-4 as published: what else their MLP implies.
_FAMILY_DEFAULTS: dict[str, dict[str, Any]] = {
    "gelu": {"norm": "layernorm", "position": "learned", "biases": True, "dropout": 0.1},
    "swiglu": {"norm": "rmsnorm", "position": "rope", "biases": False, "dropout": 0.0},
    "relu2": {"norm": "layernorm", "position": "rope", "biases": False, "dropout": 0.0},
}


class Moe(BaseModel):
    """Routed experts. ``shared_expert_ffn_hidden_size`` is the total width of all shared experts.

    ``capacity_factor`` None is dropless; a number drops what is beyond an expert's capacity, and pads
    every expert to it. The first ``num_dense_layers`` are dense; after them every ``layer_freq``-th layer
    has experts, the first of them at once. Or ``layer_freq`` is a 1 for each layer with experts and a 0 for
    each without (Megatron-LM, ``--moe-layer-freq``). ``node_limit`` is the most hosts that a token's experts
    may be on (DeepSeek-V3, arXiv:2412.19437 section 2.1.2).
    """

    model_config = _FROZEN

    num_experts: Experts = Field(description="routed experts of a layer", examples=[256])
    topk: Experts = Field(description="experts that a token goes to", examples=[8])
    expert_ffn_hidden_size: Width = Field(description="width of one expert", examples=[2048])
    num_shared_experts: Annotated[int, *whole(0, 65_536)] = Field(
        default=0, description="experts that every token goes to"
    )
    shared_expert_ffn_hidden_size: WidthOrZero = Field(
        default=0, description="width of all of those together"
    )
    num_dense_layers: LayersOrZero = Field(default=0, description="first layers, which have no experts")
    capacity_factor: Annotated[float, number(gt=0, le=65_536)] | None = Field(
        default=None, description="tokens that an expert takes over its even share; default: all (dropless)"
    )
    layer_freq: Annotated[
        Annotated[Layers, Tag("~count")] | Annotated[tuple[ZeroOrOne, ...], Tag("~layers")],
        Discriminator(lambda value: "~layers" if isinstance(value, list | tuple) else "~count"),
    ] = Field(default=1, description="each layer of that number has experts, or a 1 or 0 for each layer")
    node_limit: Count | None = Field(
        default=None, description="hosts that the experts of a token may be on; default: all"
    )

    @model_validator(mode="after")
    def _topk_in_range(self) -> Moe:
        if self.topk > self.num_experts:
            raise ValueError(f"topk {self.topk} is more than num_experts {self.num_experts}")
        if isinstance(self.layer_freq, tuple) and (self.num_dense_layers or not any(self.layer_freq)):
            raise ValueError(
                f"layer_freq {list(self.layer_freq)} says which layers have experts: one at least,"
                " and num_dense_layers is to be left out"
            )
        return self


class Mla(BaseModel):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 section 2.1).

    ``q_lora_rank`` None: one matrix projects queries, without a latent and its norm (DeepSeek-V2-Lite).
    """

    model_config = _FROZEN

    kv_lora_rank: Width = Field(description="width that keys and values are compressed to", examples=[512])
    q_lora_rank: QueryRank = Field(
        default=None, description="width that queries are compressed to; none, null or 0: they are not"
    )
    qk_nope_head_dim: HeadWidth = Field(description="head dimension without position", examples=[128])
    qk_rope_head_dim: HeadWidth = Field(description="head dimension with position", examples=[64])
    v_head_dim: HeadWidth = Field(description="head dimension of values", examples=[128])

    @property
    def qk_head_dim(self) -> int:
        """Head dimension of queries and keys."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim


class Model(BaseModel):
    """A decoder-only transformer.

    ``ffn_hidden_size`` is the width of one branch (SwiGLU has two input branches).
    ``vocab_size`` is the true vocabulary. The embedding table and the head have ``padded_vocab_size`` rows,
    which ``padded_for`` makes of it by ``make_vocab_size_divisible_by``; without either it is not padded.
    Left out, ``num_query_groups`` and ``kv_channels`` follow from the heads, ``attention`` from
    both, and ``norm``, ``position``, ``biases`` and ``dropout`` from ``mlp``.
    """

    model_config = _FROZEN

    name: Text = Field(default="custom", description="how results call it")
    num_layers: Layers = Field(description="transformer layers", examples=[96])
    hidden_size: Residual = Field(description="width of the residual stream", examples=[12288])
    num_attention_heads: Heads = Field(description="query heads", examples=[96])
    num_query_groups: Heads = Field(description="key and value heads; default: num_attention_heads")
    kv_channels: HeadWidth = Field(
        description="head dimension; default: hidden_size / num_attention_heads, where that is whole"
    )
    ffn_hidden_size: Width = Field(description="width of one branch of the MLP", examples=[49152])
    vocab_size: Vocabulary = Field(description="tokens of the vocabulary", examples=[50257])
    make_vocab_size_divisible_by: Width | None = Field(
        default=None,
        description="pad vocab_size to a multiple of this times tp; default: as the software does",
        examples=[128],
    )
    padded_vocab_size: Vocabulary | None = Field(
        default=None,
        description="rows of the embedding table; default: vocab_size, padded",
        examples=[51200],
    )
    mlp: Mlp = Field(description="gelu and relu2 have two matrices, swiglu has three", examples=["swiglu"])
    tied_embeddings: Flag = Field(default=False, description="logits share the embedding table")
    attention: AttentionKind = Field(
        description="default: mla if that block is given, else by num_query_groups"
    )
    norm: Norm = Field(description="default: by mlp (rmsnorm for swiglu, else layernorm)")
    position: Position = Field(description="default: by mlp (learned for gelu, else rope)")
    biases: Flag = Field(description="biases of all linear layers; default: by mlp (true for gelu)")
    dropout: Annotated[float, number(ge=0, lt=1)] = Field(
        description="share that is dropped; default: by mlp (0.1 for gelu, else 0)"
    )
    moe: Moe | None = Field(default=None, description="routed experts; default: a dense model")
    mla: Mla | None = Field(default=None, description="multi-head latent attention; default: none")
    mtp_layers: Predicted = Field(default=0, description="multi-token prediction layers")
    sliding_window: Count | None = Field(
        default=None, description="keys that a query sees in layers with a window", examples=[128]
    )
    full_attention_every: LayersOrZero = Field(
        default=0,
        description="with sliding_window: each layer of that number sees all keys (2: every second); 0: none",
    )
    qkv_biases: Flag = Field(default=False, description="biases of queries, keys and values alone (Qwen2)")
    qk_norm: Flag = Field(
        default=False, description="each head's queries and keys are normed before their positions (Qwen3)"
    )
    clamped_gate: Flag = Field(
        default=False, description="both inputs of a gated activation are clamped before it (GPT-OSS)"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, fields: Any) -> Any:
        return with_defaults(fields) if isinstance(fields, dict) else fields

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        heads, groups = self.num_attention_heads, self.num_query_groups
        if heads % groups:
            raise ValueError(f"num_query_groups {groups} must divide num_attention_heads {heads}")
        if self.padded_vocab_size is not None and self.padded_vocab_size < self.vocab_size:
            raise ValueError(
                f"padded_vocab_size {self.padded_vocab_size} is less than vocab_size {self.vocab_size}"
            )
        if (self.attention == "mla") != (self.mla is not None):
            raise ValueError("attention mla and the block mla go together: give both or neither")
        if self.attention == "mha" and groups != heads:
            raise ValueError(
                f"attention is mha, but num_query_groups {groups} is not num_attention_heads {heads}"
            )
        if self.qk_norm and self.mla is not None:
            raise ValueError("qk_norm is not for mla, whose latents are normed in any case")
        if self.clamped_gate and self.mlp != "swiglu":
            raise ValueError(f"clamped_gate needs a gated activation, and mlp is {self.mlp}")
        if self.full_attention_every and self.sliding_window is None:
            raise ValueError(
                "full_attention_every needs sliding_window: without it every layer sees all keys"
            )
        if self.moe and self.moe.num_dense_layers > self.num_layers:
            raise ValueError(
                f"moe.num_dense_layers {self.moe.num_dense_layers} exceeds num_layers {self.num_layers}"
            )
        pattern = self.moe.layer_freq if self.moe else 1
        if isinstance(pattern, tuple) and len(pattern) != self.num_layers:
            raise ValueError(
                f"moe.layer_freq names {len(pattern)} layers, but num_layers is {self.num_layers}"
            )
        return self

    def has_experts(self, layer: int) -> bool:
        """Whether that layer, counted from 0, has experts in place of an MLP."""
        moe = self.moe
        if moe is not None and isinstance(moe.layer_freq, tuple):
            return bool(moe.layer_freq[layer])
        return (
            moe is not None
            and not isinstance(moe.layer_freq, tuple)
            and layer >= moe.num_dense_layers
            and (layer - moe.num_dense_layers) % moe.layer_freq == 0
        )

    def window_of(self, layer: int) -> int | None:
        """Keys that a query sees in that layer, counted from 0; None is all."""
        every = self.full_attention_every
        return None if every and (layer + 1) % every == 0 else self.sliding_window

    @property
    def qk_head_dim(self) -> int:
        """Head dimension of queries and keys."""
        return self.mla.qk_head_dim if self.mla else self.kv_channels

    @property
    def v_head_dim(self) -> int:
        """Head dimension of values."""
        return self.mla.v_head_dim if self.mla else self.kv_channels

    @property
    def table_at_both_ends(self) -> bool:
        """Whether both ends of the model use the word table: it is tied, or there is multi-token
        prediction."""
        return self.tied_embeddings or self.mtp_layers > 0

    @property
    def embedding_rows(self) -> int:
        """Rows of the embedding table and of the head, over all TP ranks: what parameters and FLOPs count."""
        return self.padded_vocab_size or self.vocab_size

    def padded_for(self, tp: int) -> Model:
        """This model with its vocabulary padded to a multiple of ``make_vocab_size_divisible_by * tp``.

        ``padded_vocab_size`` stays as it is where it is stated. Megatron-LM tokenizer.py,
        vocab_size_with_padding.
        """
        if self.make_vocab_size_divisible_by is None or self.padded_vocab_size is not None:
            return self
        multiple = self.make_vocab_size_divisible_by * tp
        rows = -(-self.vocab_size // multiple) * multiple
        return self if rows == self.vocab_size else self.model_copy(update={"padded_vocab_size": rows})


def with_defaults(fields: dict[str, Any]) -> dict[str, Any]:
    """``fields`` and what follows from them; what is missing or wrong is left for the model to report."""
    filled = dict(_FAMILY_DEFAULTS.get(str(fields.get("mlp")), {}))
    filled.update((key, value) for key, value in fields.items() if value is not None)
    heads, hidden = filled.get("num_attention_heads"), filled.get("hidden_size")
    if isinstance(heads, int) and heads > 0:
        filled.setdefault("num_query_groups", heads)
        if isinstance(hidden, int) and hidden % heads == 0:
            filled.setdefault("kv_channels", hidden // heads)
    if "mla" in filled:
        filled.setdefault("attention", "mla")
    filled.setdefault("attention", "mha" if filled.get("num_query_groups") == heads else "gqa")
    return filled
