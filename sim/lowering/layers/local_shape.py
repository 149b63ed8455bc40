"""The sizes of one rank's share of a transformer layer: what tensor and sequence parallelism leave of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ...scenario.machine import gpu_of
from ...scenario.sharding import gradients_last, sharding_rule
from .experts import Experts, experts_of
from .kinds import LayerKind
from .precision import Recipe, WeightBytes, recipe_of, weight_bytes

if TYPE_CHECKING:
    from ...scenario.model.model import Mla, Model
    from ...scenario.models import Scenario
    from ...scenario.software.software import Software

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Bytes per element of activations by precision; inputs of GEMMs may be narrower (precision.py)."""


@dataclass(frozen=True, kw_only=True)
class LocalShape:
    """Sizes of one rank's share of a layer, for one microbatch.

    - Rows: ``batch`` and ``sequence`` are whole; a sequence is a pack of ``documents`` (on average) that do
      not attend to one another. ``tokens`` is b*s/cp, the rows of every GEMM; ``norm_tokens`` the rows of
      norms, residuals and dropout (tokens/tp under sequence parallelism). ``cp_a2a``: ranks of the cp group
      that exchange heads for tokens; ``batches_pairs``: two cp ranks send and receive in one call.
    - Columns: ``heads``, ``kv_heads``, ``ffn`` and ``vocabulary`` are already divided by tp; ``hidden`` is
      whole. ``kv_sharers`` ranks share one key and value head, each with a part of its columns. ``head_dim``
      is that of queries and keys, ``value_dim`` that of values (0: the same). ``gate`` is 2 for SwiGLU (two
      branches on the input), else 1; ``split_gate``: each branch is a matrix of its own.
    - Kind of layer: ``latent`` has the ranks of latent attention, ``window`` the keys that a query sees,
      ``experts`` replaces the MLP; a layer of multi-token ``prediction`` joins two streams into one.
    - Types: ``dtype`` is that of activations, with ``element_bytes``. ``recipe`` says how GEMMs run in fewer
      bits; ``quantised_weights``: weights exist in these bits only; ``quantised_dispatch``: tokens travel to
      experts in them. ``autocast``: parameters and the residual stream are FP32, and GEMMs cast their inputs;
      ``keeps_casts``: casts of sharded parameters are kept for backward.
    - Gradients: ``grad_bytes`` is the size of an element of the gradient that is accumulated and reduced.
      ``accumulates``: fresh gradients are added to whole ones that stay all step long, not to a shard after
      they are reduced. ``finds_none``: the step has one backward, which finds no earlier gradient.
    """

    batch: int
    sequence: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    gate: int
    vocabulary: int
    tp: int
    cp: int
    cp_a2a: int
    sequence_parallel: bool
    element_bytes: int
    grad_bytes: int
    dtype: str
    recipe: Recipe | None
    quantised_weights: bool
    quantised_dispatch: bool
    dropout: bool
    biases: bool
    rope: bool
    rms_norm: bool
    accumulates: bool = True
    finds_none: bool = False
    qkv_biases: bool = False
    qk_norm: bool = False
    clamped_gate: bool = False
    split_gate: bool = False
    value_dim: int = 0
    kv_sharers: int = 1
    latent: Mla | None = None
    window: int | None = None
    experts: Experts | None = None
    prediction: bool = False
    batches_pairs: bool = True
    documents: float = 1.0
    autocast: bool = False
    keeps_casts: bool = False

    def with_(self, **sizes: Any) -> LocalShape:
        """This shape with other ``sizes``.

        Blocks call this all the time, and ``dataclasses.replace``, which goes through all fields by name,
        takes several times as long.
        """
        assert sizes.keys() <= _SIZES, "a local shape has no such size"
        known, made = vars(self), object.__new__(LocalShape)
        vars(made).update({name: known[name] for name in _SIZES} | sizes)
        return made

    def of(self, kind: LayerKind) -> LocalShape:
        """The local shape of a layer of that kind."""
        experts = self.experts if kind.experts else None
        if (experts, kind.window, kind.prediction) == (self.experts, self.window, self.prediction):
            return self
        return self.with_(experts=experts, window=kind.window, prediction=kind.prediction)

    @cached_property
    def here(self) -> LocalShape:
        """The shape of operations on this rank's rows of the residual stream alone, without tensor or
        context parallelism."""
        return self.with_(batch=1, sequence=self.norm_tokens, tp=1, cp=1, sequence_parallel=False)

    @property
    def routed(self) -> LocalShape:
        """The part of the shape that a router and experts depend on, if no expert is shared."""
        return self.here.with_(cp_a2a=1, heads=0, kv_heads=0, ffn=0, vocabulary=0, window=None)

    @property
    def plain(self) -> LocalShape:
        """The shape without quantised GEMMs, as the embedding and the head have it."""
        return self.with_(recipe=None) if self.recipe else self

    @property
    def gemm_dtype(self) -> str:
        """Type of the inputs of GEMMs."""
        return self.recipe.gemm_dtype if self.recipe else self.dtype

    @property
    def stored_bytes(self) -> float:
        """Bytes per element of a GEMM's input that is kept for backward."""
        return self.recipe.stored if self.recipe else self.element_bytes

    @property
    def weights(self) -> WeightBytes:
        """Bytes per weight of a layer."""
        known = weight_bytes(self.element_bytes, self.recipe, quantised=self.quantised_weights)
        return replace(known, gathered=float(self.stream_bytes)) if self.autocast else known

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch on this rank, the rows of every GEMM."""
        return self.batch * self.sequence // self.cp

    @property
    def norm_tokens(self) -> int:
        """Tokens whose residual stream this rank holds, the rows of norms, residuals and dropout."""
        return self.tokens // self.tp if self.sequence_parallel else self.tokens

    @property
    def reduction(self) -> Literal["reduce_scatter", "all_reduce"]:
        """The collective that sums what tensor-parallel ranks have; sequence parallelism scatters the sum."""
        return "reduce_scatter" if self.sequence_parallel else "all_reduce"

    @property
    def has_qkv_biases(self) -> bool:
        """Whether queries, keys and values have biases: as all projections do, or they alone."""
        return self.biases or self.qkv_biases

    @property
    def v_head_dim(self) -> int:
        """Head dimension of values: that of queries and keys, unless ``value_dim`` says another."""
        return self.value_dim or self.head_dim

    @property
    def attention_width(self) -> int:
        """Columns of the attention output held here."""
        return self.heads * self.v_head_dim

    @property
    def qkv_width(self) -> int:
        """Columns of the fused QKV projection held here."""
        values = self.kv_heads * self.v_head_dim
        return (self.heads + self.kv_heads) * self.head_dim + values

    @property
    def query_bytes(self) -> float:
        """Bytes of the queries and keys held here, which norms and rotary embeddings read and write."""
        return float(self.tokens * (self.heads + self.kv_heads) * self.head_dim * self.element_bytes)

    @property
    def qkv_columns(self) -> int:
        """Columns that this rank's own GEMM makes of them: of heads that ranks share, a part each."""
        shared = self.kv_heads * (self.head_dim + self.v_head_dim)
        return self.heads * self.head_dim + shared // self.kv_sharers

    @property
    def kv_bytes(self) -> float:
        """Bytes of this rank's keys and values."""
        width = self.head_dim + self.v_head_dim
        return float(self.tokens * self.kv_heads * width * self.element_bytes)

    @property
    def hidden_bytes(self) -> float:
        """Bytes of a whole activation, tokens x hidden: the payload of every TP collective."""
        return float(self.tokens * self.hidden * self.element_bytes)

    @property
    def stream_bytes(self) -> int:
        """Bytes per element of the residual stream, and of a parameter."""
        return 4 if self.autocast else self.element_bytes

    @property
    def norm_bytes(self) -> float:
        """Bytes of the residual stream held here, norm_tokens x hidden."""
        return float(self.norm_tokens * self.hidden * self.stream_bytes)

    @property
    def branch_bytes(self) -> float:
        """Bytes of what is added to the residual stream held here."""
        return float(self.norm_tokens * self.hidden * self.element_bytes)

    @property
    def score_elements(self) -> float:
        """Elements of the score matrices of unfused attention, all local heads."""
        return float(self.batch * self.heads * self.sequence * self.sequence)


def local_experts(local: LocalShape) -> Experts:
    """The experts of ``local``, the shape of a layer that is known to have some."""
    assert local.experts is not None
    return local.experts


def boundary_bytes(local: LocalShape, software: Software) -> float:
    """Bytes of one activation, or its gradient, that a rank hands to the next stage."""
    split = local.sequence_parallel or software.pipeline.scatter_gather_p2p
    return local.hidden_bytes / (local.tp if split else 1)


_SIZES = dict.fromkeys(one.name for one in fields(LocalShape)).keys()


def local_shape_of_model(model: Model, *, tp: int = 1, experts: Experts | None = None) -> LocalShape:
    """The sizes of a model's layer on one of ``tp`` ranks, for one token in 16 bit."""
    return LocalShape(
        batch=1,
        sequence=1,
        hidden=model.hidden_size,
        heads=model.num_attention_heads // tp,
        kv_heads=max(1, (model.num_attention_heads if model.mla else model.num_query_groups) // tp),
        head_dim=model.qk_head_dim,
        value_dim=model.v_head_dim,
        kv_sharers=1 if model.mla else max(1, tp // model.num_query_groups),
        latent=model.mla,
        experts=experts,
        ffn=model.ffn_hidden_size // tp,
        gate=2 if model.mlp == "swiglu" else 1,
        vocabulary=model.embedding_rows // tp,
        tp=tp,
        cp=1,
        cp_a2a=1,
        sequence_parallel=False,
        element_bytes=2,
        grad_bytes=2,
        dtype="bf16",
        recipe=None,
        quantised_weights=False,
        quantised_dispatch=False,
        dropout=model.dropout > 0,
        biases=model.biases,
        rope=model.position == "rope",
        rms_norm=model.norm == "rmsnorm",
        qkv_biases=model.qkv_biases and not model.biases,
        qk_norm=model.qk_norm and model.mla is None,
        clamped_gate=model.clamped_gate,
    )


def local_shape_of(scenario: Scenario) -> LocalShape:
    """The layer share of one rank of ``scenario``."""
    par, training, software = scenario.parallelism, scenario.training, scenario.software
    rule, precision = sharding_rule(scenario), training.precision
    architecture = gpu_of(scenario.cluster).architecture
    return local_shape_of_model(scenario.model, tp=par.tp, experts=experts_of(scenario)).with_(
        batch=training.micro_batch,
        sequence=training.seq_length,
        cp=par.cp,
        cp_a2a=a2a_ranks(scenario),
        sequence_parallel=par.shards_sequence,
        element_bytes=ELEMENT_BYTES[precision],
        grad_bytes=max(software.gradients.gradient_bytes(precision), ELEMENT_BYTES[precision]),
        dtype=precision if precision in ("fp32", "fp16") else "bf16",
        quantised_weights=software.kernels.fp8_parameters,
        quantised_dispatch=software.exchange.fp8_dispatch,
        recipe=recipe_of(scenario, architecture),
        batches_pairs=not architecture.startswith(("blackwell", "rubin")),
        accumulates=rule is None or not rule.reduces_each,
        finds_none=scenario.num_microbatches == 1 and not gradients_last(scenario, rule),
        split_gate=software.kernels.split_gate,
        documents=training.seq_length / training.attended_length,
        autocast=software.kernels.autocast,
        keeps_casts=software.kernels.autocast and rule is not None and par.dp * par.cp > 1,
    )


def regathers_input(local: LocalShape, software: Software) -> bool:
    """Whether column-parallel layers keep a shard of their input, and gather it again in backward."""
    return local.sequence_parallel and software.exchange.sp_regathers_input


def a2a_ranks(scenario: Scenario) -> int:
    """Ranks of a cp group that exchange heads: as the layout says, or all of them where the software does."""
    par = scenario.parallelism
    if par.cp_a2a is not None:
        return par.cp_a2a
    return par.cp if scenario.software.exchange.cp_comm == "a2a" else 1
