"""A step with faults, or on GPUs that differ, as a result beside the healthy step: what that costs, draw by
draw.

Knows the healthy replay and how the degraded one is asked for (degraded_replay.py); what faults do is in
degradation/.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from .result.result import Result
from .step_result import read_result

if TYPE_CHECKING:
    from .degraded_replay import DegradedReplay
    from .engine.record import Record
    from .fold.fold import Folded
    from .lowering.lower import Lowered
    from .result.step_faults import StepFaults
    from .result.variation import Draw, StepVariation
    from .scenario.faults.faults import Event
    from .scenario.models import Scenario
    from .step_run import StepRun


def degraded_step(
    run: StepRun, lowered: Lowered, events: tuple[Event, ...], healthy: tuple[Folded, Record]
) -> Result:
    """The step with something wrong, or with GPUs that differ, against the healthy one."""
    from .degradation.of_scenario import check_begins
    from .degraded_replay import degraded_replay

    lowered, healthy = _meetings_apart(run, lowered, healthy)
    found = degraded_replay(run, lowered, events, healthy[1])
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


def _meetings_apart(
    run: StepRun, lowered: Lowered, healthy: tuple[Folded, Record]
) -> tuple[Lowered, tuple[Folded, Record]]:
    """The step and its healthy replay, with collectives of replicas moved out of blocks
    (bounded/collectives_apart.py)."""
    from .bounded.collectives_apart import collectives_apart
    from .fold.ranks import HEALTHY

    apart = lowered if run.jobs else collectives_apart(lowered)
    return (lowered, healthy) if apart is lowered else (apart, run.step(apart, HEALTHY))


def _variation(
    run: StepRun, lowered: Lowered, events: tuple[Event, ...], healthy: Record, first: DegradedReplay
) -> StepVariation:
    """The steps of all draws, the first of which has been replayed."""
    from .degradation.of_scenario import placed_by_speed, speeds_in
    from .degraded_replay import degraded_replay
    from .result.variation import PlacedBySpeed, StepVariation, slow_gpus

    spec = lowered.plan.scenario.cluster.variation
    assert spec is not None
    draws = []
    for draw in range(spec.draws):
        found = degraded_replay(run, lowered, events, healthy, draw) if draw else first
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
    from .degraded_replay import degraded_replay

    spec = lowered.plan.scenario.cluster.variation
    assert spec is not None
    return _as_draw(spec.seed, degraded_replay(run, lowered, (), healthy, by_speed=True))


def _as_draw(seed: int, found: DegradedReplay) -> Draw:
    from .result.variation import Draw

    step_s, bounds = found.record.step_s, found.bounds
    lower_s, upper_s = (bounds.lower_s, bounds.upper_s) if bounds else (step_s, step_s)
    return Draw(seed=seed, step_time_s=step_s, lower_s=lower_s, upper_s=upper_s)


def _least_s(healthy: Folded) -> float:
    """Seconds below which no fault can bring a step: what it takes if nothing takes anything from anything
    else."""
    from .engine.replay import replay
    from .program.uncontended import uncontended

    return replay(uncontended(healthy.programs)).step_s


def _cost(
    lowered: Lowered, events: tuple[Event, ...], healthy: tuple[Folded, Record], found: DegradedReplay
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
