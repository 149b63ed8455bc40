"""The main sentence: build the cluster, lower the scenario, replay it, and read the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from .engine.collection import collection_paused
from .estimate import check_work, step_work
from .result.result import Result
from .step_result import read_result, stage_memory

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .lowering.lower import Lowered
    from .result.gpu_kinds import GpuKinds
    from .result.loss_scaling import LossScaling
    from .result.neighbours import StepNeighbours
    from .scenario.faults.faults import Event
    from .scenario.models import Scenario
    from .step_run import RunOptions, StepRun


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
    """Predict one training step. ``profile`` replaces the shipped profile of the GPU.

    - ``fold=False`` replays every rank by itself, which shows that folding changes nothing.
    - ``max_classes`` limits how many different ranks are replayed, ``max_events`` how many events, as
      estimated beforehand (None: an hour's worth, estimate.py).
    - ``faults``: what is wrong, as lines (``gpu_throttle gpu/37 slow_factor=1.3 at=1.2s duration=0.5s``) or
      events. None: those faults of the scenario that have no time, or that strike its first step. If a rank
      hangs, the figures are those of the healthy step.
    - ``each_fault`` also replays the step without each of them (None: if they are few).
    - Where many ranks differ, few replicas are replayed, and the step lies between two bounds (sim/bounded)
      that are at most ``tolerance`` apart, a share of the step (None: 0.1 %), where few ranks decide it.
      ``exact`` replays all ranks instead, as do options that concern all of them (``fold``, ``max_classes``,
      ``each_fault``).
    - ``placements``: how often the step is replayed with its neighbours and the hosts of all jobs dealt at
      random, by seeds from 1 on.

    Raises:
        ScenarioError: a scenario that was changed by hand (``model_copy``) and is no longer valid; change one
            by ``Scenario.with_``.
        NotSupported: a legal scenario that the simulator cannot express; names the field.
        TooMuchWork: a ValueError: the estimate is above ``max_events``.
        ValueError: more ranks, or classes of them, than can sensibly be replayed one by one; a fault on
            something that does not exist, or that the job cannot go on with.
    """
    from .scenario.checked import checked

    scenario = checked(scenario)
    with collection_paused():
        from .step_run import RunOptions

        options = RunOptions(
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
        result = _simulated(scenario, profile, options, faults, progress)
        degraded = result.faults or result.variation or result.neighbours
        if scenario.training.loss_scale is None or degraded:
            return result
        return replace(result, loss_scaling=_loss_scaling(scenario, profile, result.step_time_s))


def _loss_scaling(scenario: Scenario, profile: GpuProfile | None, step_s: float) -> LossScaling:
    """What steps that FP16's loss scaling skips cost a run, beside its healthy steps."""
    from .engine.replay import replay
    from .fold.fold import folded
    from .fold.ranks import HEALTHY
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
        raise ValueError(f"placements: {placements} is below 0: give how many to draw")
    if placements and not scenario.cluster.neighbours:
        raise ValueError("placements are those of jobs on one fabric: give cluster.neighbours")
    return placements


def _tolerance(tolerance: float | None) -> float | None:
    if tolerance is not None and not 0 < tolerance < 1:
        raise ValueError(f"tolerance: {tolerance:g} is not a share of a step: give one above 0 and below 1")
    return tolerance


def _simulated(
    scenario: Scenario,
    profile: GpuProfile | None,
    options: RunOptions,
    faults: Iterable[str | Event] | None,
    progress: Callable[[str], None] | None,
) -> Result:
    from .fold.ranks import HEALTHY
    from .lowering.lower import lower
    from .step_run import StepRun

    run = StepRun(scenario, options, progress or (lambda _: None))
    run.say("building the cluster")
    events = _faults_in(scenario, faults)
    if options.each_fault and not events:
        raise ValueError("each_fault: there is no fault to leave out; give one, as --fault does")
    ranks = None if options.fold else scenario.world_size
    check_work(step_work(scenario, ranks=ranks, replays=1 + options.leaves_out(len(events))), options.events)
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
        from .degraded_step import degraded_step

        result = degraded_step(run, lowered, events, healthy)
    else:
        run.say("reading the result")
        result = read_result(lowered, *healthy, run.timing, run.began)
    if scenario.cluster.other_gpus:
        result = replace(result, gpu_kinds=_gpu_kinds(run, lowered, profile, healthy[1]))
    return replace(result, neighbours=_neighbours(run, healthy[1], profile)) if run.jobs else result


def _faults_in(scenario: Scenario, faults: Iterable[str | Event] | None) -> tuple[Event, ...]:
    """The faults during the step. Most steps have none, and load nothing that knows of faults."""
    if faults == () or (faults is None and scenario.faults is None):
        return ()
    from .degradation.of_scenario import faults_in

    return faults_in(scenario, faults)


def _gpu_kinds(run: StepRun, lowered: Lowered, profile: GpuProfile | None, healthy: Record) -> GpuKinds:
    """The number of GPUs of each kind, and a split of layers with which stages on different kinds end
    together."""
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


def build_cluster(scenario: Scenario) -> Cluster:
    """The cluster that the scenario names.

    Raises:
        ScenarioError: a scenario that was changed by hand and is no longer valid.
    """
    from .scenario.checked import checked
    from .scenario.machine import cluster_of

    return cluster_of(checked(scenario).cluster)
