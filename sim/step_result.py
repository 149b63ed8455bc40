"""A replayed step as a result: its figures, the memory of its stages, its interval, what it rests on.

Knows which part says what; each of them knows its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from .result.result import Result

if TYPE_CHECKING:
    from ..hardware.profile import GpuProfile
    from .engine.record import Record
    from .fold.fold import Folded
    from .lowering.lower import Lowered
    from .result.step import StageMemory
    from .scenario.models import Scenario


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
        loads_source=LinkLoads(lowered=lowered, step_time_s=result.step_time_s),
    )
    timing["total_s"] = time.perf_counter() - began
    return result


@dataclass(frozen=True, kw_only=True)
class LinkLoads:
    """What the step loads every link with, for pictures. Pickled, it is lowered again where it is asked for:
    what prices kernels is made of functions that no pickle holds."""

    lowered: Lowered
    step_time_s: float

    def __call__(self) -> dict[str, float]:
        """The share of each link's time, by its name."""
        from .fold.loads import link_loads

        return link_loads(self.lowered, self.step_time_s)

    def __reduce__(self) -> tuple[type[partial[dict[str, float]]], tuple[Any, ...]]:
        plan = self.lowered.plan
        return partial, (_loads_again, plan.scenario, plan.profile, self.step_time_s)


def _loads_again(scenario: Scenario, profile: GpuProfile, step_time_s: float) -> dict[str, float]:
    """The share of each link's time, by its name, with the step lowered anew from its scenario."""
    from .lowering.lower import lower
    from .scenario.machine import cluster_of

    lowered = lower(scenario, cluster_of(scenario.cluster), profile=profile)
    return LinkLoads(lowered=lowered, step_time_s=step_time_s)()


def stage_memory(
    lowered: Lowered,
    ready: Folded,
    record: Record,
    leads_s: Mapping[int, float] | None = None,
    microbatches: int | None = None,
) -> tuple[StageMemory, ...]:
    """Memory of each pipeline rank, of its class; ``leads_s`` of hosts where not as recorded,
    ``microbatches`` of the whole step where not as lowered."""
    from .engine.accounting import action_spans
    from .lowering.memory import memory_of

    shown = {first: pp for pp, first in ready.first_of_stage.items()}
    actions = action_spans(record, shown)
    whole = microbatches or lowered.plan.scenario.num_microbatches
    return memory_of(lowered.plan, actions, leads_s or host_leads_s(ready, record), whole)


def host_leads_s(ready: Folded, record: Record) -> dict[int, float]:
    """How far the host of each pipeline rank was ahead of its GPU, in seconds of its work."""
    from .engine.host_lead import host_lead_s

    return {pp: host_lead_s(record, first) for pp, first in ready.first_of_stage.items()}
