"""A step for what validation compares: its time with the interval, its memory, and nothing besides.

Leaves out what only reports read: idle times and links of every rank, assumptions, spans. Long steps are
shortened (steady.py): times and the critical path go on as they do from one group of microbatches to the
next, and so do leads of hosts; else memory does not grow any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.collection import collection_paused
from .steady import Extended, extended

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..engine.record import Record
    from ..fold.whole import Folded
    from ..report.result import Interval, StageMemory
    from ..scenario.models import Scenario
    from ..step.lower import Lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """``step_time_s`` as ``simulate`` gives it, with its interval, and the memory of every stage."""

    step_time_s: float
    interval: Interval
    memory: tuple[StageMemory, ...]

    @property
    def fits(self) -> bool:
        """Whether no rank is known to run out of memory."""
        return all(stage.fits for stage in self.memory)


@dataclass(frozen=True, slots=True)
class _Replayed:
    lowered: Lowered
    ready: Folded
    record: Record

    @property
    def seconds(self) -> float:
        return self.record.step_s


def brief_step(scenario: Scenario, profile: GpuProfile | None = None) -> Brief:
    """Predict one training step without faults, with ``profile`` in place of the shipped one where given.

    Raises as ``simulate`` does.
    """
    from ..interval import step_interval
    from ..report.result import PathSegment

    with collection_paused():
        found = _extended(scenario, profile)
        longer = _path(found.longer)
        shorter = _path(found.shorter) if found.more else longer
        seconds = found.of(found.shorter.seconds, found.longer.seconds)
        segments = [
            PathSegment(name=name, seconds=found.of(shorter.get(name, 0.0), longer.get(name, 0.0)))
            for name in (*longer, *(shorter.keys() - longer.keys()))
        ]
        return Brief(
            step_time_s=seconds,
            interval=step_interval(seconds, segments, found.longer.lowered.plan),
            memory=_memory(found),
        )


def step_seconds(scenario: Scenario, profile: GpuProfile) -> float:
    """The step time alone."""
    with collection_paused():
        found = _extended(scenario, profile)
        return found.of(found.shorter.seconds, found.longer.seconds)


def _extended(scenario: Scenario, profile: GpuProfile | None) -> Extended[_Replayed]:
    return extended(scenario, lambda one: _run(one, profile), lambda one: one.seconds)


def _path(of: _Replayed) -> dict[str, float]:
    from ..read_record import path_of

    return {segment.name: segment.seconds for segment in path_of(of.record)}


def _memory(found: Extended[_Replayed]) -> tuple[StageMemory, ...]:
    """As it is in the longer step; leads of hosts go on to grow where they do so from one to the other."""
    from ..simulate import host_leads_s, stage_memory

    last, before = (host_leads_s(one.ready, one.record) for one in (found.longer, found.shorter))
    leads_s = {pp: max(lead_s, found.of(before[pp], lead_s)) for pp, lead_s in last.items()}
    return stage_memory(found.longer.lowered, found.longer.ready, found.longer.record, leads_s)


def _run(scenario: Scenario, profile: GpuProfile | None) -> _Replayed:
    from ..engine.replay import replay
    from ..fold.whole import folded
    from ..simulate import build_cluster
    from ..step.lower import lower

    lowered = lower(scenario, build_cluster(scenario), profile=profile)
    ready = folded(lowered)
    return _Replayed(lowered, ready, replay(ready.programs))
