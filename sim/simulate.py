"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .engine.collection import collection_paused
from .report.result import Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .faults.spec.faults import Event
    from .faults.spec.machine import Machine
    from .fold.ranks import Trouble
    from .fold.whole import Folded
    from .report.step_faults import StepFaults
    from .scenario.models import Scenario
    from .step.lower import Lowered


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    fold: bool = True,
    max_classes: int | None = None,
    faults: Iterable[str | Event] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    ``fold=False`` replays every rank by itself, which shows that folding changes nothing. ``max_classes``
    is how many different ranks are replayed at most. ``faults`` are what is wrong all step long, as lines
    (``gpu_throttle gpu/37 slow_factor=1.3``) or events; None: those of the scenario that have no time.

    Raises:
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        ValueError: more ranks, or classes of them, than can sensibly be replayed one by one; a fault on what
            is not there, or that the job cannot go on with.
    """
    with collection_paused():
        return _simulated(scenario, profile, fold, max_classes, faults, progress)


def _simulated(
    scenario: Scenario,
    profile: GpuProfile | None,
    fold: bool,
    max_classes: int | None,
    faults: Iterable[str | Event] | None,
    progress: Callable[[str], None] | None,
) -> Result:
    from .engine.replay import replay
    from .fold.ranks import HEALTHY
    from .fold.whole import MOST_CLASSES, folded, unfolded
    from .step.lower import lower

    say = progress or (lambda _: None)
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    def fold_with(trouble: Trouble) -> Folded:
        if fold:
            return folded(lowered, trouble, max_classes=max_classes or MOST_CLASSES)
        return unfolded(lowered, trouble)

    say("building the cluster")
    events = _faults_of(scenario, faults)
    cluster = build_cluster(scenario)
    timing = {"build_s": lap()}
    say("lowering")
    lowered = lower(scenario, cluster, profile=profile)
    timing["lower_s"] = lap()
    ready = fold_with(HEALTHY)
    timing["fold_s"] = lap()
    say(f"replaying {len(ready.programs.classes)} classes of {scenario.cluster.gpus:,} ranks")
    record = replay(ready.programs)
    timing["replay_s"] = lap()
    if not events:
        return read_result(lowered, ready, record, timing, clock[0])
    trouble = _trouble(lowered, events)
    struck = fold_with(trouble)
    timing["fold_s"] += lap()
    say(f"replaying {len(struck.programs.classes)} classes of {scenario.cluster.gpus:,} ranks with faults")
    with_faults = replay(struck.programs)
    timing["replay_s"] += lap()
    without_s = [record.step_s]
    if len(events) > 1:
        rest = [events[:i] + events[i + 1 :] for i in range(len(events))]
        without_s = [replay(fold_with(_trouble(lowered, others)).programs).step_s for others in rest]
        timing["replay_s"] += lap()
    result = read_result(lowered, struck, with_faults, timing, clock[0])
    found = _cost(lowered, events, trouble, (ready, record), (struck, with_faults))
    return replace(result, faults=replace(found, without_s=tuple(without_s)))


def _faults_of(scenario: Scenario, faults: Iterable[str | Event] | None) -> tuple[Event, ...]:
    """What is wrong during the step: what is given, else what the scenario has from the start."""
    if faults is None and (scenario.faults is None or not scenario.faults.events):
        return ()
    from .faults.inside.trouble import given, standing

    wanted = standing(scenario.faults) if faults is None else tuple(faults)
    return given(wanted, _machine(scenario)) if wanted else ()


def _machine(scenario: Scenario) -> Machine:
    from .faults.spec.faults import Domains
    from .scenario.checks_faults import machine_of

    domains = scenario.faults.domains if scenario.faults else Domains()
    return machine_of(scenario.cluster, scenario.parallelism, domains)


def _trouble(lowered: Lowered, events: tuple[Event, ...]) -> Trouble:
    from .faults.inside.trouble import Job, trouble_of

    plan = lowered.plan
    job = Job(cluster=plan.cluster, gpu=plan.groups.gpu, machine=_machine(plan.scenario))
    return trouble_of(events, job)


def _cost(
    lowered: Lowered,
    events: tuple[Event, ...],
    trouble: Trouble,
    healthy: tuple[Folded, Record],
    struck: tuple[Folded, Record],
) -> StepFaults:
    """What faults cost a step."""
    from .faults.inside.effect import Replayed, effect
    from .faults.inside.trouble import check_duration, line_of
    from .read_record import path_of

    check_duration(events, struck[1].step_s)
    before, after = (
        Replayed(folded=ready, record=record, path=path_of(record)) for ready, record in (healthy, struck)
    )
    lines = tuple(line_of(event) for event in events)
    return effect(lines, trouble, lowered.plan.scenario.parallelism, before, after)


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names, in closed form."""
    from .scenario.machine import cluster_of

    return cluster_of(scenario.cluster)


def read_result(
    lowered: Lowered, ready: Folded, record: Record, timing: dict[str, float], began: float
) -> Result:
    """Figures of a replayed step, with the memory and the assumptions of what was lowered."""
    from .assumptions import assumptions
    from .engine.accounting import action_spans
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
    actions = [replace(span, rank=shown[span.rank]) for span in action_spans(record, shown)]
    result = replace(
        result,
        memory=memory_of(lowered.plan, actions),
        interval=step_interval(result.step_time_s, result.critical_path, lowered.plan),
        loads_source=lambda: link_loads(lowered, result.step_time_s),
    )
    timing["total_s"] = time.perf_counter() - began
    return result
