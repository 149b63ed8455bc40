"""One step where many are compared: its time with the interval, its memory, and nothing besides.

Leaves out what only reports read: idle times and links of every rank, assumptions, spans. Long steps are
shortened (steady.py). From one group of microbatches to the next, times, the critical path and the leads of
hosts go on in the same way, and memory no longer grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..engine.collection import collection_paused
from ..engine.replay import replay
from ..estimate import check_work, step_work
from ..evidence.interval import doubt_of, interval_of
from ..evidence.measured_steps import Doubt, measured_steps
from ..fold.fold import Folded, folded
from ..lowering.lower import Lowered, lower
from ..read_record import path_of
from ..result.step import PathSegment
from ..scenario.refusal import NotSupported
from ..simulate import build_cluster
from ..step_result import host_leads_s, stage_memory
from .steady import Extended, extended

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ..engine.record import Record
    from ..lowering.common_to_layouts import SearchCache
    from ..lowering.plan import StepPlan
    from ..program.program import Programs
    from ..result.step import Interval, StageMemory
    from ..scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """``step_time_s`` as ``simulate`` gives it, with its interval, and the memory of every stage.

    ``path`` is the critical path, ``doubt`` what the interval was made of.
    """

    step_time_s: float
    interval: Interval
    memory: tuple[StageMemory, ...]
    path: tuple[PathSegment, ...]
    doubt: Doubt

    @property
    def fits(self) -> bool:
        """Whether no rank is known to run out of memory."""
        return all(stage.fits for stage in self.memory)


@dataclass(frozen=True, slots=True)
class ShortStep:
    """A step, shortened or not, as it was lowered, folded and replayed."""

    lowered: Lowered
    ready: Folded
    record: Record


def brief_step(scenario: Scenario, profile: GpuProfile | None = None) -> Brief:
    """Predict one training step without faults; ``profile`` replaces the shipped one.

    Raises as ``simulate`` does.
    """
    with collection_paused():
        found = _extended(scenario, profile)
        seconds = seconds_of_step(found)
        path = path_of_step(found)
        doubt = doubt_of(seconds, path, found.run.lowered.plan, microbatches=scenario.num_microbatches)
        return Brief(
            step_time_s=seconds,
            interval=interval_of(seconds, doubt, measured_steps()),
            memory=memory_of_step(found, scenario.num_microbatches),
            path=tuple(path),
            doubt=doubt,
        )


def step_seconds(scenario: Scenario, profile: GpuProfile) -> float:
    """The step time alone."""
    with collection_paused():
        return seconds_of_step(_extended(scenario, profile))


def _extended(scenario: Scenario, profile: GpuProfile | None) -> Extended[ShortStep]:
    if scenario.cluster.variation is not None:
        raise NotSupported("cluster.variation", "a shortened step is that of equal GPUs; leave it out")
    if scenario.cluster.other_gpus:
        raise NotSupported("cluster.other_gpus", "a shortened step is that of equal GPUs; leave it out")
    if scenario.cluster.neighbours:
        raise NotSupported("cluster.neighbours", "a shortened step is that of a job by itself; leave it out")
    return extended(scenario, lambda one: _run(one, profile), lambda one: one.record)


def seconds_of_step(found: Extended[ShortStep]) -> float:
    """The time of the whole step, with the groups of microbatches that were left out."""
    step_s = found.run.record.step_s
    return step_s + found.more * found.period.seconds if found.period else step_s


def path_of_step(found: Extended[ShortStep]) -> list[PathSegment]:
    """The critical path; each group that is left out has the path of one in the middle of the step."""
    record, period = found.run.record, found.period
    parts = {segment.name: segment.seconds for segment in path_of(record)}
    if period:
        between = period.since_s, period.since_s + period.seconds
        for segment in path_of(record, between):
            parts[segment.name] = parts.get(segment.name, 0.0) + found.more * segment.seconds
    longest_first = sorted(parts.items(), key=lambda part: -part[1])
    return [PathSegment(name=name, seconds=seconds) for name, seconds in longest_first]


def memory_of_step(found: Extended[ShortStep], microbatches: int) -> tuple[StageMemory, ...]:
    """The memory of the short step. In groups that are left out, hosts get further ahead, and outputs that
    are kept are those of all ``microbatches``."""
    one, period = found.run, found.period
    leads_s = host_leads_s(one.ready, one.record)
    if period:
        for pp, r in one.ready.first_of_stage.items():
            leads_s[pp] += found.more * period.leads_s[r]
    return stage_memory(one.lowered, one.ready, one.record, leads_s, microbatches)


def _run(scenario: Scenario, profile: GpuProfile | None) -> ShortStep:
    return replayed(scenario, build_cluster(scenario), profile)


def replayed(
    scenario: Scenario,
    cluster: Cluster,
    profile: GpuProfile | None,
    cache: SearchCache | None = None,
    like: StepPlan | None = None,
    written: Callable[[Programs], Programs] | None = None,
) -> ShortStep:
    """One step, lowered and replayed whole.

    ``cache`` is that of a search; ``like`` is the plan of a step that differs only in its microbatches.
    Programs are replayed as ``written`` changes them, if it is given.
    """
    check_work(step_work(scenario))
    lowered = lower(scenario, cluster, profile=profile, cache=cache, like=like)
    ready = folded(lowered)
    if written is not None:
        ready = replace(ready, programs=written(ready.programs))
    return ShortStep(lowered, ready, replay(ready.programs))
