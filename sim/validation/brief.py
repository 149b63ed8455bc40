"""A step for what validation compares: its time with the interval, its memory, and nothing besides.

Leaves out what only reports read: idle times and links of every rank, assumptions, spans. Long steps are
shortened (steady.py): times and the critical path go on as they do from one group of microbatches to the
next; memory does not grow any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..engine.collection import collection_paused
from .steady import steady

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..engine.record import Record
    from ..fold.whole import Folded
    from ..report.result import Interval, StageMemory
    from ..scenario.models import Scenario
    from ..step.lower import Lowered
    from ..step.plan import Plan


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    seconds: float
    path: Mapping[str, float]  # seconds of the critical path by what they went to
    memory: tuple[StageMemory, ...]
    plan: Plan


def brief_step(scenario: Scenario, profile: GpuProfile | None = None) -> Brief:
    """Predict one training step without faults, with ``profile`` in place of the shipped one where given.

    Raises as ``simulate`` does.
    """
    with collection_paused():
        short = steady(scenario)
        if short is None:
            whole = _replayed(scenario, profile)
            return _brief(whole, whole.seconds, whole.path)
        shorter, longer = _replayed(short.shorter, profile, memory=False), _replayed(short.longer, profile)
        path = {
            name: short.seconds(shorter.path.get(name, 0.0), longer.path.get(name, 0.0))
            for name in (*longer.path, *(shorter.path.keys() - longer.path.keys()))
        }
        return _brief(longer, short.seconds(shorter.seconds, longer.seconds), path)


def step_seconds(scenario: Scenario, profile: GpuProfile) -> float:
    """The step time alone."""
    with collection_paused():
        short = steady(scenario)
        if short is None:
            return _run(scenario, profile)[2].step_s
        shorter, longer = (_run(one, profile)[2].step_s for one in (short.shorter, short.longer))
        return short.seconds(shorter, longer)


def _brief(of: _Replayed, seconds: float, path: Mapping[str, float]) -> Brief:
    from ..interval import step_interval
    from ..report.result import PathSegment

    segments = [PathSegment(name=name, seconds=part) for name, part in path.items()]
    return Brief(step_time_s=seconds, interval=step_interval(seconds, segments, of.plan), memory=of.memory)


def _replayed(scenario: Scenario, profile: GpuProfile | None, *, memory: bool = True) -> _Replayed:
    from ..engine.accounting import action_spans
    from ..read_record import path_of
    from ..simulate import stage_memory

    lowered, ready, record = _run(scenario, profile)
    path = {segment.name: segment.seconds for segment in path_of(record)}
    held = stage_memory(lowered, ready, action_spans(record, ready.first_of_stage.values())) if memory else ()
    return _Replayed(seconds=record.step_s, path=path, memory=held, plan=lowered.plan)


def _run(scenario: Scenario, profile: GpuProfile | None) -> tuple[Lowered, Folded, Record]:
    from ..engine.replay import replay
    from ..fold.whole import folded
    from ..simulate import build_cluster
    from ..step.lower import lower

    lowered = lower(scenario, build_cluster(scenario), profile=profile)
    ready = folded(lowered)
    return lowered, ready, replay(ready.programs)
