"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from .engine.collection import collection_paused
from .report.result import Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .fold.whole import Folded
    from .scenario.models import Scenario
    from .step.lower import Lowered


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    fold: bool = True,
    max_classes: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    ``fold=False`` replays every rank by itself, which shows that folding changes nothing. ``max_classes``
    is how many different ranks are replayed at most.

    Raises:
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        ValueError: more ranks, or classes of them, than can sensibly be replayed one by one.
    """
    with collection_paused():
        return _simulated(scenario, profile, fold, max_classes, progress)


def _simulated(
    scenario: Scenario,
    profile: GpuProfile | None,
    fold: bool,
    max_classes: int | None,
    progress: Callable[[str], None] | None,
) -> Result:
    from .engine.replay import replay
    from .fold.whole import MOST_CLASSES, folded, unfolded
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
    ready = folded(lowered, max_classes=max_classes or MOST_CLASSES) if fold else unfolded(lowered)
    timing["fold_s"] = lap()
    say(f"replaying {len(ready.programs.classes)} classes of {scenario.cluster.gpus:,} ranks")
    record = replay(ready.programs)
    timing["replay_s"] = lap()
    return read_result(lowered, ready, record, timing, clock[0])


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names, in closed form."""
    from .scenario.machine import cluster_of

    return cluster_of(scenario.cluster)


def read_result(
    lowered: Lowered, ready: Folded, record: Record, timing: dict[str, float], began: float
) -> Result:
    """Figures of a replayed step, with the memory and the assumptions of what was lowered."""
    from .assumptions import assumptions
    from .fold.loads import link_loads
    from .interval import step_interval
    from .read_record import read_record
    from .step.memory import memory_of

    result = read_record(
        record,
        scenario=lowered.plan.scenario,
        ranks=ready.ranks,
        timing=timing,
        assumptions=assumptions(lowered.plan),
    )
    shown = {first: pp for pp, first in ready.first_of_stage.items()}
    actions = [replace(span, rank=shown[span.rank]) for span in result.actions if span.rank in shown]
    result = replace(
        result,
        memory=memory_of(lowered.plan, actions),
        interval=step_interval(result.step_time_s, result.critical_path, lowered.plan),
        loads_source=lambda: link_loads(lowered, result.step_time_s),
    )
    timing["total_s"] = time.perf_counter() - began
    return result
