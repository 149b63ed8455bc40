"""Buffers for which the caching allocator reserves new memory, since no block that activations have freed can
hold them.

torch's caching allocator serves a request from the smallest free block that holds it, splits what is left of
that, and joins nothing that was allocated apart. When a step ends, what is free are blocks of activations,
each as large as one of their tensors; what is larger than all of them is allocated anew, and stays reserved.

- DeepSpeed's flat buffers are larger than any.
- nanotron gathers the parameters that ZeRO-1 updated as lists: a flat buffer of what a rank gives, one of
  what comes from each rank, and the one of all of it that torch's all_gather makes for itself. Moments of the
  optimizer, which the first update allocates, take blocks of activations where their shards fit in; what
  finds those taken in the next step lies in the buffers of the gather, which are free then. So of moments
  that fit in and buffers that do not, the larger count.
- Where it gathers nothing, no such buffer is there for the fresh gradient of the table of embeddings, which
  ends a backward.

Where the GPU has no room for such a buffer, the allocator gives back all free segments before it fails. Those
of activations are free by then, and the next step splits the buffer's blocks for its activations: of both the
larger is needed, and not their sum (memory.py).

Sources:
    torch: c10/cuda/CUDACachingAllocator.cpp (get_free_block, should_split, alloc_block; malloc: what it tries
        before it fails, release_cached_blocks last); ProcessGroupNCCL.cpp (allgather: newLikeFlat).
    nanotron: distributed.py (all_gather_coalesced), optim/zero.py (_all_gather_params),
        optim/gradient_accumulator.py (backward: fresh gradients are let go once they are added).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layers.loss import logit_bytes
from .optimizers import shard_ranks, updated_parameters
from .parameters import OF_EXPERTS
from .tensors import tensors_of

if TYPE_CHECKING:
    from .layers.local_shape import LocalShape
    from .plan import StepPlan


def flat_buffer_bytes(plan: StepPlan, r: int) -> tuple[float, float]:
    """Bytes of a pipeline rank's buffers that fit into no block which activations have freed; and how many
    of them are allocated when all activations are gone, after the last backward."""
    gradients, local = plan.scenario.software.gradients, plan.local
    late = 0.0
    if gradients.reduction == "nanotron-buckets" and local.grad_bytes > local.element_bytes:
        late = _beyond_blocks(plan, r)  # without FP32 gradients it has no such buffers
    if gradients.wrapper == "deepspeed" and local.grad_bytes < 4:
        late += 4.0 * updated_parameters(plan, r)
    flat = gradients.flat_buffers(plan.scenario.training.precision)
    return local.element_bytes * min(plan.held_parameters(r), flat) + late, late


def widest_bytes(local: LocalShape) -> float:
    """Bytes of the widest tensor of a layer at work: the branches of an MLP, or the rows of experts."""
    widest = float(local.tokens * local.ffn * local.gate * local.element_bytes)
    if local.experts:
        rows = local.experts.rows(local.norm_tokens) * local.element_bytes
        # an exchange's rows as they arrive and sorted; the gradient of all branches
        widest = max(widest, 2 * rows * local.hidden, rows * (local.hidden + local.experts.ffn * local.gate))
    return widest


def _beyond_blocks(plan: StepPlan, r: int) -> float:
    """nanotron's: buffers of the gather of what was updated, or the gradient of the table."""
    e, local, gradients = plan.local.element_bytes, plan.local, plan.scenario.software.gradients
    stages = [plan.stages[s] for s in plan.held_stages(r)]
    logits = float(local.tokens * local.vocabulary * logit_bytes(local, plan.scenario.software))
    block = max(
        widest_bytes(local),
        float(local.tokens * local.qkv_width * e),
        local.hidden_bytes,
        logits if any(stage.loss for stage in stages) else 0.0,
    )
    if not gradients.reduces_at_once(plan.scenario.parallelism.zero):
        table = e * max(plan.parameters[s].embedding for s in plan.held_stages(r))
        return table if table > block else 0.0
    whole, own = e * plan.held_parameters(r), e * updated_parameters(plan, r)
    if own >= whole:  # nobody to gather from
        return 0.0
    asked = (whole if whole > block else 0.0) + (whole + own if own > block else 0.0)
    return max(0.0, asked - _moments_within(plan, r, block))


def _moments_within(plan: StepPlan, r: int, block: float) -> float:
    """Bytes of the optimizer's states of a rank whose shards fit into ``block``, each a tensor by itself."""
    training, software = plan.scenario.training, plan.scenario.software
    spec, moment = training.optimizer, software.gradients.moment_bytes
    if training.offloads_state or spec.row.orthogonalizes:
        return 0.0
    each = float(spec.row.state_bytes(moment, momentum=spec.momentum))
    shards, found = shard_ranks(plan), 0.0
    for stage in plan.held_stages(r):
        for parameter, _ in tensors_of(plan, stage):
            ranks = shards[parameter.replicated_over == OF_EXPERTS]
            own = parameter.elements / parameter.count / ranks
            found += parameter.count * own * each if own * moment <= block else 0.0
    return found
