"""Activations: bytes that a microbatch holds between its forward and its backward, and their peak sum.

Counted per layer from what backward needs, which reproduces ``s b h (34 + 5 a s / h)`` bytes and its
forms under tensor and sequence parallelism (Korthikanti 2022, arXiv:2205.05198, section 4). They live
from the start of a forward action to the end of its backward, on the simulated timeline. Where the
weight gradient is put off, the input gradient lets all go but both operands of those matrix products:
``32 s b h`` bytes of the plain transformer (Qi et al. 2024, arXiv:2401.10241, section 2.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...report.result import ActionSpan
from ...software.software import Software
from ..layers.loss import logits_bytes
from ..layers.shard import Shard
from ..layers.stages import Stage


@dataclass(frozen=True, kw_only=True)
class ActivationBytes:
    """Bytes that one microbatch holds: per layer, and at the ends of the model.

    ``recomputed_layer`` is what a layer recomputed in full keeps; ``working`` what it holds while it
    is being recomputed; ``core`` is the same of an attention core that alone is recomputed.
    ``layer_operands`` and ``head_operands`` are what waits for the weight gradient after the input
    gradient: the inputs of the matrices, and the gradients of their outputs.
    """

    layer: float
    recomputed_layer: float
    working: float
    core: float
    embedding: float
    head: float
    logits: float
    layer_operands: float
    head_operands: float

    def kept_by_forward(self, stage: Stage) -> float:
        """Bytes of a microbatch on a stage once its forward has ended, without the loss's logits."""
        layers = stage.plain * self.layer + stage.recomputed * self.recomputed_layer
        return layers + stage.embedding * self.embedding + stage.head * self.head

    def kept_by_input_grad(self, stage: Stage) -> float:
        """Bytes of a microbatch on a stage between its input gradient and its weight gradient."""
        return stage.layers * self.layer_operands + stage.head * self.head_operands


@dataclass(kw_only=True)
class Peak:
    """The largest sum held: its parts in bytes, when, during which action; and every change of the sum."""

    body: float = 0.0
    logits: float = 0.0
    gradients: float = 0.0
    at_s: float = 0.0
    action: str = ""
    timeline: list[tuple[float, float]] = field(default_factory=list)

    @property
    def total(self) -> float:
        return self.body + self.logits + self.gradients


def activation_bytes(shard: Shard, software: Software, *, selective: bool) -> ActivationBytes:
    """Bytes by place. ``selective`` recomputes the attention core of layers not recomputed in full."""
    e, tokens, stream = shard.element_bytes, shard.tokens, shard.norm_bytes
    sharded = shard.sequence_parallel and software.sp_regathers_input
    gathered = stream if sharded else shard.hidden_bytes  # inputs of column-parallel layers
    mask = shard.norm_tokens * shard.hidden if shard.dropout else 0.0
    norms = 2 * stream * (1 if software.fused_norm else 3)  # inputs of both; eager norms keep FP32 copies
    attention = float(tokens * (shard.qkv_width + shard.attention_width) * e)
    core = 0.0
    if software.attention == "unfused":
        # probabilities; under dropout its mask and its output too
        core = shard.score_elements * (e + ((1 + e) if shard.dropout else 0))
        attention += 0 if selective else core
    else:
        attention += 4.0 * tokens * shard.heads  # log-sum-exp
    # Every input branch and the product; SiLU's own output where it is a kernel of its own.
    branches = shard.gate + 1 + (1 if shard.gate == 2 and not software.fused_activation else 0)
    layer = norms + 2 * gathered + attention + tokens * shard.ffn * e * branches + 2 * mask
    return ActivationBytes(
        layer=layer,
        recomputed_layer=stream,
        working=layer,
        core=core if selective else 0.0,
        embedding=mask,
        head=stream + gathered,
        logits=logits_bytes(shard, software),
        layer_operands=2 * gathered
        + tokens * (shard.qkv_width + shard.attention_width + shard.ffn * (shard.gate + 1)) * e
        + 2 * shard.hidden_bytes,
        head_operands=gathered + tokens * shard.vocabulary * e,
    )


def peak_activations(
    actions: Sequence[ActionSpan],
    stages: Sequence[Stage],
    sizes: ActivationBytes,
    lazy_gradients: dict[int, float],
) -> Peak:
    """Walk one rank's actions in time. ``lazy_gradients``: bytes that a stage's first backward allocates."""
    held, peak = Peak(), Peak()
    pending = dict(lazy_gradients)
    for at_s, ends, span in sorted(_moments(actions), key=lambda m: (m[0], not m[1])):
        stage = stages[span.stage]
        if ends:
            _release(held, span, stage, sizes)
        else:
            _keep(held, span, stage, sizes, pending)
        peak.timeline.append((at_s, held.total))
        if held.total > peak.total * (1 + 1e-12):
            peak.body, peak.logits, peak.gradients = held.body, held.logits, held.gradients
            peak.at_s, peak.action = at_s, f"{span.stage}{span.kind}{span.microbatch}"
    return peak


def _moments(actions: Sequence[ActionSpan]) -> Iterator[tuple[float, bool, ActionSpan]]:
    """When something changes, and whether an action ends: what it frees is free for what starts then."""
    for span in actions:
        if span.kind != "W":
            yield span.start_s, False, span
        if span.kind != "F":
            yield span.end_s, True, span


def _keep(
    held: Peak, span: ActionSpan, stage: Stage, sizes: ActivationBytes, pending: dict[int, float]
) -> None:
    """What an action takes as it starts."""
    if span.kind == "F":
        held.body += sizes.kept_by_forward(stage)
        held.logits += stage.loss * sizes.logits
    else:
        held.body += _working(stage, sizes)
        held.gradients += pending.pop(span.stage, 0.0)


def _release(held: Peak, span: ActionSpan, stage: Stage, sizes: ActivationBytes) -> None:
    """What an action lets go as it ends."""
    if span.kind == "W":
        held.body -= sizes.kept_by_input_grad(stage)
        return
    held.body -= sizes.kept_by_forward(stage) + _working(stage, sizes)
    held.logits -= stage.loss * sizes.logits
    if span.kind == "I":
        held.body += sizes.kept_by_input_grad(stage)


def _working(stage: Stage, sizes: ActivationBytes) -> float:
    """What a backward holds while it recomputes."""
    return sizes.working if stage.recomputed else sizes.core
