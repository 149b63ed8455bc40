"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .engine.collection import collection_paused
from .report.result import RankClass, Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .scenario.models import Scenario
    from .step.lower import Lowered


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    Raises:
        NotSupported: a legal scenario that the simulator cannot express; names the field.
    """
    with collection_paused():
        return _simulated(scenario, profile, progress)


def _simulated(
    scenario: Scenario, profile: GpuProfile | None, progress: Callable[[str], None] | None
) -> Result:
    from .engine.replay import replay
    from .step.lower import lower

    say = progress or (lambda _: None)
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    say("building the cluster")
    cluster = build_cluster(scenario)
    timing = {"build_s": lap()}
    say("lowering")
    lowered = lower(scenario, cluster, profile=profile)
    timing["lower_s"] = lap()
    timing["fold_s"] = 0.0  # structural: one class per pipeline rank, found while lowering
    say(f"replaying {len(lowered.programs.classes)} classes of {scenario.cluster.gpus:,} ranks")
    record = replay(lowered.programs)
    timing["replay_s"] = lap()
    return read_result(lowered, record, timing, clock[0])


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names, in closed form."""
    from ..hardware.cluster import Cluster
    from ..hardware.fabric import Fabric, default_fabric
    from ..hardware.gpus import get_gpu
    from ..hardware.interconnect import get_interconnect

    spec = scenario.cluster
    interconnect = get_interconnect(spec.interconnect)
    fabric = default_fabric(interconnect)
    if spec.fabric.model_fields_set and interconnect.connects_hosts:
        fabric = Fabric(kind=spec.fabric.kind, oversubscription=spec.fabric.oversubscription)
    return Cluster(
        gpu=get_gpu(spec.gpu),
        gpus=spec.gpus,
        gpus_per_node=spec.gpus_per_node,
        interconnect=interconnect,
        fabric=fabric,
    )


def read_result(lowered: Lowered, record: Record, timing: dict[str, float], began: float) -> Result:
    """Figures of a replayed step, with the memory and the assumptions of what was lowered."""
    from .assumptions import assumptions
    from .read_record import read_record
    from .step.memory import memory_of

    result = read_record(
        record,
        scenario=lowered.plan.scenario,
        ranks=rank_classes(lowered),
        timing=timing,
        assumptions=assumptions(lowered.plan),
    )
    result = replace(result, memory=memory_of(lowered.plan, result.actions))
    timing["total_s"] = time.perf_counter() - began
    return result


def rank_classes(lowered: Lowered) -> tuple[RankClass, ...]:
    """What each class of ``lowered`` stands for: the ranks of one pipeline rank."""
    groups = lowered.plan.groups
    return tuple(
        RankClass(name=f"pp {r}", pp=r, count=groups.ranks_per_stage, first_rank=first)
        for r, first in enumerate(groups.first_rank)
    )
