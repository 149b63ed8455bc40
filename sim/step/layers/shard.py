"""The sizes of one rank's share of a transformer layer: what tensor and sequence parallelism leave of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .kinds import LayerKind

if TYPE_CHECKING:
    from ...scenario.models import Scenario
    from ...software.software import Software

ELEMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes per element of activations and GEMM inputs, by precision."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Sizes of one rank's share, for one microbatch.

    ``tokens`` is b*s/cp, the rows of every GEMM; ``sequence`` is whole, ``cp_a2a`` the ranks of the cp
    group that exchange heads for tokens; ``norm_tokens`` the rows of norms, residuals and
    dropout (tokens/tp under sequence parallelism). ``qkv``, ``heads``, ``kv_heads``, ``ffn`` and
    ``vocabulary`` are already divided by tp; ``hidden`` is whole. ``gate`` is 2 for SwiGLU (two
    input branches), else 1. ``grad_bytes`` is the size of an element of the gradient that is
    accumulated and reduced.
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
    dropout: bool
    biases: bool
    rope: bool
    rms_norm: bool

    def of(self, kind: LayerKind) -> Shard:
        """The share of a layer of that kind."""
        return self

    @property
    def tokens(self) -> int:
        return self.batch * self.sequence // self.cp

    @property
    def norm_tokens(self) -> int:
        return self.tokens // self.tp if self.sequence_parallel else self.tokens

    @property
    def attention_width(self) -> int:
        """Columns of the attention output held here."""
        return self.heads * self.head_dim

    @property
    def qkv_width(self) -> int:
        """Columns of the fused QKV projection held here."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def kv_bytes(self) -> float:
        """Bytes of this rank's keys and values."""
        return float(self.tokens * 2 * self.kv_heads * self.head_dim * self.element_bytes)

    @property
    def hidden_bytes(self) -> float:
        """Bytes of a whole activation, tokens x hidden: the payload of every TP collective."""
        return float(self.tokens * self.hidden * self.element_bytes)

    @property
    def norm_bytes(self) -> float:
        """Bytes of the residual stream held here, norm_tokens x hidden."""
        return float(self.norm_tokens * self.hidden * self.element_bytes)

    @property
    def score_elements(self) -> float:
        """Elements of the score matrices of unfused attention, all local heads."""
        return float(self.batch * self.heads * self.sequence * self.sequence)

    @property
    def layer_parameters(self) -> float:
        """Parameters of one layer held here: sharded matrices, whole norms and row-parallel biases."""
        h = self.hidden
        matrices = h * self.qkv_width + self.attention_width * h + h * self.ffn * self.gate + self.ffn * h
        norms = 2 * h if self.rms_norm else 4 * h
        biases = (self.qkv_width + self.ffn * self.gate + 2 * h) if self.biases else 0
        return float(matrices + norms + biases)


def boundary_bytes(shard: Shard, software: Software) -> float:
    """Bytes of one activation, or its gradient, that a rank hands to the next stage."""
    split = shard.sequence_parallel or software.scatter_gather_p2p
    return shard.hidden_bytes / (shard.tp if split else 1)


def shard_of(scenario: Scenario) -> Shard:
    """The layer share of one rank of ``scenario``."""
    model, par, training = scenario.model, scenario.parallelism, scenario.training
    return Shard(
        batch=training.micro_batch,
        sequence=training.seq_length,
        hidden=model.hidden_size,
        heads=model.num_attention_heads // par.tp,
        kv_heads=max(1, model.num_query_groups // par.tp),
        head_dim=model.kv_channels,
        ffn=model.ffn_hidden_size // par.tp,
        gate=2 if model.mlp == "swiglu" else 1,
        vocabulary=-(-model.vocab_size // par.tp),
        tp=par.tp,
        cp=par.cp,
        cp_a2a=_a2a_ranks(scenario),
        sequence_parallel=par.sequence_parallel and par.tp > 1,
        element_bytes=ELEMENT_BYTES[training.precision],
        grad_bytes=max(scenario.software.main_grad_bytes, ELEMENT_BYTES[training.precision]),
        dtype=training.precision,
        dropout=model.dropout > 0,
        biases=model.biases,
        rope=model.position == "rope",
        rms_norm=model.norm == "rmsnorm",
    )


def _a2a_ranks(scenario: Scenario) -> int:
    """Ranks of a cp group that exchange heads: as the layout says, or all of them where the software does."""
    par = scenario.parallelism
    if par.cp_a2a is not None:
        return par.cp_a2a
    return par.cp if scenario.software.cp_comm == "a2a" else 1
