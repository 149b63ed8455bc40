"""The memory bill of each pipeline rank: what it holds all step long, and the peak of its activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from ..result.step import IDLE, ActionSpan, StageMemory
from ..scenario.sharding import ShardingRule, gradients_last
from ..scenario.software.software import Software
from .allocator_blocks import flat_buffer_bytes, widest_bytes
from .communicators import communicators_by_rank
from .layers.context import received_bytes
from .layers.layer import forward_block
from .layers.local_shape import LocalShape
from .layers.loss import unusable_share
from .optimizers import parts_of, update_width, updated_parameters
from .optional_parts import sharded_actions_of
from .state.activations import ActivationBytes, activation_bytes
from .state.by_order import Most, peak_of_order
from .state.in_flight import in_flight_bytes
from .state.timeline import Buffers, pairs_of, peak_held

if TYPE_CHECKING:
    from ..network.nccl.buffers import CommunicatorBuffers
    from .plan import StepPlan
    from .sharded_actions import ShardedActions

CONTEXT_BYTES = 0.8e9
"""CUDA context, cuBLAS and loaded kernels: 0.5 to 1 GB with torch 2 on A100 and H100 (unverified)."""

GEMM_WORKSPACE_BYTES = 64e6
"""cuBLAS workspace: 32 MiB a handle on Hopper by default, twice (PyTorch CUBLAS_WORKSPACE_CONFIG)."""


def memory_of(
    plan: StepPlan,
    actions: Sequence[ActionSpan],
    host_leads_s: Mapping[int, float],
    microbatches: int,
    *,
    traced: bool = True,
) -> tuple[StageMemory, ...]:
    """The bill of every pipeline rank, with its peak and when that is, and if ``traced`` all that led there.

    ``host_leads_s``: how far each rank's host was ahead of its GPU (engine/host_lead.py). ``microbatches``:
    of the whole step, where the plan is of a shorter one.
    """
    by_rank: dict[int, list[ActionSpan]] = {}
    for span in actions:
        by_rank.setdefault(span.rank, []).append(span)

    def most(r: int, sizes: ActivationBytes, buffers: Mapping[int, Buffers]) -> Most:
        own = by_rank.get(r, [])
        peak = peak_held(own, plan.stages, sizes, buffers, unusable=unusable_of(plan), traced=traced)
        return peak, _layers_in_flight(plan, own)

    return _bill(plan, most, host_leads_s, microbatches)


def memory_of_orders(
    plan: StepPlan, host_leads_s: Mapping[int, float], microbatches: int
) -> tuple[StageMemory, ...]:
    """The bill of every pipeline rank by the orders of the plan alone, which do not tell when the peak is."""

    def most(r: int, sizes: ActivationBytes, buffers: Mapping[int, Buffers]) -> Most:
        return peak_of_order(plan.orders[r], plan.stages, sizes, buffers, unusable=unusable_of(plan))

    return _bill(plan, most, host_leads_s, microbatches)


def _bill(
    plan: StepPlan,
    most: Callable[[int, ActivationBytes, Mapping[int, Buffers]], Most],
    host_leads_s: Mapping[int, float],
    microbatches: int,
) -> tuple[StageMemory, ...]:
    scenario = plan.scenario
    sharding = sharded_actions_of(plan)
    offloaded = scenario.training.activation_offload
    sizes = activation_bytes(plan.local, scenario.software, offloaded=offloaded)
    found, known = list[StageMemory](), communicators_by_rank(plan)
    for r in range(plan.shape.ranks):
        buffers = {s: stage_buffers(plan, s, sharding) for s in plan.held_stages(r)}
        lead_s = host_leads_s.get(r, math.inf)
        static = static_terms(plan, r, sharding, known[r])
        kept = sum(sizes.kept_messages(plan.stages[s]) for s in plan.held_stages(r))
        if kept and len(plan.stages) > 1:
            static["outputs"] = microbatches * kept / plan.ways
        one, apart = most(r, sizes, buffers), sum(own.apart for own in buffers.values())
        if apart:
            others = most(r, sizes, {s: own.of_one_stream for s, own in buffers.items()})
            if (idle := _with_unusable(plan, others) + apart - _with_unusable(plan, one)) > 0:
                static[IDLE] = idle
        found.append(_stage_memory(plan, r, one, static, lead_s, known[r]))
    return tuple(found)


def _with_unusable(plan: StepPlan, most: Most) -> float:
    """Bytes that come and go at a rank's peak, with the blocks at the loss that nothing fits into."""
    held = most[0].held
    return held.total + held.logits * unusable_of(plan)


def _stage_memory(
    plan: StepPlan,
    r: int,
    most: Most,
    static: dict[str, float],
    host_lead_s: float,
    own: tuple[CommunicatorBuffers, ...],
) -> StageMemory:
    software = plan.scenario.software
    peak, layers_in_flight = most
    terms = dict(static)
    for name, size in peak.held.terms().items():
        terms[name] = terms.get(name, 0.0) + size
    # what stays all step long was allocated once, each piece in a block of its own size
    unusable = peak.held.logits * unusable_of(plan)
    moving = peak.held.total + unusable + terms["workspace"]
    terms["allocator"] = moving * software.host.allocator_overhead + unusable
    terms["in flight"] = _in_flight(plan, r, host_lead_s)
    moving = peak.held.total + terms["allocator"] + terms["in flight"]
    late, idle = min(flat_buffer_bytes(plan, r)[1], moving), static.get(IDLE, 0.0)
    capacity = _capacity_bytes(plan, r)
    if sum(terms.values()) > capacity:  # free blocks are given back, and late buffers share theirs
        for bill in (terms, static):
            bill["flat buffers"] -= late
            bill.pop(IDLE, None)
        late = idle = 0.0
    return StageMemory(
        pp=r,
        terms=terms,
        peak_bytes=sum(terms.values()),
        peak_s=peak.at_s,
        peak_action=peak.action,
        static_bytes=sum(static.values()),
        releasable_bytes=late + idle,
        capacity_bytes=capacity,
        timeline=tuple((at_s, sum(parts)) for at_s, parts in peak.timeline),
        moving=tuple(peak.timeline),
        parameters=plan.held_parameters(r),
        layers_in_flight=layers_in_flight,
        communicators=own,
    )


def unusable_of(plan: StepPlan) -> float:
    """The ``unusable_logits`` of a lowered step."""
    return unusable_logits(plan.local, plan.scenario.software, stages=len(plan.stages))


def unusable_logits(local: LocalShape, software: Software, *, stages: int) -> float:
    """Bytes of free blocks that nothing at the loss fits into, by byte of logits; none where a pipeline of
    several ``stages`` keeps what the head gives, which is counted with its outputs."""
    keeps = stages > 1 and software.pipeline.keeps_outputs != "none" and software.kernels.loss_chunks == 1
    return 0.0 if keeps else unusable_share(local, software)


def _capacity_bytes(plan: StepPlan, r: int) -> float:
    """Bytes of HBM of the smallest GPU that a pipeline rank runs on."""
    held = plan.placed.kinds_of(plan.process_groups.stages[r])
    return min(plan.machines[kind].cluster.gpu.hbm_bytes for kind in held)


def stage_buffers(plan: StepPlan, stage: int, sharding: ShardedActions | None) -> Buffers:
    """What a stage takes besides activations as it goes."""
    software, buffers = plan.scenario.software, sharding.buffers(stage) if sharding else Buffers()
    parts = parts_of(plan, (stage,))
    own = sum(part.elements for part in parts)
    if software.kernels.copies_in_update and not plan.scenario.training.offloads_state:
        copied = sum(part.elements for part in parts if part.optimizer.copies)
        buffers = replace(buffers, updating=copied * update_width(plan))
    if gradients_last(plan.scenario, sharding.rule if sharding else None):
        return buffers
    if sharding is None:
        return replace(buffers, gradients=plan.parameters[stage].total * gradient_bytes(plan))
    shard = own * shard_gradient_bytes(plan, sharding.rule)
    # what is reduced at last comes in the place of whole gradients, and is not beside them
    return replace(
        buffers,
        gradients=shard,
        unreduced=max(0.0, buffers.unreduced - shard),
        apart=shard if sharding.rule.own_stream else 0.0,
        in_place=not sharding.rule.reduces_each,
    )


def shard_gradient_bytes(plan: StepPlan, rule: ShardingRule) -> float:
    """Bytes per parameter of the gradients that a rank keeps of its shard; none where they go to the host."""
    offloaded = plan.scenario.training.offloads_state
    if offloaded and rule.reduces_each:
        return 0.0
    return 4.0 if rule.master_only and not offloaded else float(plan.local.grad_bytes)


def _layers_in_flight(plan: StepPlan, actions: Sequence[ActionSpan]) -> int:
    """The most layers, times microbatches, between their forward and their backward; of a forward beside a
    backward one layer, until both have ended.
    """
    pairs = pairs_of(actions)
    changes = list[tuple[float, int]]()
    for span in actions:
        layers = plan.stages[span.stage].layers
        if span.kind in "BI":
            changes.append((span.end_s, -layers))
        elif span.kind == "F":
            paired = (span.start_s, span.end_s) in pairs
            changes += [(span.start_s, 1), (span.end_s, layers - 1)] if paired else [(span.start_s, layers)]
    return max(accumulate(layers for _, layers in sorted(changes)), default=0)


def _in_flight(plan: StepPlan, r: int, host_lead_s: float) -> float:
    """Buffers of tensor-parallel collectives that the host has issued ahead of the GPU."""
    software, costs = plan.scenario.software, plan.costs
    runs = [run for s in plan.held_stages(r) for run in plan.stages[s].runs]
    if not software.exchange.records_streams or plan.local.tp == 1 or not costs.host_s or not runs:
        return 0.0
    forward = plan.blocks.layer(forward_block, runs[0])
    return in_flight_bytes(forward, costs.host_s, costs.check_s("tp"), host_lead_s)


def gradient_bytes(plan: StepPlan) -> float:
    """Bytes of gradient per parameter: the accumulated one, and a 16-bit copy where the software keeps it."""
    gradients, e = plan.scenario.software.gradients, plan.local.element_bytes
    copies = gradients.keeps_copies(plan.scenario.parallelism.zero, plan.groups["dp"].ranks)
    copy = e if copies and plan.local.grad_bytes != e else 0
    return float(plan.local.grad_bytes + copy)


def reducer_bytes(plan: StepPlan) -> float:
    """Bytes per parameter of the buckets that replicas reduce gradients in, where these are copied there."""
    copies = plan.scenario.software.gradients.reducer_copy and plan.groups["dp"].ranks > 1
    return float(plan.local.grad_bytes) if copies else 0.0


def static_terms(
    plan: StepPlan, r: int, sharding: ShardedActions | None, own: Sequence[CommunicatorBuffers]
) -> dict[str, float]:
    """Bytes held all through the step: parameters, gradients, optimizer state, buffers, context."""
    return {
        **state_terms(plan, r, sharding),
        "flat buffers": flat_buffer_bytes(plan, r)[0],
        "communication": sum(one.total for one in own),
        "workspace": workspace_bytes(plan.local, plan.scenario.software),
        "context": CONTEXT_BYTES,
    }


def state_terms(plan: StepPlan, r: int, sharding: ShardedActions | None) -> dict[str, float]:
    """Weights, gradients and optimizer state of a pipeline rank, so far as they stay all step long."""
    e, held = plan.local.element_bytes, plan.held_parameters(r)
    own, master = updated_parameters(plan, r), 4.0 if e != update_width(plan) else 0.0
    training = plan.scenario.training
    on_host = training.offloads_state
    if sharding is None:
        weights = sum(plan.weights_bytes(plan.parameters[s]) for s in plan.held_stages(r))
        gradients = gradient_bytes(plan) if gradients_last(plan.scenario, None) else 0.0
        return {
            "weights": weights * plan.weight_versions(r),
            "gradients": held * (gradients + reducer_bytes(plan)),
            "optimizer": 0.0 if on_host else optimizer_bytes(plan, r, master),
        }
    rule, lasts = sharding.rule, gradients_last(plan.scenario, sharding.rule)
    parameter = 4.0 if rule.master_only and not on_host else float(e)
    master = 0.0 if rule.master_only else master
    return {
        "weights": held * e if rule.gathers == "never" else own * parameter,
        "gradients": own * shard_gradient_bytes(plan, rule) if lasts else 0.0,
        "optimizer": 0.0 if on_host else optimizer_bytes(plan, r, master),
    }


def optimizer_bytes(plan: StepPlan, r: int, master: float) -> float:
    """Bytes of the optimizer's state, with ``master`` bytes of FP32 weight for each parameter."""
    parts = parts_of(plan, plan.held_stages(r))
    return sum(part.state_bytes(plan.scenario.software, master=master) for part in parts)


def workspace_bytes(local: LocalShape, software: Software) -> float:
    """Gathered activations, the widest gradient of the layer at work, and the GEMM library's workspace.

    The widest of unfused attention are its scores: a buffer that the GEMM is written to, which no
    backward needs (Megatron-LM ``matmul_input_buffer``), and the gradient of that size. Those of context
    parallelism are what comes from other ranks.
    """
    gathered = 2 * local.hidden_bytes if local.sequence_parallel else local.hidden_bytes
    scores = local.score_elements * local.element_bytes if software.kernels.attention == "unfused" else 0.0
    return gathered + max(widest_bytes(local), scores, _from_others(local, software)) + GEMM_WORKSPACE_BYTES


def _from_others(local: LocalShape, software: Software) -> float:
    """What attention holds of other ranks; in forward, what the layer keeps behind it is not yet there."""
    forward, backward = received_bytes(local, software)
    wide = float(local.tokens * local.ffn)
    if local.experts:
        wide = local.experts.rows(local.norm_tokens) * local.experts.ffn
    return max(backward, forward - wide * (local.gate + 1) * local.element_bytes)
