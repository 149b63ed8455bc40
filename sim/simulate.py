"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from .engine.collection import collection_paused
from .estimate import check_work, step_work
from .result.result import Result

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .fold.whole import Folded
    from .lowering.lower import Lowered
    from .result.gpu_kinds import GpuKinds
    from .result.loss_scaling import LossScaling
    from .result.neighbours import StepNeighbours
    from .result.step import StageMemory
    from .result.step_faults import StepFaults
    from .result.variation import Draw, StepVariation
    from .scenario.faults.faults import Event
    from .scenario.models import Scenario
    from .step_run import RunOptions, StepRun
    from .struck import Struck


def simulate(
    scenario: Scenario,
    *,
    profile: GpuProfile | None = None,
    fold: bool = True,
    max_classes: int | None = None,
    max_events: int | None = None,
    faults: Iterable[str | Event] | None = None,
    each_fault: bool | None = None,
    exact: bool = False,
    tolerance: float | None = None,
    placements: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Result:
    """Predict one training step, with ``profile`` in place of the shipped one of the GPU where given.

    ``fold=False`` replays every rank by itself, which shows that folding changes nothing. ``max_classes``
    is how many different ranks are replayed at most, ``max_events`` how many events, by an estimate that is
    made before (None: an hour's worth, estimate.py). ``faults`` are what is wrong, as lines
    (``gpu_throttle gpu/37 slow_factor=1.3 at=1.2s duration=0.5s``) or events; None: those of the scenario
    that have no time, or strike its first step. Where a rank hangs, the figures are of the healthy step.
    ``each_fault`` replays once more without each of them (None: if they are few). Where many ranks differ,
    few replicas are replayed and the step is known between bounds (sim/bounded), whose gap is ``tolerance``,
    a share of the step, where few decide (None: 0.1 %); ``exact`` replays all, as do the options that
    concern all ranks (``fold``, ``max_classes``, ``each_fault``). ``placements`` replays the step so often
    beside its neighbours with the hosts of all jobs dealt at random, by seeds from 1 on.

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
        from .step_run import RunOptions

        asked = RunOptions(
            classes=max_classes,
            events=max_events,
            fold=fold,
            each_fault=each_fault,
            exact=exact
            or not fold
            or bool(each_fault)
            or max_classes is not None
            or bool(scenario.cluster.neighbours),
            tolerance=_tolerance(tolerance),
            placements=_placements(scenario, placements),
        )
        result = _simulated(scenario, profile, asked, faults, progress)
        told = result.faults or result.variation or result.neighbours
        if scenario.training.loss_scale is None or told:
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


def _placements(scenario: Scenario, placements: int) -> int:
    if placements < 0:
        raise ValueError(f"placements: {placements} is no number of them")
    if placements and not scenario.cluster.neighbours:
        raise ValueError("placements are those of jobs on one fabric: give cluster.neighbours")
    return placements


def _tolerance(tolerance: float | None) -> float | None:
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance: {tolerance:g} is no share of a step: give one above 0 and below 1")
    return tolerance


def _simulated(
    scenario: Scenario,
    profile: GpuProfile | None,
    asked: RunOptions,
    faults: Iterable[str | Event] | None,
    progress: Callable[[str], None] | None,
) -> Result:
    from .fold.ranks import HEALTHY
    from .lowering.lower import lower
    from .step_run import StepRun

    run = StepRun(scenario, asked, progress or (lambda _: None))
    run.say("building the cluster")
    events = _faults_in(scenario, faults)
    ranks = None if asked.fold else scenario.world_size
    check_work(step_work(scenario, ranks=ranks, replays=1 + asked.leaves_out(len(events))), asked.events)
    cluster = build_cluster(scenario)
    run.lap("build_s")
    run.say("lowering")
    lowered = lower(scenario, cluster, profile=profile)
    run.lap("lower_s")
    if scenario.cluster.neighbours:
        from .neighbours import jobs_of

        run.jobs = jobs_of(lowered, profile)
    healthy = run.step(lowered, HEALTHY)
    if events:
        from .degradation.of_scenario import of_this_step

        events = of_this_step(scenario, events, healthy[1].makespan_s)
    if events or scenario.cluster.variation is not None:
        result = _wrong(run, lowered, events, healthy)
    else:
        run.say("reading the result")
        result = read_result(lowered, *healthy, run.timing, run.began)
    if scenario.cluster.other_gpus:
        result = replace(result, gpu_kinds=_gpu_kinds(run, lowered, profile, healthy[1]))
    return replace(result, neighbours=_neighbours(run, healthy[1], profile)) if run.jobs else result


def _faults_in(scenario: Scenario, faults: Iterable[str | Event] | None) -> tuple[Event, ...]:
    """What is wrong during the step; most steps have nothing wrong, and need nothing that knows of faults."""
    if faults == () or (faults is None and scenario.faults is None):
        return ()
    from .degradation.of_scenario import faults_in

    return faults_in(scenario, faults)


def _gpu_kinds(run: StepRun, lowered: Lowered, profile: GpuProfile | None, healthy: Record) -> GpuKinds:
    """How many GPUs there are of each kind, and a split that lets their stages end together."""
    from .balance import balanced_split
    from .fold.ranks import HEALTHY
    from .lowering.lower import lower
    from .result.gpu_kinds import BalancedSplit, GpuKinds

    spec, plan = run.scenario.cluster, lowered.plan
    others = [(one.gpu, len(one.hosts) * spec.gpus_per_node) for one in spec.other_gpus or ()]
    counts = ((spec.gpu_name, spec.gpus - sum(count for _, count in others)), *others)
    layers = balanced_split(plan)
    if layers is None or layers == tuple(stage.layers for stage in plan.stages):
        return GpuKinds(counts=counts)
    run.say("replaying with balanced stages")
    scenario = run.scenario.with_({"parallelism.stage_split": list(layers)})
    split = lower(scenario, plan.cluster, profile=profile)
    ready, record = run.step(split, HEALTHY)
    if record.step_s >= healthy.step_s:
        return GpuKinds(counts=counts)
    fits = all(stage.fits for stage in stage_memory(split, ready, record))
    return GpuKinds(
        counts=counts,
        balanced=BalancedSplit(layers=layers, step_time_s=record.step_s, fits=fits),
    )


def _neighbours(run: StepRun, healthy: Record, profile: GpuProfile | None) -> StepNeighbours:
    """What jobs on one fabric cost one another."""
    from .neighbours import beside, beside_at_random
    from .result.neighbours import DealtHosts, JobBeside, StepNeighbours

    specs = run.scenario.cluster.neighbours or ()
    others = []
    for number, (job, spec) in enumerate(zip(run.jobs[1:], specs, strict=True), 1):
        run.say(f"replaying neighbour {number} of {len(specs)}")
        rest = (job, *run.jobs[:number], *run.jobs[number + 1 :])
        found = beside(rest, fold=run.options.fold, max_events=run.options.events)
        others.append(
            JobBeside(
                name=job.name,
                hosts=spec.hosts,
                offset_s=job.offset_s,
                alone_s=job.alone_s,
                step_time_s=found.record.step_s,
            )
        )
    cluster, placements = run.jobs[0].lowered.plan.cluster, []
    for seed in range(1, run.options.placements + 1):
        run.say(f"replaying placement {seed} of {run.options.placements}")
        alone_s, step_s = beside_at_random(run.scenario, cluster, profile, seed)
        placements.append(DealtHosts(seed=seed, alone_s=alone_s, step_time_s=step_s))
    return StepNeighbours(
        alone_s=run.jobs[0].alone_s,
        step_time_s=healthy.step_s,
        others=tuple(others),
        placements=tuple(placements),
    )


def _wrong(
    run: StepRun, lowered: Lowered, events: tuple[Event, ...], healthy: tuple[Folded, Record]
) -> Result:
    """The step with something wrong, or with GPUs that differ, against the healthy one."""
    from .degradation.of_scenario import check_begins
    from .struck import struck

    found = struck(run, lowered, events, healthy[1])
    # A step that never ends has no end to come after; the healthy one has.
    hangs = found.record.makespan_s == math.inf
    check_begins(events, healthy[1].makespan_s if hangs else found.record.makespan_s)
    run.say("reading the result")
    ran = healthy if hangs else (found.folded, found.record)
    result = replace(read_result(lowered, *ran, run.timing, run.began), step_bounds=found.bounds)
    if events:
        result = replace(result, faults=_cost(lowered, events, healthy, found))
    if lowered.plan.scenario.cluster.variation is not None and not hangs:
        result = replace(result, variation=_variation(run, lowered, events, healthy[1], found))
    return result


def _variation(
    run: StepRun, lowered: Lowered, events: tuple[Event, ...], healthy: Record, first: Struck
) -> StepVariation:
    """The steps of all draws, the first of which has been replayed."""
    from .degradation.of_scenario import placed_by_speed, speeds_in
    from .result.variation import PlacedBySpeed, StepVariation, slow_gpus
    from .struck import struck

    spec = lowered.plan.scenario.cluster.variation
    assert spec is not None
    draws = []
    for draw in range(spec.draws):
        found = struck(run, lowered, events, healthy, draw) if draw else first
        draws.append(_as_draw(spec.seed + draw, found))
    speeds, grouped = speeds_in(lowered), None
    if spec.by_speed:
        grouped = PlacedBySpeed(gpus=tuple(placed_by_speed(lowered)), step=_by_speed(run, lowered, healthy))
    return StepVariation(
        slowest=float(speeds.min()),
        mean=float(speeds.mean()),
        draws=tuple(draws),
        equal_step_time_s=healthy.step_s,
        gains=() if events else tuple(slow_gpus(first.parts, first.gains_s)),
        by_speed=grouped,
    )


def _by_speed(run: StepRun, lowered: Lowered, healthy: Record) -> Draw:
    """The step of the first draw with ranks placed by the speed of their GPUs, and no faults."""
    from .struck import struck

    spec = lowered.plan.scenario.cluster.variation
    assert spec is not None
    return _as_draw(spec.seed, struck(run, lowered, (), healthy, by_speed=True))


def _as_draw(seed: int, found: Struck) -> Draw:
    from .result.variation import Draw

    step_s, bounds = found.record.step_s, found.bounds
    lower_s, upper_s = (bounds.lower_s, bounds.upper_s) if bounds else (step_s, step_s)
    return Draw(seed=seed, step_time_s=step_s, lower_s=lower_s, upper_s=upper_s)


def _least_s(healthy: Folded) -> float:
    """What no fault can make a step shorter than: it takes so long if nothing takes anything from anybody."""
    from .engine.replay import replay
    from .program.uncontended import uncontended

    return replay(uncontended(healthy.programs)).step_s


def _cost(
    lowered: Lowered, events: tuple[Event, ...], healthy: tuple[Folded, Record], found: Struck
) -> StepFaults:
    """What faults cost a step."""
    from .degradation.effect import Replayed, effect, hang_effect
    from .degradation.of_faults import line_of
    from .degradation.of_scenario import degradation_in
    from .read_record import path_of

    scenario, lines = lowered.plan.scenario, tuple(line_of(event) for event in events)
    degradation = degradation_in(lowered, events, None)
    before = Replayed(folded=healthy[0], record=healthy[1], path=path_of(healthy[1]))
    if found.record.step_s == math.inf:
        after = Replayed(folded=found.folded, record=found.record, path=())
        watchdog_s = _watchdog_s(scenario)
        cost = hang_effect(lines, degradation, scenario.parallelism, before, after, watchdog_s)
        return replace(cost, without_s=found.without_s)
    after = Replayed(folded=found.folded, record=found.record, path=path_of(found.record))
    cost = effect(lines, degradation, scenario.parallelism, before, after)
    least_s = _least_s(healthy[0]) if found.record.step_s < healthy[1].step_s else None
    return replace(cost, without_s=found.without_s, gains_s=found.gains_s, least_s=least_s)


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
        loads_source=partial(_loads, lowered, result.step_time_s),
    )
    timing["total_s"] = time.perf_counter() - began
    return result


def _loads(lowered: Lowered, step_time_s: float) -> dict[str, float]:
    """What the step loads every link with, for pictures."""
    from .fold.loads import link_loads

    return link_loads(lowered, step_time_s)
