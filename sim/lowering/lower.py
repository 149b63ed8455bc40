"""Lowers a scenario to programs: rank grid x schedule actions x kernel costs.

There is one program for each pipeline rank: ranks that differ only in their tensor- or data-parallel
coordinate do the same at the same time (structural folding). Where a router gives experts unequal loads, or
where groups of one axis are placed differently, there is one program for each load and placement that occurs.
Each program is written once.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.calibrated.overlay import calibrated_profile
from ...schedules.orders.schedule import holders, stage_to_rank
from ..program.program import Binding, Op, Program, Programs
from ..scenario.refusal import NotSupported
from ..scenario.schedules import schedule_named
from .actions import Blocks
from .common_to_layouts import Found, SearchCache, ordered_by, runs_pairs
from .communication import Communication
from .layers.local_shape import LocalShape, boundary_bytes, local_shape_of
from .layers.routing import distinct_loads, rank_loads
from .layers.stages import build_stages
from .machines import communication_of, machines_of, refuse_different
from .pipeline import StepWriters
from .placed_groups import PlacedGroups, RankGroups, gpus, kinds
from .placements import Placements, distinct_placements, used_groups
from .plan import StepPlan
from .pricing import kernel_pricing
from .process_groups import ProcessGroups
from .profiled_costs import overlaps, profiled_shape
from .refuse import refuse_unsupported
from .stage_parameters import all_stage_parameters
from .state.activations import activation_bytes
from .step_kind import step_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.action import Orders
    from ...schedules.orders.schedule import Schedule, Shape
    from ..scenario.models import Scenario


MOST_PROGRAMS = 1024
"""Programs that are written of one job."""


@dataclass(frozen=True, kw_only=True)
class Lowered:
    """Programs, and the plan that they were written from.

    ``program_of`` is the number of the program of every rank. With unequal expert ``loads`` there are
    programs for each load, those of the heaviest first; ``plan`` is that of the heaviest load and of rank 0.
    Programs name communicators and peers as if there were one program for each pipeline rank.
    """

    programs: Programs
    plan: StepPlan
    program_of: NDArray[np.int64]
    loads: tuple[float, ...] = (1.0,)

    @property
    def alike(self) -> bool:
        """Whether all ranks of a pipeline rank run one program."""
        return len(self.programs.classes) == self.plan.shape.ranks


def lower(
    scenario: Scenario,
    cluster: Cluster,
    *,
    profile: GpuProfile | None = None,
    skips: bool = False,
    cache: SearchCache | None = None,
    like: StepPlan | None = None,
) -> Lowered:
    """The programs of every class of ranks. ``profile`` replaces the one that the scenario names.

    ``skips``: the step's gradients overflow, so that nothing is updated. ``cache``: results that the layouts
    of one search share. ``like``: the plan of a step that differs only in its number of microbatches.

    Raises NotSupported naming the field that cannot be modelled.
    """
    used = profile or calibrated_profile(cluster.gpu, scenario.calibration)
    plan = of_other_length(like, scenario, cache) if like else make_plan(scenario, cluster, used, cache)
    if skips:
        plan = replace(plan, skips=True)
    loads = distinct_loads(scenario)
    program_of, written = _written(plan, loads, cache)
    machines = [plan.machines[kind] for kind in _kinds(plan, program_of, len(written))]
    programs = Programs(
        classes=tuple(Program(ops=tuple(ops)) for ops in written),
        communicators=joined_communicators(plan),
        links=tuple(links_of(machine.cluster) for machine in machines),
        bindings=tuple(Binding(sms=machine.cluster.gpu.sms) for machine in machines)
        if len(plan.machines) > 1
        else (),
        sms=cluster.gpu.sms,
        corun_slowdown=plan.profile.corun_slowdown,
        ends=plan.ends,
    )
    return Lowered(programs=programs, plan=plan, program_of=program_of, loads=loads)


def _kinds(plan: StepPlan, program_of: NDArray[np.int64], programs: int) -> list[int]:
    """For each program, the number of the kind of GPU that runs it."""
    kind = plan.placed.kind
    if kind is None:
        return [0] * programs
    first = np.unique(program_of, return_index=True)[1]
    found: list[int] = kind[first].tolist()
    return found


def _written(
    plan: StepPlan, loads: tuple[float, ...], cache: SearchCache | None
) -> tuple[NDArray[np.int64], list[list[Op]]]:
    """The number of the program of every rank, and the programs, in the order of load, pipeline rank,
    placement.

    Raises NotSupported for more programs than can sensibly be written.
    """
    placements, pp = plan.placements, plan.shape.ranks
    stage, count = plan.process_groups.pipeline_rank, len(placements.first)
    written_of, program_of = np.arange(pp), stage
    if len(loads) * count > 1:
        key = (_load_numbers(plan, loads) * pp + stage) * count + placements.of_rank
        written_of, program_of = np.unique(key, return_inverse=True)
    if len(written_of) > max(MOST_PROGRAMS, len(loads) * pp):
        raise NotSupported(
            "cluster.placement",
            f"it places the groups of the job in {count:,} ways, which takes {len(written_of):,} programs "
            f"(at most {MOST_PROGRAMS:,}); place hosts in order, or set cluster.gpus_per_domain so that "
            "groups fill NVLink domains",
        )
    wanted: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, kind in enumerate(written_of.tolist()):
        place, placement = divmod(kind, count)
        wanted.setdefault((place // pp, placement), []).append((number, place % pp))
    step, written = StepWriters(plan, cache), list[list[Op]]([[]] * len(written_of))
    for (heavy, placement), programs in wanted.items():
        placed = plan.of_load(loads[heavy]).of_groups(placements.first[placement])
        for (number, _), ops in zip(programs, step.write(placed, [r for _, r in programs]), strict=True):
            written[number] = ops
    return program_of.ravel(), written


def make_plan(
    scenario: Scenario, cluster: Cluster, profile: GpuProfile, cache: SearchCache | None = None
) -> StepPlan:
    """The plan of a step: its sizes, stages, orders, groups and blocks.

    ``cache``: results that the layouts of one search share. Raises NotSupported naming the field that cannot
    be modelled.
    """
    refuse_unsupported(scenario, profile)
    # Layouts of one search share their kernels; what single runs took besides ranks none of them.
    if profile.steps.runs and cache is None:
        profile = replace(profile, steps=profile.steps.at(step_kind(scenario)))
    schedule, shape = schedule_named(scenario.schedule), scenario.pipeline_shape
    local, stages = local_shape_of(scenario), build_stages(scenario)
    placed = _placed_groups(scenario, cluster, two_way=stage_to_rank(schedule.rank_of, shape) is None)
    cache = cache or SearchCache()
    groups = _once_on_cluster(cache, placed, ("groups",), lambda: placed.of_rank(0))
    machines = machines_of(scenario, cluster, profile)
    refuse_different(scenario, machines)
    communication = communication_of(scenario, machines)
    costs_of = partial(kernel_pricing, scenario, machines, communication)
    costs = costs_of(groups)
    blocks = Blocks(local=local, software=scenario.software, costs=costs)
    if schedule.uses_costs:
        sizes = activation_bytes(local, scenario.software)
        message_s = message_seconds(scenario, communication, local, groups)
        shape = profiled_shape(shape, stages, blocks, sizes, message_s)
    orders = _orders(scenario, schedule, shape, cache)
    ends_meet = ends_of_model_meet(schedule, shape)
    return StepPlan(
        scenario=scenario,
        cluster=cluster,
        profile=profile,
        local=local,
        schedule=schedule,
        shape=shape,
        ends_meet=ends_meet,
        orders=orders,
        stages=stages,
        placements=_placements(scenario, schedule, shape, placed, cache),
        parameters=all_stage_parameters(stages, local, scenario, ends_meet=ends_meet),
        groups=groups,
        placed=placed,
        costs_of=costs_of,
        blocks=blocks,
        costs=costs,
        machines=machines,
        kernels=machines[0].kernels,
        communication=communication,
    )


def _orders(scenario: Scenario, schedule: Schedule, shape: Shape, cache: SearchCache) -> Orders:
    """``step_orders``, shared by all layouts with the same pipeline."""
    key = ("orders", *ordered_by(scenario, shape))
    return cache.get(key, lambda: step_orders(scenario, schedule, shape))


def _placements(
    scenario: Scenario, schedule: Schedule, shape: Shape, placed: PlacedGroups, cache: SearchCache
) -> Placements:
    """The distinct placements of groups, shared by all layouts that cut the ranks in the same way."""
    talking = cache.get(
        ("talking", *ordered_by(scenario, shape)), lambda: frozenset(talking_ranks(schedule, shape))
    )
    key = ("placements", used_groups(scenario), talking)
    return _once_on_cluster(
        cache, placed, key, lambda: distinct_placements(scenario, placed, talking=talking)
    )


def _once_on_cluster(
    cache: SearchCache, placed: PlacedGroups, key: tuple[Hashable, ...], make: Callable[[], Found]
) -> Found:
    """The result of ``make``, shared by all layouts that cut the ranks of this cluster in the same way."""
    cluster = placed.cluster
    # The entry holds the cluster, so that no other one can have its number while the entry lives.
    entry = *key, id(cluster), placed.process_groups.cut_by
    return cache.get(entry, lambda: (cluster, make()))[1]


def _placed_groups(scenario: Scenario, cluster: Cluster, *, two_way: bool) -> PlacedGroups:
    """The process groups of a scenario on the GPUs of the cluster."""
    where = gpus(scenario.cluster, cluster)
    return PlacedGroups(
        process_groups=ProcessGroups(
            parallelism=scenario.parallelism,
            two_way=two_way,
            experts_whole=scenario.software.sharding.experts_whole,
        ),
        cluster=cluster,
        gpu=where,
        kind=kinds(scenario.cluster, where),
    )


def of_other_length(plan: StepPlan, scenario: Scenario, cache: SearchCache | None) -> StepPlan:
    """The plan of a step that differs from ``plan`` only in its number of microbatches."""
    refuse_unsupported(scenario, plan.profile)
    if plan.schedule.uses_costs:
        return make_plan(scenario, plan.cluster, plan.profile, cache)
    shape = scenario.pipeline_shape
    orders = _orders(scenario, plan.schedule, shape, cache or SearchCache())
    return replace(plan, scenario=scenario, shape=shape, orders=orders)


def ends_of_model_meet(schedule: Schedule, shape: Shape) -> bool:
    """Whether a pipeline rank holds both the first and the last stage."""
    first, last = (holders(stage, schedule.rank_of, shape) for stage in (0, shape.stages - 1))
    return not first.isdisjoint(last)


def step_orders(scenario: Scenario, schedule: Schedule, shape: Shape) -> Orders:
    """The orders of the schedule. Where expert exchanges overlap with another microbatch's layers, a forward
    and a backward become one step of the order (``moe_a2a_overlap``).

    Raises NotSupported where the ranks would deadlock.
    """
    orders = schedule.orders(shape)
    if not runs_pairs(scenario) or overlaps(orders):
        return orders
    try:
        from ...schedules.orders.overlapped import overlapped

        return overlapped(orders, shape, schedule.rank_of)
    except ValueError as refusal:
        groups = " or schedule_options.group so that no last group is smaller than the ranks"
        raise NotSupported(
            "software.exchange.moe_a2a_overlap",
            f"forwards beside backwards would wait for each other: {refusal}; set it to false"
            + (groups if shape.chunks > 1 else ""),
        ) from None


def talking_ranks(schedule: Schedule, shape: Shape) -> set[tuple[int, int]]:
    """Pairs of pipeline ranks that hold neighbouring stages, and so exchange messages."""
    held = [sorted(holders(stage, schedule.rank_of, shape)) for stage in range(shape.stages)]
    return {(a, b) for here, there in pairwise(held) for a in here for b in there if a != b}


def message_seconds(
    scenario: Scenario, communication: Communication, local: LocalShape, groups: RankGroups
) -> float:
    """Seconds of a message between neighbouring pipeline ranks: the median over all neighbours."""
    size = boundary_bytes(local, scenario.software)
    transfers = (communication.message(size, distance) for distance in groups.distances)
    return statistics.median(transfer.solo_s for transfer in transfers)


def _load_numbers(plan: StepPlan, loads: tuple[float, ...]) -> NDArray[np.int64]:
    """For each rank, the index of its experts' load among ``loads``."""
    of_place = [loads.index(load) for load in rank_loads(plan.scenario) or loads]
    return np.array(of_place, dtype=np.int64)[plan.process_groups.place("ep")]


def joined_communicators(plan: StepPlan) -> dict[str, tuple[int, ...]]:
    """Groups that join pipeline ranks: the world, the first and last stage (tied embeddings), and the two
    copies of each stage where microbatches travel in both directions."""
    pp = plan.shape.ranks
    joined = {"world": tuple(range(pp))}
    if not plan.ends_meet:
        joined["embedding"] = plan.rank_of(0), plan.rank_of(plan.shape.stages - 1)
    if plan.two_way:
        joined |= {plan.dp_communicator(r): (r, pp - 1 - r) for r in range(pp // 2)}
        if plan.local.experts:
            joined |= {plan.edp_communicator(r): (r, pp - 1 - r) for r in range(pp // 2)}
    return joined


def links_of(cluster: Cluster) -> dict[str, float]:
    """The links that each rank has, in bytes per second: one without a rate would be one that is down."""
    nvlink = max(cluster.gpu.nvlink_bytes_per_s, cluster.gpu.nccl_nvlink_bytes_per_s)
    network = cluster.nic_bytes_per_s_per_gpu if cluster.nodes > 1 else cluster.gpu.pcie_bytes_per_s
    links = {"nvlink.out": nvlink, "nvlink.in": nvlink, "nic.out": network, "nic.in": network}
    return {name: rate for name, rate in links.items() if rate > 0.0}
