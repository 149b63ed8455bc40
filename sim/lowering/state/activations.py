"""Activations: bytes that a microbatch holds between its forward and its backward, and their peak sum.

Counted per layer from what backward needs, which reproduces ``s b h (34 + 5 a s / h)`` bytes and its
forms under tensor and sequence parallelism (Korthikanti 2022, arXiv:2205.05198, section 4). They live
from the start of a forward action to the end of its backward, on the simulated timeline. Where the
weight gradient is put off, the input gradient frees all but both operands of those GEMMs:
``32 s b h`` bytes of the plain transformer (Qi et al. 2024, arXiv:2401.10241, section 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...scenario.software.software import Software
from ..layers.attention_core import kept_score_bytes
from ..layers.expert_work import activation_in_products
from ..layers.gelu import kept_bytes as gelu_kept_bytes
from ..layers.kinds import LayerKind, LayerRun
from ..layers.latent import latent_elements
from ..layers.local_shape import LocalShape, regathers_input
from ..layers.loss import logits_bytes
from ..layers.operators import kept_products
from ..layers.pointwise import clamps_apart
from ..layers.recompute import FULL, Recompute, by_operators, keeps, keeps_attention
from ..layers.stages import Stage
from ..layers.weighted_rows import kept_weighted_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """Bytes of one layer and microbatch: ``kept`` for backward; ``working`` more while it is recomputed;
    ``operands`` between input and weight gradient (the inputs of the matrices, and the gradients of their
    outputs)."""

    kept: float
    working: float
    operands: float


def _most(figures: Sequence[float]) -> float:
    return max(figures, default=0.0)


@dataclass(frozen=True, kw_only=True)
class ActivationBytes:
    """Bytes of one microbatch outside of layers; ``layer(run)`` are those of a layer.

    ``head_operands`` wait for the head's weight gradient after its input gradient; ``output`` are the logits
    as the head writes them, ``passed`` what one stage sends to the next. ``most`` of some figures; 0 of none.
    """

    local: LocalShape
    software: Software
    embedding: float
    head: float
    logits: float
    head_operands: float
    output: float
    passed: float
    offloaded: bool = False
    known: dict[tuple[LayerKind, Recompute], LayerBytes] = field(default_factory=dict)
    most: Callable[[Sequence[float]], float] = _most

    def layer(self, run: LayerRun) -> LayerBytes:
        """What each layer of ``run`` holds."""
        key = run.kind, run.recompute
        if key not in self.known:
            self.known[key] = layer_bytes(self.local.of(run.kind), self.software, run.recompute)
        return self.known[key]

    def kept_by_forward(self, stage: Stage) -> float:
        """Bytes that a microbatch holds on a stage after its forward, without the loss's logits."""
        layers = sum(run.count * self.layer(run).kept for run in stage.runs)
        if stage.in_one_go > 1:
            layers = sum(self.layer(group[0]).kept for group in _groups(stage))
        if self.offloaded and stage.runs:
            layers = self.layer(stage.runs[-1]).kept
        return layers + stage.embedding * self.embedding + stage.heads * self.head + self._messages(stage)

    def kept_by_layer(self, stage: Stage) -> float:
        """Bytes of a microbatch after the largest layer of a stage, with what precedes layers."""
        layer = self.most([self.layer(run).kept for run in stage.runs])
        return layer + stage.embedding * self.embedding

    def kept_by_input_grad(self, stage: Stage) -> float:
        """Bytes that a microbatch holds on a stage between its input gradient and its weight gradient."""
        layers = sum(run.count * self.layer(run).operands for run in stage.runs)
        return layers + stage.heads * self.head_operands

    def kept_messages(self, stage: Stage) -> float:
        """Bytes of a microbatch that a stage keeps until the step ends, of what it receives and what it puts
        out.

        With ``keeps_received`` that is the received activation (but on the first stage) and the received
        gradient (but on the last one); by ``keeps_outputs``, the logits, or the activation that the stage
        sends.
        """
        pipeline = self.software.pipeline
        got = ((not stage.embedding) + (not stage.loss)) * self.passed if pipeline.keeps_received else 0.0
        if stage.losses:
            return got + (0.0 if pipeline.keeps_outputs == "none" else self.output)
        return got + (self.passed if pipeline.keeps_outputs == "all" else 0.0)

    def _messages(self, stage: Stage) -> float:
        """Bytes of messages that a microbatch keeps until its backward, besides what its layers keep: the
        stage's output, unless it stays until the step ends, less the first layer's input, which is the
        received message itself."""
        if not self.software.pipeline.keeps_received or self.offloaded:
            return 0.0
        gives = not stage.loss and self.software.pipeline.keeps_outputs != "all"
        return (int(gives) - (not stage.embedding)) * self.passed

    def working(self, stage: Stage) -> float:
        """Bytes that a backward on a stage needs more while it recomputes layer after layer. Layers that
        are recomputed together are there together."""
        if stage.in_one_go > 1:
            groups = [sum(self.layer(run).working for run in group) for group in _groups(stage)]
            return self.most(groups)
        copies = 2 if self.offloaded and stage.layers > 1 else 0
        return self.most([self.layer(run).working + copies * self.layer(run).kept for run in stage.runs])


def _groups(stage: Stage) -> Iterator[tuple[LayerRun, ...]]:
    """The groups of layers between two kept inputs, from a stage's first layer on."""
    layers = [run for run in stage.runs for _ in range(run.count)]
    yield from (tuple(layers[i : i + stage.in_one_go]) for i in range(0, len(layers), stage.in_one_go))


def activation_bytes(local: LocalShape, software: Software, *, offloaded: bool = False) -> ActivationBytes:
    """Bytes by place. ``offloaded``: layers' are on the host, but for a stage's last and two on their way."""
    gathered, passed = _gathered(local, software), local.norm_bytes
    # a loss in chunks has the head inside: it is given hidden states, and uses up gradients of logits at once
    inside = software.kernels.loss_chunks > 1
    logits = 0.0 if inside else float(local.tokens * local.vocabulary * local.element_bytes)
    return ActivationBytes(
        local=local,
        software=software,
        offloaded=offloaded,
        embedding=_mask(local),
        head=local.norm_bytes + gathered + _head_cast(local),
        logits=logits_bytes(local, software),
        head_operands=gathered + logits,
        output=passed if inside else logits,
        passed=passed,
    )


def _head_cast(local: LocalShape) -> float:
    """Bytes of the head's matrix in 16 bit, which is kept for backward as the casts of layers' matrices are
    (``_weight_casts``)."""
    return float(local.keeps_casts * local.hidden * local.vocabulary * local.element_bytes)


def _gathered(local: LocalShape, software: Software) -> float:
    """Bytes of the gathered inputs of column-parallel layers."""
    return local.norm_bytes if regathers_input(local, software) else local.hidden_bytes


def _mask(local: LocalShape) -> float:
    return float(local.norm_tokens * local.hidden) if local.dropout else 0.0


def layer_bytes(local: LocalShape, software: Software, recompute: Recompute) -> LayerBytes:
    """Bytes of a layer whose backward recomputes ``recompute``."""
    e, tokens, stream = local.element_bytes, local.tokens, local.norm_bytes
    parts = _parts(local, software)
    whole = sum(parts.values())
    inputs = sum(parts.get(name, 0.0) for name in _INPUTS)
    narrow = local.stored_bytes / e  # quantised GEMMs keep quantised gradients
    gradients = narrow * tokens * (local.qkv_width + local.hidden) * e
    operands = 2 * _gathered(local, software) + inputs + gradients + narrow * _mlp_gradients(local)
    if recompute == FULL:
        return LayerBytes(kept=stream + _exchanged(local, software), working=whole, operands=operands)
    if by_operators(recompute):
        kept = min(whole, _kept_by_operators(local, software, parts, recompute))
        return LayerBytes(kept=kept, working=whole - kept, operands=operands)
    working = sum(parts.get(name, 0.0) for name in frozenset().union(*(_DROPPED[part] for part in recompute)))
    return LayerBytes(kept=whole - working, working=working, operands=operands)


def _exchanged(local: LocalShape, software: Software) -> float:
    """What exchanges of experts gave, where a recomputation replays it: what came, and what came home.

    NCCL moves rows; DeepEP and HybridEP move a token once to each rank that it goes to, and bring home the
    sum of its rows. A rank gets as much as others in the mean of layers, since the fullest is another in each
    (whitecircle/halo src/distributed/expert_parallel/base_layer.py, _gc_dispatch and _gc_combine).
    """
    experts = local.experts
    if experts is None or experts.ep == 1 or not software.exchange.replays_exchanges:
        return 0.0
    row = local.hidden * local.element_bytes
    if software.exchange.moe_dispatcher == "alltoall":
        return 2 * experts.sent(local.norm_tokens) * row
    return local.norm_tokens * (experts.visited() + 1) * row


def _kept_by_operators(
    local: LocalShape, software: Software, parts: Mapping[str, float], recompute: Recompute
) -> float:
    """The layer's input and the outputs that a policy keeps, even those that backward does not read.

    Of the last GEMM, and of each reduction over TP, the sum stays.
    """
    e, stream = local.element_bytes, local.norm_bytes
    kept = {name: one.elements * e for name, one in kept_products(local, recompute).items()}
    last = stream if kept.pop("fc2", 0.0) else 0.0
    reduced = stream if local.tp > 1 and keeps(recompute, "reduce_scatter") else 0.0
    outputs = (parts["attention"] + parts["log-sum-exp"]) * keeps_attention(
        recompute, software.kernels.attention
    )
    experts, rows = local.experts, 0.0
    if experts and experts.ep > 1 and keeps(recompute, "all_to_all"):
        rows = parts["rows"] + experts.sent(local.norm_tokens) * local.hidden * e
    return stream + last + reduced + sum(kept.values()) + outputs + rows


_DROPPED = {
    "core_attn": frozenset({"scores"}),
    "layernorm": frozenset({"norm outputs"}),
    "mlp": frozenset({"branches", "clamped branches", "formula", "product", "mlp casts"}),
    "moe": frozenset({"rows", "row branches", "row product", "shared branches", "shared product", "router"})
    | {"clamped row branches", "clamped shared branches", "row formula", "shared formula", "weighted rows"},
    "moe_act": frozenset({"row product", "clamped row branches", "row formula"}),
    "shared_experts": frozenset(
        {"shared branches", "clamped shared branches", "shared formula", "shared product"}
    ),
    "mla_up_proj": frozenset({"qkv"}),
}
"""By what is run again, the parts of a layer that need not be kept."""

_INPUTS = ("latents", "attention", "product", "rows", "row product", "shared product")
"""Parts that are inputs of the layer's matrices, beside its normed streams."""


def _parts(local: LocalShape, software: Software) -> dict[str, float]:
    """Bytes of what backward needs of a layer, by what it is."""
    e, tokens, narrow = local.element_bytes, local.tokens, local.stored_bytes / local.element_bytes
    fused = software.kernels.attention != "unfused"
    silu = 1 if local.gate == 2 and not software.kernels.fuses_activation(gated=True) else 0
    small = software.kernels.fp8_activations and local.recipe is not None
    ahead = _experts(local, silu, small) if local.experts else _mlp(local, silu, small)
    ahead |= _clamped(local, software, ahead) | _weighted_rows(local, software)
    if (
        software.kernels.gelu_by_operators
        and local.gate == 1
        and not software.kernels.fuses_activation(gated=False)
    ):
        ahead |= _formulas(local)
    # Attention's backward wants its output; a quantised projection its own copy. DeepSeek-V3 keeps one, of
    # 12 bits (E5M6), for both (arXiv:2412.19437 section 3.3.3).
    outputs = 1.5 if small else e + (narrow * e if local.recipe else 0)
    latents = latent_elements(local) * e if local.latent else 0.0
    return (
        ahead
        | _weight_casts(local)
        | {
            "norms": 2 * local.norm_bytes * _norm_copies(local, software),
            "norm outputs": _normed_copies(local, software) * _gathered(local, software) * narrow,
            "qkv": float(tokens * local.qkv_width * e),
            "heads to be normed": _heads_to_be_normed(local, software),
            "copies": _copied(local) if software.kernels.keeps_qkv_copy else 0.0,
            "repeated heads": _repeated(local) if software.kernels.repeats_kv else 0.0,
            "attention": tokens * local.attention_width * outputs,
            "scores": 0.0 if fused else local.score_elements * kept_score_bytes(local, software),
            "log-sum-exp": 4.0 * tokens * local.heads if fused else 0.0,
            "latents": latents,
            # multi-token prediction: both streams, as they come and normed
            "joined streams": 4 * local.norm_bytes if local.prediction else 0.0,
            "masks": 2 * _mask(local),
        }
    )


def _formulas(local: LocalShape) -> dict[str, float]:
    """What GELU written in operators keeps, in an MLP or in experts."""
    each, experts = gelu_kept_bytes(local), local.experts
    if experts is None:
        return {"formula": each * local.tokens * local.ffn}
    return {
        "row formula": each * experts.rows(local.norm_tokens) * experts.ffn,
        "shared formula": each * local.tokens * experts.shared_ffn,
    }


def _weight_casts(local: LocalShape) -> dict[str, float]:
    """16-bit casts of a layer's matrices, which torch's mm saves for backward whatever becomes of the
    gathered parameters. Those of replicated parameters are counted with the weights."""
    if not local.keeps_casts:
        return {}
    attention = local.hidden * (local.qkv_width + local.attention_width)
    mlp = local.hidden * local.ffn * (local.gate + 1)
    return {
        "attention casts": float(attention * local.element_bytes),
        "mlp casts": float(mlp * local.element_bytes),
    }


def _norm_copies(local: LocalShape, software: Software) -> int:
    """Tensors as large as a norm's input that it keeps: that alone, or what a chain has in FP32 besides, of
    which the input is one where the stream is FP32."""
    if software.kernels.norm_is_one_kernel(rms_norm=local.rms_norm):
        return 1
    return 2 if local.autocast else 3


def _normed_copies(local: LocalShape, software: Software) -> int:
    """What matrices keep of both norms' outputs: one of each, or the casts of all that read them."""
    if not local.autocast or software.kernels.torch_compile:
        return 2
    return 1 + 1 if not (local.split_gate and local.gate == 2) else 3 + 2  # q, k, v; gate, up


def _clamped(local: LocalShape, software: Software, ahead: Mapping[str, float]) -> dict[str, float]:
    """What activations read, beside what was clamped; not of experts whose GEMMs apply theirs."""
    if not clamps_apart(local, software):
        return {}
    names = ["branches", "shared branches"]
    if not activation_in_products(local, software):
        names.append("row branches")
    return {f"clamped {name}": ahead[name] for name in names if name in ahead}


def _weighted_rows(local: LocalShape, software: Software) -> dict[str, float]:
    """Rows of experts, which the gradients of the router's weights read where torch multiplies both."""
    kept = kept_weighted_rows(local, software)
    return {"weighted rows": kept} if kept else {}


def _heads_to_be_normed(local: LocalShape, software: Software) -> float:
    """Queries and keys before their norms, beside those that attention reads; a chain keeps FP32 copies."""
    if not local.qk_norm or local.latent:
        return 0.0
    size = float(local.tokens * (local.heads + local.kv_heads) * local.head_dim * local.element_bytes)
    return size * (1 if software.kernels.norm_is_one_kernel(rms_norm=True) else 3)


def _copied(local: LocalShape) -> float:
    """Bytes of the copies of K and V beside those that attention reads. Where queries share heads, each is
    copied by itself."""
    if local.kv_heads != local.heads:
        return 0.0
    return float(local.tokens * (local.qkv_width - local.attention_width) * local.element_bytes)


def _repeated(local: LocalShape) -> float:
    """Bytes by which K and V grow where each query head has its own copy of the heads that it shares."""
    if local.latent:
        return 0.0
    return float(local.tokens * (3 * local.attention_width - local.qkv_width) * local.element_bytes)


def _mlp(local: LocalShape, silu: int, small: bool) -> dict[str, float]:
    """Bytes that an MLP keeps, by what they are. ``small``: the input of its activation is kept quantised,
    too."""
    wide = float(local.tokens * local.ffn * local.element_bytes)
    narrow = local.stored_bytes / local.element_bytes
    return {"branches": wide * (local.gate + silu) * (narrow if small else 1), "product": wide * narrow}


def _experts(local: LocalShape, silu: int, small: bool) -> dict[str, float]:
    """Rows as they enter the experts; router's logits and probabilities in FP32, and its map."""
    experts, e = local.experts, local.element_bytes
    assert experts is not None
    narrow = local.stored_bytes / e
    rows = experts.rows(local.norm_tokens) * e
    shared = float(local.tokens * experts.shared_ffn * e)
    return {
        "rows": rows * local.hidden * narrow,
        "row branches": rows * experts.ffn * (local.gate + silu) * (narrow if small else 1),
        "row product": rows * experts.ffn * narrow,
        "shared branches": shared * (local.gate + silu) * (narrow if small else 1),
        "shared product": shared * narrow,
        "router": 9.0 * local.norm_tokens * experts.gathered * experts.total,
    }


def _mlp_gradients(local: LocalShape) -> float:
    """Gradients of the outputs of the matrices of an MLP, or of experts."""
    e, experts = local.element_bytes, local.experts
    if experts is None:
        return float(local.tokens * local.ffn * local.gate * e + local.hidden_bytes)
    rows = experts.rows(local.norm_tokens) * e
    shared = local.tokens * (experts.shared_ffn * local.gate + local.hidden) * e
    return rows * (experts.ffn * local.gate + local.hidden) + shared
