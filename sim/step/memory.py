"""The memory bill of each pipeline rank: what it holds all step long, and the peak of its activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..report.result import ActionSpan, StageMemory
from .layers.shard import Shard
from .state.activations import activation_bytes, peak_activations

if TYPE_CHECKING:
    from .plan import Plan

CONTEXT_BYTES = 0.8e9
"""CUDA context, cuBLAS and loaded kernels: 0.5 to 1 GB with torch 2 on A100 and H100 (unverified)."""

COMMUNICATOR_BYTES = 0.25e9
"""Buffers of an NCCL communicator: 16-24 channels x (4 MiB Simple + 4.9 MB LL128 + 0.5 MiB LL), init.cc."""

GEMM_WORKSPACE_BYTES = 64e6
"""cuBLAS workspace: 32 MiB a handle on Hopper by default, twice (PyTorch CUBLAS_WORKSPACE_CONFIG)."""


def memory_of(plan: Plan, actions: Sequence[ActionSpan]) -> tuple[StageMemory, ...]:
    """The bill of every pipeline rank, with its peak and when it is reached."""
    by_rank: dict[int, list[ActionSpan]] = {}
    for span in actions:
        by_rank.setdefault(span.rank, []).append(span)
    return tuple(_stage_memory(plan, r, by_rank.get(r, [])) for r in range(plan.shape.ranks))


def _stage_memory(plan: Plan, r: int, actions: list[ActionSpan]) -> StageMemory:
    software = plan.scenario.software
    sizes = activation_bytes(plan.shard, software)
    static, lazy = static_terms(plan, r), {}
    if not software.persistent_gradients:
        lazy = {s: plan.parameters[s].total * gradient_bytes(plan) for s in plan.held_stages(r)}
        static["gradients"] = 0.0
    peak = peak_activations(actions, plan.stages, sizes, lazy)
    terms = {**static, "activations": peak.body, "logits": peak.logits}
    terms["gradients"] += peak.gradients
    outside = terms["context"] + terms["communication"]  # not from the framework's allocator
    terms["allocator"] = (sum(terms.values()) - outside) * software.allocator_overhead
    return StageMemory(
        pp=r,
        terms=terms,
        peak_bytes=sum(terms.values()),
        peak_s=peak.at_s,
        peak_action=peak.action,
        static_bytes=sum(static.values()),
        capacity_bytes=plan.cluster.gpu.hbm_bytes,
        timeline=tuple(peak.timeline),
    )


def gradient_bytes(plan: Plan) -> float:
    """Bytes of gradient per parameter: the accumulated one, and a 16-bit copy where the software keeps it."""
    software, e = plan.scenario.software, plan.shard.element_bytes
    copy = e if software.separate_grad_copy and plan.shard.grad_bytes != e else 0
    return float(plan.shard.grad_bytes + copy)


def static_terms(plan: Plan, r: int) -> dict[str, float]:
    """Bytes held all through the step: parameters, gradients, optimizer state, buffers, context."""
    par, e = plan.scenario.parallelism, plan.shard.element_bytes
    held = plan.held_parameters(r)
    master = 4.0 if e != 4 else 0.0
    communicators = 1 + (par.tp > 1) + (par.dp > 1) + (par.pp > 1) + (par.ep > 1) + (par.etp > 1)
    return {
        "weights": held * e * plan.weight_versions(r),
        "gradients": held * gradient_bytes(plan),
        "optimizer": plan.updated_parameters(r) * (master + 8.0),
        "communication": communicators * COMMUNICATOR_BYTES,
        "workspace": _workspace(plan.shard, unfused=plan.scenario.software.attention == "unfused"),
        "context": CONTEXT_BYTES,
    }


def _workspace(shard: Shard, *, unfused: bool) -> float:
    """Gathered activations, the widest gradient of the layer at work, and the GEMM library's workspace.

    The widest of unfused attention are its scores: a buffer that the product is written to, which no
    backward needs (Megatron-LM ``matmul_input_buffer``), and the gradient of that size.
    """
    gathered = 2 * shard.hidden_bytes if shard.sequence_parallel else shard.hidden_bytes
    scores = shard.score_elements * shard.element_bytes if unfused else 0.0
    widest = float(shard.tokens * shard.ffn * shard.gate * shard.element_bytes)
    if shard.experts:
        rows = shard.experts.rows(shard.norm_tokens) * shard.element_bytes
        # an exchange's rows as they arrive and sorted; the gradient of all branches
        widest = max(widest, 2 * rows * shard.hidden, rows * (shard.hidden + shard.experts.ffn * shard.gate))
    return gathered + max(widest, scores) + GEMM_WORKSPACE_BYTES
