"""Which group reduces gradients where every rank holds all parameters: data parallelism, or shards of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...hardware.host_memory import host_memory_of
from ..network.transfer import Transfer
from .sharding.traffic import SHARDS
from .updates.gradients import Gradients
from .updates.offload import Offload

if TYPE_CHECKING:
    from .plan import Plan


def gradients_of(plan: Plan, index: int) -> Gradients:
    """The reductions of pipeline rank ``index``: over a group that shards, and over its replicas."""
    software, groups = plan.scenario.software, plan.groups
    sharded = plan.scenario.parallelism.zero >= 1 and groups.shards.ranks > 1
    hybrid = sharded and groups.replicas.ranks > 1
    group = groups.shards if hybrid else groups.dp

    bucket = max(software.bucket_elements, software.bucket_elements_per_replica * groups.dp.ranks)

    def over_replicas(size: float) -> Transfer:
        return plan.communication.collective("all_reduce", size, groups.replicas)

    return Gradients(
        communicator=SHARDS if hybrid else plan.dp_communicator(index),
        transfer=lambda kind, size: plan.communication.collective(kind, size, group),
        element_bytes=plan.shard.grad_bytes,
        wire_bytes=software.reduce_grad_bytes or plan.shard.grad_bytes,
        bucket_elements=bucket,
        sharded=hybrid or (sharded and software.zero1_reduce_scatters),
        costs=plan.costs,
        shards=groups.shards.ranks if sharded else 1,
        over_replicas=over_replicas if hybrid else None,
        check_s=_calls(plan, bucket) * plan.communication.check_s(group),
        offload=offload_of(plan),
    )


def _calls(plan: Plan, bucket_elements: float) -> float:
    """Host calls for each bucket: fewer than one where a call reduces several."""
    software, shard = plan.scenario.software, plan.shard
    if not software.reduce_call_elements:
        return 1.0
    largest = shard.hidden * shard.ffn * (1 if software.split_gate else shard.gate)
    return min(1.0, bucket_elements / max(software.reduce_call_elements, largest))


def expert_gradients_of(plan: Plan, index: int) -> Gradients:
    """The reductions of experts: over the ranks that hold the same ones."""
    shared, group = gradients_of(plan, index), plan.groups.edp
    return replace(
        shared,
        communicator=plan.edp_communicator(index),
        transfer=lambda kind, size: plan.communication.collective(kind, size, group),
        over_replicas=None,
        check_s=_calls(plan, shared.bucket_elements) * plan.communication.check_s(group),
        reductions=[],
    )


def offload_of(plan: Plan) -> Offload | None:
    """What keeping the optimizer's state on the host costs a rank; None where it stays on the GPU."""
    training = plan.scenario.training
    return offload_link(plan) if training.cpu_offload or training.nvme_offload else None


def offload_link(plan: Plan) -> Offload:
    """What copies between a GPU and its host cost, and updates there."""
    training, software, cluster = plan.scenario.training, plan.scenario.software, plan.cluster
    return Offload(
        host=host_memory_of(cluster.gpu, cluster.gpus_per_node),
        ranks_per_host=min(cluster.gpus_per_node, cluster.gpus),
        gradient_bytes=float(software.reduce_grad_bytes or plan.shard.grad_bytes),
        parameter_bytes=float(plan.shard.element_bytes),
        moment_bytes=float(software.moment_bytes),
        disks=training.nvme_offload,
        host_s=plan.costs.host_s,
    )
