"""Other jobs on the fabric of a job: their steps replayed one after the other beside a step of ours.

Knows scenarios, lowered steps and replays. Jobs keep their phases as they are alone: a step of a neighbour
begins ``offset`` after ours, and those before and after it follow without a pause, as long as ours lasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .engine.observed_job import of_first_classes
from .engine.replay import replay
from .estimate import check_work, programs_work, step_work
from .fold.fold import MOST_CLASSES, Folded, folded, unfolded
from .fold.jobs import FoldedJobs, folded_jobs
from .fold.ranks import HEALTHY
from .lowering.lower import lower
from .lowering.placed_groups import domains, gpus
from .program.repeated import repeated
from .scenario.blocks import PlacementSpec
from .scenario.load import load_scenario
from .scenario.machine import cluster_of, gpus_of_fabric
from .scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ..hardware.cluster import Cluster
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .fold.ranks import Degradation
    from .lowering.lower import Lowered
    from .program.program import Programs
    from .scenario.models import Scenario
    from .scenario.neighbours import NeighbourSpec


MORE_STEPS = 1.5
"""Factor by which a step is expected to be longer than alone when the steps of neighbours are counted; if it
takes longer still, twice as many are replayed."""


@dataclass(frozen=True, kw_only=True)
class FabricJob:
    """One of the jobs on the fabric: its lowered step, the seconds that it takes alone, and when it
    begins."""

    name: str
    lowered: Lowered
    alone_s: float
    offset_s: float

    @cached_property
    def kind(self) -> tuple[str, bytes, float]:
        """What jobs that may be alike have in common: all but their hosts, and how these are joined."""
        plan = self.lowered.plan
        scenario = plan.scenario.model_copy(update={"name": ""})
        domain = domains(plan.placed.gpu, plan.cluster)
        _, first, number = np.unique(domain, return_index=True, return_inverse=True)
        return (
            scenario.model_dump_json(exclude={"cluster": {"placement"}}),
            first[number].tobytes(),
            self.offset_s,
        )


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A replay of one job beside all others: its classes, their record, and how many classes of all jobs
    ran."""

    folded: Folded
    record: Record
    classes: int


def jobs_of(lowered: Lowered, profile: GpuProfile | None = None) -> tuple[FabricJob, ...]:
    """A lowered scenario as a job, and its neighbours on its fabric in their order.

    Raises:
        ScenarioError: a scenario of a neighbour that cannot be read.
        ValueError: one that does not fit its hosts, or has other hosts than ours.
        NotSupported: steps that do not end before the next begins.
    """
    scenario = lowered.plan.scenario
    _check_ends(lowered, "schedule")
    found = [FabricJob(name=scenario.name, lowered=lowered, alone_s=_alone_s(lowered), offset_s=0.0)]
    for number, spec in enumerate(scenario.cluster.neighbours or ()):
        field = f"cluster.neighbours[{number}]"
        other = load_scenario(spec.scenario)
        _check_like(scenario, other, spec, field)
        check_work(step_work(other))
        job = lower(_placed(other, spec, field), lowered.plan.cluster, profile=profile)
        _check_ends(job, field)
        found.append(FabricJob(name=other.name, lowered=job, alone_s=_alone_s(job), offset_s=spec.offset))
    return tuple(found)


def dealt(scenario: Scenario, seed: int) -> Scenario:
    """The scenario with the hosts of its jobs dealt at random over the fabric, each job's in order."""
    spec, per_node = scenario.cluster, scenario.cluster.gpus_per_node
    hosts = np.random.default_rng(seed).permutation(gpus_of_fabric(spec) // per_node).tolist()
    own = sorted(hosts[: spec.gpus // per_node])
    at, others = len(own), []
    for one in spec.neighbours or ():
        its = tuple(sorted(hosts[at : at + len(one.hosts)]))
        others.append(one.model_copy(update={"hosts": its}))
        at += len(its)
    place = tuple(host * per_node + gpu for host in own for gpu in range(per_node))
    changed = {"placement": PlacementSpec(kind="explicit", gpus=place), "neighbours": tuple(others)}
    return scenario.model_copy(update={"cluster": spec.model_copy(update=changed)})


def beside_at_random(
    scenario: Scenario, cluster: Cluster, profile: GpuProfile | None, seed: int
) -> tuple[float, float]:
    """Seconds of the step alone, and beside its neighbours with hosts dealt and steps begun at random."""
    jobs = jobs_of(lower(dealt(scenario, seed), cluster, profile=profile), profile)
    phases = np.random.default_rng((seed, 1)).random(len(jobs)).tolist()
    late = (replace(job, offset_s=phase * job.alone_s) for job, phase in zip(jobs, phases, strict=True))
    return jobs[0].alone_s, beside(tuple(late)).record.step_s


def _alone_s(lowered: Lowered) -> float:
    """The step of a job that has the fabric to itself."""
    return replay(folded(lowered, HEALTHY).programs).step_s


def beside(
    jobs: Sequence[FabricJob],
    degradation: Degradation = HEALTHY,
    *,
    fold: bool = True,
    max_classes: int | None = None,
    max_events: int | None = None,
) -> Beside:
    """A step of the first of ``jobs`` beside steps of the others; ``degradation`` is that of the first.

    Raises:
        ValueError: more classes or events than are replayed.
    """
    first, others = jobs[0], jobs[1:]
    phases = [(job.offset_s - first.offset_s) % job.alone_s for job in others]
    since_s = max([0.0, *(job.alone_s - at for job, at in zip(others, phases, strict=True) if at > 0)])
    begins_s = [
        since_s + at - (job.alone_s if at > 0 else 0.0) for job, at in zip(others, phases, strict=True)
    ]
    lasts_s = MORE_STEPS * first.alone_s
    while True:
        counts = [
            math.ceil((since_s + lasts_s - begin) / job.alone_s)
            for job, begin in zip(others, begins_s, strict=True)
        ]
        for job, count in zip(others, counts, strict=True):
            check_work(programs_work(job.lowered.programs, replays=count), max_events)
        ready = _folded(jobs, counts, degradation, fold, max_classes)
        if isinstance(ready, Folded):
            check_work(programs_work(ready.programs), max_events)
            return Beside(folded=ready, record=replay(ready.programs), classes=len(ready.ranks))
        check_work(programs_work(ready.programs), max_events)
        starts = [since_s, *begins_s]
        whole = replay(_later(ready.programs, since_s), begins_s=[starts[job] for job in ready.job_of])
        record = of_first_classes(whole, ready.first.programs, since_s)
        if record.makespan_s == math.inf or _covered(whole, ready, since_s + record.makespan_s):
            return Beside(folded=ready.first, record=record, classes=len(ready.job_of))
        lasts_s *= 2


def _later(programs: Programs, since_s: float) -> Programs:
    """The changes of the first job, at the same moments of its step, which begins at a later time."""
    changes = tuple(replace(change, at_s=since_s + change.at_s) for change in programs.changes)
    return replace(programs, changes=changes)


def _covered(whole: Record, ready: FoldedJobs, until_s: float) -> bool:
    """Whether every other job lasts until that time."""
    ends: dict[int, float] = {}
    for job, last_s in zip(ready.job_of, whole.last_s, strict=True):
        ends[job] = max(last_s, ends.get(job, 0.0))
    return all(end_s >= until_s for job, end_s in ends.items() if job)


def _folded(
    jobs: Sequence[FabricJob],
    counts: Sequence[int],
    degradation: Degradation,
    fold: bool,
    max_classes: int | None,
) -> FoldedJobs | Folded:
    """All jobs together, with a number of steps of each after the first; the first job alone where no link
    joins them."""
    kinds: dict[tuple[str, bytes, float], int] = {}
    numbers = [0, *(1 + kinds.setdefault(job.kind, len(kinds)) for job in jobs[1:])]
    steps = [jobs[0].lowered]
    for job, count in zip(jobs[1:], counts, strict=True):
        steps.append(replace(job.lowered, programs=repeated(job.lowered.programs, count)))
    most = max_classes or MOST_CLASSES
    found = folded_jobs(steps, numbers, degradation, fold=fold, max_classes=most)
    if found is not None:
        return found
    return folded(steps[0], degradation, max_classes=most) if fold else unfolded(steps[0], degradation)


def _placed(other: Scenario, spec: NeighbourSpec, field: str) -> Scenario:
    """The scenario of a neighbour, with its ranks on those GPUs of the fabric that its hosts have."""
    per_node = other.cluster.gpus_per_node
    local = gpus(other.cluster, cluster_of(other.cluster))
    if int(local.max()) >= other.cluster.gpus:
        raise ValueError(f"{field}.scenario: its placement leaves the {len(spec.hosts)} hosts that it has")
    place = tuple(spec.hosts[gpu // per_node] * per_node + gpu % per_node for gpu in local.tolist())
    cluster = other.cluster.model_copy(update={"placement": PlacementSpec(kind="explicit", gpus=place)})
    return other.model_copy(update={"cluster": cluster})


def _check_like(scenario: Scenario, other: Scenario, spec: NeighbourSpec, field: str) -> None:
    """The fabric joins hosts of one kind, and the neighbour fills those that it is given; else ValueError."""
    for name in ("gpu", "gpus_per_node", "gpus_per_domain", "interconnect", "node", "what_if"):
        ours, its = getattr(scenario.cluster, name), getattr(other.cluster, name)
        if ours != its:
            raise ValueError(
                f"{field}.scenario: {spec.scenario} has cluster.{name} {_shown(its)}, and ours is "
                f"{_shown(ours)}; one fabric joins like hosts"
            )
    if scenario.calibration != other.calibration:
        raise ValueError(f"{field}.scenario: {spec.scenario} has another calibration than ours")
    hosts = other.cluster.gpus / other.cluster.gpus_per_node
    if hosts != len(spec.hosts):
        raise ValueError(f"{field}.hosts: {spec.scenario} fills {hosts:g} hosts, not {len(spec.hosts)}")


def _shown(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _check_ends(lowered: Lowered, field: str) -> None:
    if lowered.programs.ends != "together":
        raise NotSupported(
            field, "steps without a common end are not replayed beside other jobs; choose another schedule"
        )
