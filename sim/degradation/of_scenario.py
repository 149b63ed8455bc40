"""The faults of one step of a scenario: which of them strike it, and what they do to its ranks and links.

Knows scenarios and lowered steps; replays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...hardware.quantities import format_quantity
from ..scenario.checks_faults import machine_of
from ..scenario.faults.faults import Domains
from .checkpoint_write import checkpoint_write
from .of_faults import Job, beginning, given, named, standing
from .variation import gpus_by_speed, rank_speeds, varied
from .windows import WRITES, begins_after, degradation_over_time

if TYPE_CHECKING:
    from ..fold.ranks import Degradation
    from ..lowering.lower import Lowered
    from ..scenario.faults.faults import Event
    from ..scenario.faults.machine import Machine
    from ..scenario.models import Scenario
    from ..scenario.variation import Speeds


def faults_in(scenario: Scenario, faults: Iterable[str | Event] | None) -> tuple[Event, ...]:
    """What is wrong during the step: what is given, else what the scenario has of its first step."""
    if faults is None and (scenario.faults is None or not scenario.faults.events):
        return ()
    if faults is None:
        wanted: tuple[str | Event, ...] = (*standing(scenario.faults), *beginning(scenario.faults))
    else:
        wanted = (faults,) if isinstance(faults, str) else tuple(faults)
    return given(wanted, _machine(scenario)) if wanted else ()


def of_this_step(scenario: Scenario, events: tuple[Event, ...], step_s: float) -> tuple[Event, ...]:
    """The events without those of the scenario that strike later steps."""
    later = begins_after(beginning(scenario.faults), step_s)
    return tuple(event for event in events if event not in later)


def check_begins(events: tuple[Event, ...], step_s: float) -> None:
    """ValueError for a fault that begins when the step is over."""
    for event in begins_after(events, step_s):
        at = format_quantity(event.at or 0.0, "seconds")
        raise ValueError(f"fault {named(event)}: at: {at} is after the step, which takes {step_s:.4g} s")


def _machine(scenario: Scenario) -> Machine:
    domains = scenario.faults.domains if scenario.faults else Domains()
    return machine_of(scenario.cluster, scenario.parallelism, domains)


def degradation_in(
    lowered: Lowered, events: tuple[Event, ...], draw: int | None = 0, *, by_speed: bool = False
) -> Degradation:
    """What faults do to the ranks and links of a lowered step, and when, on the cluster as ``draw`` has it;
    None: on one whose parts are alike. ``by_speed``: with ranks placed by the speed of their GPUs.
    """
    plan = lowered.plan
    machine, faults = _machine(plan.scenario), plan.scenario.faults
    job = Job(cluster=plan.cluster, gpu=plan.placed.gpu, machine=machine)
    if faults is not None:
        job = replace(job, seed=faults.seed)
    if plan.scenario.detection is not None:
        job = replace(job, flap_budget_s=plan.scenario.detection.flap_budget)
    if any(event.kind == WRITES for event in events):
        job = replace(job, checkpoint=checkpoint_write(plan.scenario))
    found = degradation_over_time(events, job)
    return found if draw is None else varied(found, lowered, machine, draw, by_speed=by_speed)


def speeds_in(lowered: Lowered) -> Speeds:
    """The speed of every rank's GPU in the first draw of the cluster."""
    spec = lowered.plan.scenario.cluster.variation
    assert spec is not None
    return rank_speeds(spec, _machine(lowered.plan.scenario), 0, lowered.plan.placed.gpu)[0]


def placed_by_speed(lowered: Lowered) -> list[int]:
    """The GPU of every rank where ranks are placed by the speeds of the first draw."""
    found: list[int] = gpus_by_speed(lowered, _machine(lowered.plan.scenario), 0).tolist()
    return found
