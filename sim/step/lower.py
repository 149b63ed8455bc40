"""Lowers a scenario to programs: rank grid x schedule actions x kernel costs.

One class per pipeline rank: ranks that differ only in their tensor- or data-parallel coordinate
do the same at the same time (structural folding). Each class is lowered once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...hardware.profile import load_profile
from ...kernels.cost import kernel_seconds
from ...schedules.orders.schedule import Shape
from ...schedules.pipeline import get as get_schedule
from ..network.collectives import Seat, collective_transfer
from .actions import build_blocks
from .groups import Groups, build_groups
from .parameters import stage_parameters
from .pipeline import write_step
from .plan import Plan
from .program import Program, Programs
from .refuse import refuse_unsupported
from .shard import shard_of
from .stages import build_stages
from .tape import Costs, Kernel

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.action import Orders
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Programs, and the plan that they were written from."""

    programs: Programs
    plan: Plan


def lower(scenario: Scenario, cluster: Cluster, *, profile: GpuProfile | None = None) -> Lowered:
    """Programs of every class of ranks, with the shipped profile of the GPU unless one is given.

    Raises NotSupported naming the field that cannot be modelled.
    """
    plan = make_plan(scenario, cluster, profile or load_profile(cluster.gpu.name))
    programs = Programs(
        classes=tuple(Program(ops=tuple(ops)) for ops in write_step(plan)),
        communicators=_communicators(scenario),
        links=(_links(cluster),) * plan.shape.ranks,
        sms=cluster.gpu.sms,
        corun_slowdown=plan.profile.corun_slowdown,
    )
    return Lowered(programs=programs, plan=plan)


def make_plan(scenario: Scenario, cluster: Cluster, profile: GpuProfile) -> Plan:
    """Sizes, stages, orders, groups and blocks of a step."""
    refuse_unsupported(scenario, profile)
    par = scenario.parallelism
    shape = Shape(ranks=par.pp, microbatches=scenario.num_microbatches, chunks=par.vpp)
    schedule = get_schedule("gpipe" if scenario.schedule == "none" else scenario.schedule)
    shard, stages, groups = shard_of(scenario), build_stages(scenario), build_groups(scenario, cluster)
    kernels: dict[Kernel, float] = {}
    costs = _costs(scenario, cluster, profile, groups, kernels)
    blocks = build_blocks(shard, scenario.software, costs, _partial_recompute(scenario))
    return Plan(
        scenario=scenario,
        cluster=cluster,
        profile=profile,
        shard=shard,
        shape=shape,
        orders=one_rank_order(shape) if scenario.schedule == "none" else schedule.orders(shape),
        rank_of=schedule.rank_of,
        stages=stages,
        parameters=tuple(stage_parameters(stage, shard, scenario) for stage in stages),
        groups=groups,
        blocks=blocks,
        costs=costs,
        kernels=tuple(kernels),
    )


def one_rank_order(shape: Shape) -> Orders:
    """Gradient accumulation without a pipeline: each microbatch forward, then backward."""
    from ...schedules.orders.action import Action, Kind

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
