"""Lowers a scenario to programs: rank grid x schedule actions x kernel costs.

One class per pipeline rank: ranks that differ only in their tensor- or data-parallel coordinate
do the same at the same time (structural folding). Each class is lowered once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hardware.profile import load_profile
from ...kernels.cost import kernel_seconds
from ...schedules.pipeline import get as get_schedule
from ...schedules.pipeline.schedule import Shape
from ..network.collectives import Seat, collective_transfer
from .actions import Blocks, build_blocks
from .groups import Groups, build_groups
from .parameters import StageParameters, stage_parameters
from .pipeline import PipelineRank, write_step
from .program import Program, Programs
from .refuse import refuse_unsupported
from .shard import Shard, shard_of
from .stages import Stage, build_stages
from .tape import Costs, Kernel

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ...schedules.pipeline.action import Orders
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Programs, and what they were made of."""

    programs: Programs
    scenario: Scenario
    cluster: Cluster
    profile: GpuProfile
    shard: Shard
    shape: Shape
    orders: Orders
    stages: tuple[Stage, ...]
    parameters: tuple[StageParameters, ...]
    groups: Groups
    blocks: Blocks
    kernels: tuple[Kernel, ...]


def lower(scenario: Scenario, cluster: Cluster, *, profile: GpuProfile | None = None) -> Lowered:
    """Programs of every class of ranks, with the shipped profile of the GPU unless one is given.

    Raises NotSupported naming the field that cannot be modelled.
    """
    profile = profile or load_profile(cluster.gpu.name)
    refuse_unsupported(scenario, profile)
    shard, stages = shard_of(scenario), build_stages(scenario)
    groups = build_groups(scenario, cluster)
    kernels: dict[Kernel, float] = {}
    costs = _costs(scenario, cluster, profile, groups, kernels)
    blocks = build_blocks(shard, scenario.software, costs, _partial_recompute(scenario))
    shape = Shape(
        ranks=scenario.parallelism.pp, microbatches=scenario.num_microbatches, chunks=scenario.parallelism.vpp
    )
    schedule = get_schedule("gpipe" if scenario.schedule == "none" else scenario.schedule)
    orders = one_rank_order(shape) if scenario.schedule == "none" else schedule.orders(shape)
    parameters = tuple(stage_parameters(stage, shard, scenario) for stage in stages)
    ranks = [
        PipelineRank(
            index=r,
            scenario=scenario,
            cluster=cluster,
            shard=shard,
            shape=shape,
            order=orders[r],
            stages=stages,
            parameters=parameters,
            blocks=blocks,
            costs=costs,
            groups=groups,
        )
        for r in range(shape.ranks)
    ]
    programs = Programs(
        classes=tuple(Program(ops=tuple(ops)) for ops in write_step(ranks, orders, schedule)),
        communicators=_communicators(scenario),
        links=(_links(cluster),) * shape.ranks,
        sms=cluster.gpu.sms,
        corun_slowdown=profile.corun_slowdown,
    )
    return Lowered(
        programs=programs,
        scenario=scenario,
        cluster=cluster,
        profile=profile,
        shard=shard,
        shape=shape,
        orders=orders,
        stages=stages,
        parameters=parameters,
        groups=groups,
        blocks=blocks,
        kernels=tuple(kernels),
    )


def one_rank_order(shape: Shape) -> Orders:
    """Gradient accumulation without a pipeline: each microbatch forward, then backward."""
    from ...schedules.pipeline.action import Action, Kind

    return (
        tuple(
            Action(0, kind, k) for k in range(shape.microbatches) for kind in (Kind.FORWARD, Kind.BACKWARD)
        ),
    )


def _partial_recompute(scenario: Scenario) -> str:
    recompute = scenario.training.recompute
    return "selective" if recompute == "selective" else "none"


def _costs(
    scenario: Scenario, cluster: Cluster, profile: GpuProfile, groups: Groups, kernels: dict[Kernel, float]
) -> Costs:
    software, measured = scenario.software, scenario.cluster.measured_network

    def seconds(kernel: Kernel) -> float:
        if kernel not in kernels:
            kernels[kernel] = kernel_seconds(kernel, cluster.gpu, profile)
        return kernels[kernel]

    host_s = 0.0 if software.cuda_graphs else software.host_s_per_kernel
    return Costs(
        seconds=seconds,
        transfer=lambda kind, size: collective_transfer(kind, size, groups.tp, cluster, measured),
        host_s=host_s,
        host_collective_s=software.launches_per_collective * host_s,
    )


def _communicators(scenario: Scenario) -> dict[str, tuple[int, ...]]:
    pp = scenario.parallelism.pp
    return {"world": tuple(range(pp)), **({"embedding": (0, pp - 1)} if pp > 1 else {})}


def _links(cluster: Cluster) -> dict[str, float]:
    nvlink = max(cluster.gpu.nvlink_bytes_per_s, cluster.gpu.nccl_nvlink_bytes_per_s)
    network = cluster.nic_bytes_per_s_per_gpu if cluster.nodes > 1 else cluster.gpu.pcie_bytes_per_s
    return {"nvlink.out": nvlink, "nvlink.in": nvlink, "nic.out": network, "nic.in": network}


__all__ = ["Lowered", "Seat", "lower", "one_rank_order"]
