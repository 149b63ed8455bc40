"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from .children import in_children
from .engine.collection import collection_paused
from .estimate import check_work, programs_work, step_work
from .result.result import Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .fold.ranks import Degradation
    from .fold.whole import Folded
    from .lowering.lower import Lowered
    from .result.loss_scaling import LossScaling
    from .result.step import StageMemory
    from .result.step_faults import StepFaults
    from .scenario.faults.faults import Event
    from .scenario.faults.machine import Machine
    from .scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Classes and events of a simulation at most; None: the defaults."""

    classes: int | None = None
    events: int | None = None


MANY_EVENTS = 2_000
"""Of a replay: from so many on, a child for another one costs less than the replay."""


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    fold: bool = True,
    max_classes: int | None = None,
    max_events: int | None = None,
    faults: Iterable[str | Event] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    ``fold=False`` replays every rank by itself, which shows that folding changes nothing. ``max_classes``
    is how many different ranks are replayed at most, ``max_events`` how many events, by an estimate that is
    made before (None: an hour's worth, estimate.py). ``faults`` are what is wrong, as lines
    (``gpu_throttle gpu/37 slow_factor=1.3 at=1.2s duration=0.5s``) or events; None: those of the scenario
    that have no time, or strike its first step. Where a rank hangs, the figures are of the healthy step.

    Raises:
        ScenarioError: a scenario that was changed by hand (``model_copy``) and is none any more; change one
            by ``Scenario.with_``.
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        TooMuchWork: a ValueError: the estimate is above ``max_events``.
        ValueError: more ranks, or classes of them, than can sensibly be replayed one by one; a fault on what
            is not there, or that the job cannot go on with.
    """
    from .scenario.checked import checked

    scenario = checked(scenario)
    with collection_paused():
        limits = Limits(classes=max_classes, events=max_events)
        result = _simulated(scenario, profile, fold, limits, faults, progress)
        if scenario.training.loss_scale is None or result.faults:
            return result
        return replace(result, loss_scaling=_loss_scaling(scenario, profile, result.step_time_s))


def _loss_scaling(scenario: Scenario, profile: GpuProfile | None, step_s: float) -> LossScaling:
    """What skipped steps cost a run of healthy steps."""
    from .engine.replay import replay
    from .fold.ranks import HEALTHY
    from .fold.whole import folded
    from .lowering.lower import lower
    from .result.loss_scaling import LossScaling, first_skipped, skipped_share

    scale = scenario.training.loss_scale
    assert scale is not None
    skipped = folded(lower(scenario, build_cluster(scenario), profile=profile, skips=True), HEALTHY)
    return LossScaling(
        step_s=step_s,
        skipped_step_s=replay(skipped.programs).step_s,
        skipped_share=skipped_share(scale),
        first_steps=first_skipped(scale),
    )


def _simulated(
    scenario: Scenario,
    profile: GpuProfile | None,
    fold: bool,
    limits: Limits,
    faults: Iterable[str | Event] | None,
    progress: Callable[[str], None] | None,
) -> Result:
    from .engine.replay import replay
    from .fold.ranks import HEALTHY
    from .fold.whole import MOST_CLASSES, folded, unfolded
    from .lowering.lower import lower

    say = progress or (lambda _: None)
    clock = [time.perf_counter()]

    def lap() -> float:
        clock.append(time.perf_counter())
        return clock[-1] - clock[-2]

    def fold_with(degradation: Degradation) -> Folded:
        if fold:
            found = folded(lowered, degradation, max_classes=limits.classes or MOST_CLASSES)
        else:
            found = unfolded(lowered, degradation)
        check_work(programs_work(found.programs, replays=1 + len(events)), limits.events)
        return found

    def replayed(ready: Folded, what: str = "") -> Record:
        classes, expected = len(ready.programs.classes), programs_work(ready.programs).events
        text = f"replaying {classes:,} classes of {scenario.cluster.gpus:,} ranks{what}"
        say(text)
        return replay(ready.programs, tick=lambda done: say(f"{text}: {_so_far(done, expected)}"))

    say("building the cluster")
    events = _faults_of(scenario, faults)
    ranks = None if fold else scenario.world_size
    check_work(step_work(scenario, ranks=ranks, replays=1 + len(events)), limits.events)
    cluster = build_cluster(scenario)
    timing = {"build_s": lap()}
    say("lowering")
    lowered = lower(scenario, cluster, profile=profile)
    timing["lower_s"] = lap()
    ready = fold_with(HEALTHY)
    timing["fold_s"] = lap()
    record = replayed(ready)
    timing["replay_s"] = lap()
    if not events:
        say("reading the result")
        return read_result(lowered, ready, record, timing, clock[0])
    events = _of_this_step(scenario, events, record.makespan_s)
    if not events:
        return read_result(lowered, ready, record, timing, clock[0])
    degradation = _degradation(lowered, events)

    def without(i: int) -> float:
        others = events[:i] + events[i + 1 :]
        return replay(fold_with(_degradation(lowered, others)).programs).step_s if others else record.step_s

    tasks = [partial(without, i) for i in range(len(events))]
    with in_children(tasks, worth_it=len(events) > 1 and record.events >= MANY_EVENTS) as numbers:
        struck = fold_with(degradation)
        timing["fold_s"] += lap()
        with_faults = replayed(struck, " with faults")
        # A step that never ends has no end to come after; the healthy one has.
        hangs = with_faults.makespan_s == math.inf
        _check_begins(events, record.makespan_s if hangs else with_faults.makespan_s)
        without_s = numbers()
        timing["replay_s"] += lap()
    say("reading the result")
    ran = (struck, with_faults) if with_faults.step_s < math.inf else (ready, record)
    result = read_result(lowered, *ran, timing, clock[0])
    found = _cost(lowered, events, degradation, (ready, record), (struck, with_faults))
    if with_faults.step_s < record.step_s:
        found = replace(found, least_s=_least_s(ready))
    return replace(result, faults=replace(found, without_s=without_s))


def _least_s(healthy: Folded) -> float:
    """What no fault can make a step shorter than: it takes so long if nothing takes anything from anybody."""
    from .engine.replay import replay
    from .program.uncontended import uncontended

    return replay(uncontended(healthy.programs)).step_s


def _so_far(done: int, expected: float) -> str:
    """How far a replay is; an estimate may be too low."""
    if done < 0.95 * expected:
        return f"about {done / expected:.0%} of {expected:,.0f} events"
    return f"{done:,} events, about all"


def _faults_of(scenario: Scenario, faults: Iterable[str | Event] | None) -> tuple[Event, ...]:
    """What is wrong during the step: what is given, else what the scenario has of its first step."""
    if faults is None and (scenario.faults is None or not scenario.faults.events):
        return ()
    from .degradation.of_faults import beginning, given, standing

    if faults is None:
        wanted: tuple[str | Event, ...] = (*standing(scenario.faults), *beginning(scenario.faults))
    else:
        wanted = (faults,) if isinstance(faults, str) else tuple(faults)
    return given(wanted, _machine(scenario)) if wanted else ()


def _of_this_step(scenario: Scenario, events: tuple[Event, ...], step_s: float) -> tuple[Event, ...]:
    """Without those of the scenario that strike later steps."""
    from .degradation.of_faults import beginning
    from .degradation.windows import begins_after

    later = begins_after(beginning(scenario.faults), step_s)
    return tuple(event for event in events if event not in later)


def _check_begins(events: tuple[Event, ...], step_s: float) -> None:
    """ValueError for a fault that begins when the step is over."""
    from ..hardware.quantities import format_quantity
    from .degradation.of_faults import named
    from .degradation.windows import begins_after

    for event in begins_after(events, step_s):
        at = format_quantity(event.at or 0.0, "seconds")
        raise ValueError(f"fault {named(event)}: at: {at} is after the step, which takes {step_s:.4g} s")


def _machine(scenario: Scenario) -> Machine:
    from .scenario.checks_faults import machine_of
    from .scenario.faults.faults import Domains

    domains = scenario.faults.domains if scenario.faults else Domains()
    return machine_of(scenario.cluster, scenario.parallelism, domains)


def _degradation(lowered: Lowered, events: tuple[Event, ...]) -> Degradation:
    from .degradation.of_faults import Job
    from .degradation.windows import degradation_over_time

    plan = lowered.plan
    machine, faults = _machine(plan.scenario), plan.scenario.faults
    job = Job(cluster=plan.cluster, gpu=plan.placed.gpu, machine=machine)
    if faults is not None:
        job = replace(job, seed=faults.seed)
    if plan.scenario.detection is not None:
        job = replace(job, flap_budget_s=plan.scenario.detection.flap_budget)
    return degradation_over_time(events, job)


def _cost(
    lowered: Lowered,
    events: tuple[Event, ...],
    degradation: Degradation,
    healthy: tuple[Folded, Record],
    struck: tuple[Folded, Record],
) -> StepFaults:
    """What faults cost a step."""
    from .degradation.effect import Replayed, effect, hang_effect
    from .degradation.of_faults import line_of
    from .read_record import path_of

    scenario, lines = lowered.plan.scenario, tuple(line_of(event) for event in events)
    before = Replayed(folded=healthy[0], record=healthy[1], path=path_of(healthy[1]))
    if struck[1].step_s == math.inf:
        after = Replayed(folded=struck[0], record=struck[1], path=())
        watchdog_s = _watchdog_s(scenario)
        return hang_effect(lines, degradation, scenario.parallelism, before, after, watchdog_s)
    after = Replayed(folded=struck[0], record=struck[1], path=path_of(struck[1]))
    return effect(lines, degradation, scenario.parallelism, before, after)


def _watchdog_s(scenario: Scenario) -> float:
    from .scenario.faults.detection import Detection

    return (scenario.detection or Detection()).watchdog.timeout


def stage_memory(
    lowered: Lowered, ready: Folded, record: Record, leads_s: Mapping[int, float] | None = None
) -> tuple[StageMemory, ...]:
    """Memory of each pipeline rank, of its class; ``leads_s`` of hosts where not as recorded."""
    from .engine.accounting import action_spans
    from .lowering.memory import memory_of

    shown = {first: pp for pp, first in ready.first_of_stage.items()}
    actions = action_spans(record, shown)
    return memory_of(lowered.plan, actions, leads_s or host_leads_s(ready, record))


def host_leads_s(ready: Folded, record: Record) -> dict[int, float]:
    """How far the host of each pipeline rank was ahead of its GPU, in seconds of its work."""
    from .engine.host_lead import host_lead_s

    return {pp: host_lead_s(record, first) for pp, first in ready.first_of_stage.items()}


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names, in closed form.

    Raises:
        ScenarioError: a scenario that was changed by hand and is none any more.
    """
    from .scenario.checked import checked
    from .scenario.machine import cluster_of

    return cluster_of(checked(scenario).cluster)


def read_result(
    lowered: Lowered, ready: Folded, record: Record, timing: dict[str, float], began: float
) -> Result:
    """Figures of a replayed step, with the memory and the assumptions of what was lowered."""
    from .evidence.assumptions import assumptions
    from .evidence.interval import step_interval
    from .evidence.measured_memory import fit_probability
    from .evidence.notes import notes
    from .fold.loads import link_loads
    from .read_record import read_record

    result = read_record(
        record,
        scenario=lowered.plan.scenario,
        ranks=ready.ranks,
        timing=timing,
        assumptions=assumptions(lowered.plan),
    )
    memory = stage_memory(lowered, ready, record)
    result = replace(
        result,
        assumptions=(*result.assumptions, *notes(lowered.plan, result.bounds)),
        memory=memory,
        interval=step_interval(result.step_time_s, result.critical_path, lowered.plan),
        fit_probability=fit_probability(lowered.plan.scenario.software.name, memory),
        loads_source=lambda: link_loads(lowered, result.step_time_s),
    )
    timing["total_s"] = time.perf_counter() - began
    return result
