"""The memory bill of each pipeline rank: what it holds all step long, and activations by liveness.

Activations are counted per layer and microbatch from what backward needs, which reproduces
``s b h (34 + 5 a s / h)`` bytes (Korthikanti 2022, equation 1) and its TP and SP forms; they live
from the start of a forward action to the end of its backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..report.result import ActionSpan, StageMemory
from ..software.software import Software
from .shard import Shard

if TYPE_CHECKING:
    from ..scenario.models import Scenario
    from .lower import Lowered

CONTEXT_BYTES = 0.8e9
"""CUDA context, cuBLAS and kernels: about 0.5 to 1 GB on A100 and H100 with torch 2 (unverified)."""

COMMUNICATOR_BYTES = 0.25e9
"""Buffers of one NCCL communicator: channels x protocols x 4 MiB and their LL twins (NCCL init.cc, 16 to 24 channels)."""


@dataclass(frozen=True, kw_only=True)
class ActivationBytes:
    """Bytes that one microbatch holds between forward and backward: per layer, and at the ends.

    ``working`` is what a recomputed layer holds while it is being recomputed.
    """

    layer: float
    recomputed_layer: float
    working: float
    embedding: float
    head: float
    logits: float


def activation_bytes(shard: Shard, software: Software, recompute: str) -> ActivationBytes:
    """Activations of one layer; ``recompute`` (none, selective) applies to layers not recomputed in full."""
    e, tokens = shard.element_bytes, shard.tokens
    stream, whole = shard.norm_bytes, shard.hidden_bytes
    kept_sharded = shard.sequence_parallel and software.sp_regathers_input
    gathered = stream if kept_sharded else whole  # inputs of column-parallel layers
    mask = shard.norm_tokens * shard.hidden if shard.dropout else 0.0
    norms = 2 * stream * (1 if software.fused_norm else 3)  # inputs of both norms; eager keeps FP32 copies
    attention = tokens * (shard.qkv_width + shard.attention_width) * e + 4.0 * tokens * shard.heads
    activation = (
        tokens * shard.ffn * e * (shard.gate + 1 + (0 if software.fused_activation or shard.gate == 1 else 1))
    )
    layer = norms + 2 * gathered + attention + activation + 2 * mask
    if software.attention == "unfused" and recompute != "selective":
        # probabilities, and under dropout its mask and output
        layer += shard.score_elements * (e + ((1 + e) if shard.dropout else 0))
    kept = stream
    wide = 4.0 if software.logits_fp32 else float(e)
    logits = tokens * shard.vocabulary * (wide + e)
    return ActivationBytes(
        layer=layer,
        recomputed_layer=kept,
        working=layer,
        embedding=mask,
        head=stream + gathered,
        logits=logits,
    )


def memory_of(lowered: Lowered, actions: Sequence[ActionSpan]) -> tuple[StageMemory, ...]:
    """The bill of every pipeline rank, with its peak and when it is reached."""
    by_rank: dict[int, list[ActionSpan]] = {}
    for span in actions:
        by_rank.setdefault(span.rank, []).append(span)
    return tuple(_stage_memory(lowered, r, by_rank.get(r, [])) for r in range(lowered.shape.ranks))


def _stage_memory(lowered: Lowered, r: int, actions: list[ActionSpan]) -> StageMemory:
    scenario, software = lowered.scenario, lowered.scenario.software
    recompute = scenario.training.recompute
    sizes = activation_bytes(lowered.shard, software, recompute if isinstance(recompute, str) else "none")
    static = static_terms(lowered, r)
    peak, peak_s, peak_action, timeline, logits = _liveness(lowered, sizes, actions)
    terms = {**static, "activations": peak - logits, "logits": logits}
    subtotal = sum(terms.values()) - terms["context"]
    terms["allocator"] = subtotal * software.allocator_overhead
    base = sum(static.values())
    return StageMemory(
        pp=r,
        terms=terms,
        peak_bytes=sum(terms.values()),
        peak_s=peak_s,
        peak_action=peak_action,
        static_bytes=base,
        capacity_bytes=lowered.cluster.gpu.hbm_bytes,
        timeline=tuple(timeline),
    )


def static_terms(lowered: Lowered, r: int) -> dict[str, float]:
    """Bytes held all through the step: parameters, gradients, optimizer state, buffers, context."""
    scenario, software, par = lowered.scenario, lowered.scenario.software, lowered.scenario.parallelism
    held = sum(lowered.parameters[a].total for a in {action.stage for action in lowered.orders[r]})
    e = lowered.shard.element_bytes
    shard = lowered.groups.dp.ranks if par.zero >= 1 else 1
    gradient = software.main_grad_bytes + (
        e if software.separate_grad_copy and software.main_grad_bytes != e else 0
    )
    master = 4.0 if e != 4 else 0.0
    communicators = (par.tp > 1) + (par.dp > 1) + (par.pp > 1) + 1
    return {
        "weights": held * e,
        "gradients": held * gradient,
        "optimizer": held * (master + 8.0) / shard,
        "communication": communicators * COMMUNICATOR_BYTES,
        "workspace": _workspace(lowered.shard, software),
        "context": CONTEXT_BYTES,
    }


def _workspace(shard: Shard, software: Software) -> float:
    """Gathered activations and gradients of the layer at work, and the GEMM library's workspace."""
    gathered = 2 * shard.hidden_bytes if shard.sequence_parallel else shard.hidden_bytes
    return gathered + shard.tokens * shard.ffn * shard.gate * shard.element_bytes + 64e6


def _liveness(
    lowered: Lowered, sizes: ActivationBytes, actions: list[ActionSpan]
) -> tuple[float, float, str, list[tuple[float, float]], float]:
    """Peak of the activations held, when, during which action, all changes, and the logits in that peak."""
    changes: list[tuple[float, int, float, float, str]] = []
    for span in actions:
        stage = lowered.stages[span.stage]
        plain = stage.layers - stage.recomputed
        body = (
            plain * sizes.layer
            + stage.recomputed * sizes.recomputed_layer
            + stage.embedding * sizes.embedding
        )
        head = sizes.head * stage.head + sizes.logits * stage.loss
        name = f"{span.stage}{span.kind}{span.microbatch}"
        if span.kind == "F":
            changes.append((span.start_s, 1, body, head, name))
        else:
            working = sizes.working if stage.recomputed else 0.0
            changes.append((span.start_s, 1, working, 0.0, name))
            changes.append((span.end_s, 0, -body - working, -head, name))
    held = logits = peak = peak_logits = 0.0
    peak_s, peak_action, timeline = 0.0, "", []
    for at, _, body, head, name in sorted(changes, key=lambda c: (c[0], c[1])):
        held, logits = held + body, logits + head
        timeline.append((at, held + logits))
        if held + logits > peak * (1 + 1e-12):
            peak, peak_logits, peak_s, peak_action = held + logits, logits, at, name
    return peak, peak_s, peak_action, timeline, peak_logits


def memory_by_kind(memory: StageMemory) -> Mapping[str, float]:
    """Peak as each instrument would read it: allocated, reserved (torch), nvidia_smi."""
    terms = memory.terms
    context = terms["context"] + terms["communication"]
    allocated = memory.peak_bytes - context - terms["allocator"]
    reserved = allocated + terms["allocator"]
    return {"allocated": allocated, "reserved": reserved, "nvidia_smi": reserved + context}


__all__ = ["ActivationBytes", "Scenario", "activation_bytes", "memory_by_kind", "memory_of", "static_terms"]
