"""Which group reduces gradients where every rank holds all parameters: data parallelism, or shards of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..network.transfer import Transfer
from ..program.program import Collective
from ..program.program_builder import ProgramBuilder
from .gather_chain import buckets_of
from .parameters import count_of, table_parameter
from .sharding.communicators import EXPERT_REPLICAS, EXPERT_SHARDS, REPLICAS, SHARDS
from .tensors import tensor_count, tensors_of
from .updates.gradients import Gradients

if TYPE_CHECKING:
    from ..network.collectives import GroupPlacement
    from .plan import StepPlan
    from .updates.offload import Offload


def gradients_of(plan: StepPlan, index: int) -> Gradients:
    """The reductions of pipeline rank ``index``: over a group that shards, and over its replicas."""
    groups = plan.groups
    whole = plan.dp_communicator(index), groups["dp"]
    reductions = _reductions(plan, whole, (SHARDS, groups["fsdp"]), (REPLICAS, groups["hsdp"]))
    software = plan.scenario.software.gradients
    rule = software.reduction
    zero = plan.scenario.parallelism.zero
    if rule == "nanotron-buckets" and zero >= 1:
        reductions.listed = tensor_count(plan, plan.held_stages(index))
        reductions.listed_bytes = plan.held_elements(index).shared * plan.local.element_bytes
        reductions.copy_host_s *= plan.profile.steps.host * plan.cluster.node.launch_factor
    elif software.zero1_broadcasts and zero == 1:
        _own(plan, index, reductions, experts=False)
    if software.reduces_at_once(zero):
        reductions.bucket_elements = math.inf
    elif rule in ("nanotron-buckets", "megatron-buckets"):
        reductions.flat = rule == "megatron-buckets"
        reductions.uncut = _uncut(plan, index, one_input=reductions.flat)
        if reductions.flat and reductions.sharded:
            reductions.last_buckets = _last_buckets(plan, index)
    return reductions


def gathers_apart(plan: StepPlan) -> bool:
    """Whether matrices in 8 bits have a buffer of buckets of their own, so that all else is reduced with the
    last of these (Megatron core's partition_buckets)."""
    return plan.local.weights.gathered < plan.local.element_bytes


def _last_buckets(plan: StepPlan, index: int) -> int:
    """How many buckets a rank reduces together at the end: those of what is not in 8 bits, as norms and the
    tables are. They are filled one after the other, and close with the parameter that fills them."""
    if not gathers_apart(plan):
        return 1
    limit = plan.scenario.software.gradients.bucket(plan.groups["dp"].ranks)
    held = []
    for stage in plan.held_stages(index):
        wide = [one for one, in_layer in tensors_of(plan, stage) if not (in_layer and one.is_matrix)]
        held.append(max(buckets_of([float(one.elements) for one in wide], limit), default=0) + 1)
    return max(held, default=1)


def _own(plan: StepPlan, index: int, reductions: Gradients, *, experts: bool) -> None:
    """Let each rank own whole parameters of ``experts``, or of everything else. At most as many ranks own
    some as there are tensors."""
    held, tensors = plan.held_elements(index), 0
    for stage in plan.held_stages(index):
        tensors += sum(("edp" in one.replicated_over) == experts for one, _ in tensors_of(plan, stage))
    reductions.owners = min(reductions.shards, tensors)
    reductions.listed_bytes = (held.experts if experts else held.shared) * plan.local.element_bytes


def _uncut(plan: StepPlan, index: int, *, one_input: bool) -> Mapping[float, tuple[float, ...]]:
    """Of each kind of dense layer, by its elements, those of its parameters as backward comes by them; the
    same of its MLP, and of what that multiplies its input with.

    Norms and biases go with the first of attention; what is no dense layer is one parameter. ``one_input``:
    so is what a gated MLP multiplies its input with (Megatron core's linear_fc1).
    """
    found: dict[float, tuple[float, ...]] = {}
    for stage in plan.held_stages(index):
        for kind, (_, listed) in plan.parameters[stage].of_layers.items():
            if kind.experts or kind.prediction or plan.local.latent:
                continue
            each = {parameter.name: parameter for parameter in listed}
            branches = each["mlp in"]
            own = [float(each["mlp out"].elements)]
            count = 1 if one_input else branches.count
            own += [float(branches.elements) / count] * count
            of_mlp = tuple(own)
            own.append(float(each["projection"].elements))
            whole = float(count_of(listed))
            found |= {sum(of_mlp): of_mlp, sum(of_mlp[1:]): of_mlp[1:]}
            found[whole] = (*own, whole - sum(own))
    return found


def expert_gradients_of(plan: StepPlan, index: int) -> Gradients:
    """The reductions of experts: over the ranks that hold the same ones, which shard and replicate too."""
    groups = plan.groups
    whole = plan.edp_communicator(index), groups["edp"]
    shards, replicas = (EXPERT_SHARDS, groups["efsdp"]), (EXPERT_REPLICAS, groups["ehsdp"])
    reductions = _reductions(plan, whole, shards, replicas)
    if plan.scenario.software.gradients.zero1_broadcasts and plan.scenario.parallelism.zero == 1:
        _own(plan, index, reductions, experts=True)
    return reductions


def _reductions(
    plan: StepPlan,
    whole: tuple[str, GroupPlacement],
    shards: tuple[str, GroupPlacement],
    replicas: tuple[str, GroupPlacement],
) -> Gradients:
    """Over the ``whole`` group, or over ``shards`` of it and then over equal ones, its ``replicas``."""
    software = plan.scenario.software
    sharded = plan.scenario.parallelism.zero >= 1 and shards[1].ranks > 1
    hybrid = sharded and replicas[1].ranks > 1
    communicator, group = shards if hybrid else whole

    def over_replicas(size: float) -> Transfer:
        return plan.communication.collective("all_reduce", size, replicas[1])

    return Gradients(
        communicator=communicator,
        transfer=lambda kind, size: plan.communication.collective(kind, size, group),
        element_bytes=plan.local.grad_bytes,
        wire_bytes=software.gradients.reduce_grad_bytes or plan.local.grad_bytes,
        bucket_elements=software.gradients.bucket(plan.groups["dp"].ranks),
        sharded=hybrid or (sharded and software.gradients.reduce_scatters(plan.scenario.training.precision)),
        costs=plan.costs,
        shards=shards[1].ranks if sharded else 1,
        over_replicas=over_replicas if hybrid else None,
        check_s=plan.communication.check_s(group),
        replicas=replicas[0],
        offload=offload_of(plan),
        nan_check=software.gradients.nan_check,
        scaled_first=software.gradients.scaled_first,
        in_turn=software.exchange.collectives_in_turn,
        copied_back=software.gradients.reducer_copy,
    )


def shares_table(plan: StepPlan, index: int) -> bool:
    """Whether this pipeline rank shares a word table with another one: the first and the last stage both
    hold it, and are on different ranks."""
    model, ends = plan.scenario.model, (plan.rank_of(0), plan.rank_of(plan.shape.stages - 1))
    return model.table_at_both_ends and not plan.ends_meet and index in ends


def reduce_shared_table(plan: StepPlan, index: int, writer: ProgramBuilder) -> None:
    """Append the reduction of a table's gradient between the first and the last stage, if both hold it."""
    if not shares_table(plan, index):
        return
    size = float(table_parameter("embedding", plan.local).elements * plan.local.grad_bytes)
    transfer = plan.communication.collective("all_reduce", size, plan.groups["embedding"], scaled=False)
    work = Collective("all_reduce", "embedding", transfer)
    host_s = plan.costs.host_collective_s + plan.communication.check_s(plan.groups["embedding"])
    writer.wait(writer.on_stream("embedding gradient all_reduce", "world", "pp", work, host_s=host_s))


def offload_of(plan: StepPlan) -> Offload | None:
    """What keeping the optimizer's state on the host costs a rank; None where it stays on the GPU."""
    training = plan.scenario.training
    return offload_link(plan) if training.offloads_state else None


def offload_link(plan: StepPlan) -> Offload:
    """What copies between a GPU and its host cost, and updates there."""
    from ...hardware.host_memory import host_memory_of
    from .updates.offload import Offload

    training, software, cluster = plan.scenario.training, plan.scenario.software, plan.cluster
    return Offload(
        host=host_memory_of(cluster.gpu, cluster.node, cluster.gpus_per_node),
        ranks_per_host=min(cluster.gpus_per_node, cluster.gpus),
        gradient_bytes=float(software.gradients.reduce_grad_bytes or plan.local.grad_bytes),
        parameter_bytes=float(plan.local.element_bytes),
        moment_bytes=float(software.gradients.moment_bytes),
        disks=training.nvme_offload,
        threads=software.host.update_threads,
        host_s=plan.costs.host_s,
    )
