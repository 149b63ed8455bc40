"""How a framework shards: when parameters are gathered and freed, when gradients are reduced.

One rule for a scenario, from its ZeRO stage, its pipeline and the software's implementation. ZeRO-0 and
ZeRO-1 have none: there every rank holds all parameters and reduces once a step (updates/gradients.py),
as a distributed optimizer does under ZeRO-2 too.

Sources:
    fsdp1: torch/distributed/fsdp/_runtime_utils.py (_pre_forward_unshard, _post_backward_hook,
        _root_pre_forward; the root is not resharded after forward; _post_backward_hook casts to the type of
        the reduction, in _post_backward_stream, where _reduce_grad divides by _gradient_predivide_factor
        before it reduces, into a shard that it allocates there),
        _exec_order_utils.py, _flat_param.py (_get_unflat_views: parameters are parts of a split, whose
        backward joins gradients).
    fsdp2: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, _fsdp_collectives.py (foreach_reduce
        allocates reduce_output, which gradients of shards are views of, in reduce_scatter_stream); torchtitan
        models/llama3/infra/parallelize.py, apply_fsdp (reshard_after_forward is ``not pp_enabled``, and
        False for the final norm and head); torch/distributed/pipelining/stage.py, backward_maybe_with_nosync
        (under a pipeline gradients stay unsharded until a stage's last backward, then all are reduced).
    deepspeed: runtime/zero/partitioned_param_coordinator.py (fetch_sub_module), stage3.py (which makes
        grad_partitions_flat_buffer once, of all gradients of a rank's shards), stage_1_and_2.py,
        runtime/zero/config.py; runtime/pipe/engine.py refuses ZeRO-2 and -3. Without overlap_comm gathers
        and reductions are issued on the stream that computes: nothing runs beside them (parameter_offload.py,
        __allgather_stream; stage3.py, reduce_and_partition_stream; stage_1_and_2.py, average_tensor).
    xla: openxla/xla xla/service/gpu/gpu_latency_hiding_scheduler.cc at 019c04ae (NodeCost: "the LHS will try
        to schedule approximately 5 of these", GEMMs and other calls of libraries, between a collective's
        start and its end; GetNumAvailableResources: one outstanding collective);
        xla/service/collective_utils.h (what combines).
    megatron-fsdp: megatron/core/distributed/fsdp/src/megatron_fsdp (AllGatherPipeline, GradReducePipeline;
        buffers of gradients are made with the model).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .refusal import NotSupported

if TYPE_CHECKING:
    from .models import Scenario
    from .software.sharding import ShardingSoftware

MATRICES = 4  # of a layer: QKV, projection, two of the MLP; each is fetched with its module

PRODUCTS_EACH = 5
"""GEMMs that XLA's scheduler wants between the start of a collective and its end, whatever both take."""

When = Literal["never", "once", "each"]


@dataclass(frozen=True, kw_only=True)
class ShardingRule:
    """When a framework gathers sharded parameters and reduces gradients, and in which pieces.

    - When parameters are gathered: ``gathers`` is never (each rank holds them whole), once a step (by a
      stage's first forward), or by each microbatch; ``regathers``: backward gathers what forward freed;
      ``gathers_again``: where a layer too large to be joined is recomputed, its backward gathers it once
      more.
    - When gradients are reduced: after each microbatch (``reduces_each``), or only with the last one: layer
      by layer in its backward (``beside_last``), or all after it. Gradients that wait are whole, and with
      ``waits_narrow`` of the GEMMs' type, so that they are cast as they are reduced. ``lasting``: gradients
      of shards lie in one buffer all step long, whatever software.gradients says.
    - Units: with ``root``, embedding, final norm and head are one unit, which is gathered first and kept
      until the end of backward; otherwise embedding and head are units of their own, and ``keeps_head``:
      forward keeps the head. Neighbouring layers of up to ``together`` elements are one unit. A layer too
      large to be joined takes ``calls`` gathers, one a matrix, and its experts ``expert_calls``.
      ``by_matrices``: the matrices of a unit are gathered and reduced one by one, joined up to so many bytes
      for each kind of collective (``combine_gathers``, ``combine_scatters``, ``combine_reductions``);
      ``combine_layers``: all-reduces are joined across layers, too.
      Parameters of fewer than ``persistent`` elements are not sharded.
    - How far ahead: at most ``live`` elements are gathered before their turn. ``in_turn``: nothing is; the
      first matrix of a layer is gathered before it, and the others while it computes. ``waits``: compute
      waits for each reduction; ``gathers_alone``: and for each gather. ``lists``: and the host waits as well,
      before and behind each of them, so that nothing runs while Python makes a list of a tensor a rank
      (DeepSpeed of 2021: partition_parameters.py, _allgather_param and _reduce_scatter_gradient; stage3.py,
      _synchronize_communication; pull request 1188: "the async version is not async at all", issue 1069:
      prefetches were skipped). ``products_each``: a scheduler that
      knows no times lets one collective overlap so many GEMMs, and compute waits for collectives without
      GEMMs to hide them; 0: no such scheduler.
    - Buffers: ``reduce_bucket`` elements are reduced together (0: a unit at a time). ``copies_out``: gathered
      parameters are copied into place; ``copies_in``: gradients are copied into the buffer that is reduced.
      ``flat``: that buffer is one tensor of the GEMMs' type, which autograd joins from its parts, and which
      is cast to the reduction's type and divided by the ranks in passes of their own. ``master_only``: a rank
      holds FP32 parameters alone, and casts its shard whenever it is gathered. ``own_stream``: shards of
      gradients are allocated in the stream that reduces them.
    """

    gathers: When
    regathers: bool = False
    reduces_each: bool = True
    beside_last: bool = False
    waits_narrow: bool = False
    root: bool = False
    keeps_head: bool = False
    together: float = 0.0
    live: float = math.inf
    reduce_bucket: float = 0.0
    copies_out: bool = False
    copies_in: bool = False
    flat: bool = False
    persistent: float = 0.0
    master_only: bool = False
    own_stream: bool = False
    in_turn: bool = False
    waits: bool = False
    gathers_alone: bool = False
    lists: bool = False
    products_each: int = 0
    by_matrices: bool = False
    combine_gathers: float = math.inf
    combine_scatters: float = math.inf
    combine_reductions: float = math.inf
    combine_layers: bool = False
    calls: int = 1
    expert_calls: int = 1
    gathers_again: bool = False
    lasting: bool = False


def sharding_rule(scenario: Scenario) -> ShardingRule | None:
    """The rule of ``scenario``, None below ZeRO-2. Raises NotSupported where the software has none."""
    zero, pipelined = scenario.parallelism.zero, scenario.parallelism.pp > 1
    software, sharding = scenario.software, scenario.software.sharding
    implementation = sharding.implementation
    if zero < 2 or (zero == 2 and implementation == "distributed-optimizer"):
        return None
    if implementation == "distributed-optimizer":
        reason = f"{software.name} keeps whole parameters (known: 0, 1, 2); set software.sharding, e.g. fsdp2"
        raise NotSupported("parallelism.zero", reason)
    if implementation in ("fsdp1", "fsdp2", "xla"):
        rule = _torch(
            implementation == "fsdp1",
            pipelined,
            sharding.reshard_after_forward,
            zero,
            once=sharding.reduce == "last" and scenario.num_microbatches > 1,
            in_turn=not sharding.gathers_ahead,
            waits=software.exchange.collectives_in_turn or not software.gradients.overlap_grad_reduce,
            casts=software.gradients.update_bytes(scenario.training.precision) == 4,
        )
        return rule if implementation != "xla" else _xla(rule, sharding)
    if implementation == "deepspeed":
        return _deepspeed(scenario)
    return ShardingRule(
        gathers="each" if zero == 3 else "never",
        regathers=zero == 3,
        lasting=True,
    )


def _deepspeed(scenario: Scenario) -> ShardingRule:
    """DeepSpeed's stages 2 and 3. Raises NotSupported in a pipeline."""
    zero, software = scenario.parallelism.zero, scenario.software
    sharding = software.sharding
    if scenario.parallelism.pp > 1:
        reason = f"DeepSpeed's pipeline engine takes ZeRO 0 or 1, not {zero} (runtime/pipe/engine.py)"
        raise NotSupported("parallelism.zero", reason)
    lists = sharding.lists and zero == 3
    overlaps = software.gradients.overlap_grad_reduce and not lists
    return ShardingRule(
        gathers="each" if zero == 3 else "never",
        regathers=zero == 3,
        together=0.0 if lists else sharding.prefetch_elements,
        live=sharding.max_live_elements,
        reduce_bucket=software.gradients.bucket(),
        copies_in=True,
        copies_out=lists,
        lists=lists,
        gathers_alone=not overlaps,
        waits=not overlaps,
        persistent=sharding.persistent_elements if zero == 3 else 0.0,
        calls=MATRICES,
        expert_calls=_expert_modules(scenario),
        gathers_again=True,
        lasting=zero == 3,
    )


def _expert_modules(scenario: Scenario) -> int:
    """Gathers of a layer's experts: what a module holds is fetched when it runs, and experts in a loop are
    modules of a matrix each (partitioned_param_coordinator.py, fetch_sub_module; Transformers models/
    qwen3_moe, Qwen3MoeMLP)."""
    moe, kernels = scenario.model.moe, scenario.software.kernels
    if moe is None or kernels.expert_operators != "loop":
        return MATRICES
    branches = 2 if kernels.split_gate and scenario.model.mlp == "swiglu" else 1
    return moe.num_experts * (branches + 1)


def gradients_last(scenario: Scenario, rule: ShardingRule | None) -> bool:
    """Whether gradients lie in a buffer all step long, and do not come with a step's first backward."""
    return scenario.software.gradients.persistent_gradients or (rule is not None and rule.lasting)


def _xla(rule: ShardingRule, sharding: ShardingSoftware) -> ShardingRule:
    """Collectives in their places without copies, one at a time beside GEMMs (``PRODUCTS_EACH``), unless
    what all take is known."""
    return replace(
        rule,
        copies_out=False,
        copies_in=False,
        own_stream=False,
        products_each=0 if sharding.profile_guided else PRODUCTS_EACH,
        by_matrices=True,
        combine_gathers=sharding.combine_gather_bytes,
        combine_scatters=sharding.combine_scatter_bytes,
        combine_reductions=sharding.combine_reduce_bytes,
        combine_layers=sharding.unrolled,
    )


def same_stages(scenario: Scenario) -> list[int]:
    """ZeRO stages from 1 to that of ``scenario`` which its software makes the same of."""
    parallel, rule = scenario.parallelism, sharding_rule(scenario)
    found = []
    for zero in range(1, parallel.zero):
        other = scenario.model_copy(update={"parallelism": parallel.model_copy(update={"zero": zero})})
        try:
            if sharding_rule(other) == rule:
                found.append(zero)
        except NotSupported:
            continue
    return [*found, parallel.zero]


def _torch(
    flat: bool,
    pipelined: bool,
    reshards: str,
    zero: int,
    *,
    once: bool,
    in_turn: bool,
    waits: bool,
    casts: bool,
) -> ShardingRule:
    """Units of torch: one prefetched ahead, if any is, one reduction at a time; ``once`` a step, or in a
    pipeline, if at all, after its last backward.
    """
    frees = zero == 3 and (reshards == "always" or (reshards == "default" and not pipelined))
    return ShardingRule(
        gathers="once" if pipelined and not frees else "each",
        regathers=frees,
        reduces_each=not (pipelined or once),
        beside_last=once and not pipelined,
        waits_narrow=flat,
        root=flat,
        keeps_head=reshards != "always",
        copies_out=not flat,
        copies_in=True,
        flat=flat,
        master_only=casts,
        own_stream=True,
        in_turn=in_turn,
        waits=waits,
    )
