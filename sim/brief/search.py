"""The time and memory of one step for each of many layouts, exact, and as little else as possible.

A search gives its layouts to one ``Search``, which keeps what they have in common: the machine, the orders of
pipelines, and the messages between their ranks. Each layout is replayed once. What is shown of the best ones,
their critical path and causes of doubt, comes with every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ...hardware.calibrated.overlay import calibrated_profile
from ..engine.collection import collection_paused
from ..estimate import check_work, step_work
from ..evidence.interval import doubt_of, parts_of
from ..evidence.measured_steps import measured_steps
from ..lowering.common_to_layouts import SearchCache
from ..lowering.lower import make_plan
from ..result.step import fullest_of
from ..simulate import build_cluster
from .floor import step_floor
from .memory import enough_microbatches, memory_of_plan
from .pace import periods_until_paced
from .steady import extended, of_length, shortened
from .step import ShortStep, memory_of_step, path_of_step, replayed, seconds_of_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ..engine.record import Record
    from ..lowering.plan import StepPlan
    from ..program.program import Programs
    from ..result.step import IntervalPart, PathSegment, StageMemory
    from ..scenario.blocks import ClusterSpec
    from ..scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOf:
    """A step of one layout, with ``step_time_s`` and the ``memory`` of every pipeline rank as ``simulate``
    has them.

    ``peak_s`` is nan where the time of the peak depends on the clock (memory.py). ``path`` is the critical
    path; ``parts`` are what the interval is made of (by ``interval_of_parts``).
    """

    step_time_s: float
    memory: tuple[StageMemory, ...]
    path: tuple[PathSegment, ...]
    parts: tuple[IntervalPart, ...]

    @property
    def peak_memory_bytes(self) -> float:
        """Peak memory of the fullest pipeline rank."""
        return fullest_of(self.memory).peak_bytes

    @property
    def fits(self) -> bool:
        """Whether no rank runs out of memory."""
        return all(stage.fits for stage in self.memory)


@dataclass(kw_only=True)
class Search:
    """Searches the layouts of one job one after the other; ``profile`` replaces the shipped one."""

    profile: GpuProfile | None = None
    _cache: SearchCache = field(default_factory=SearchCache)
    _clusters: list[tuple[ClusterSpec, Cluster]] = field(default_factory=list)

    def step_of(self, scenario: Scenario) -> StepOf:
        """The step of ``scenario`` without faults. Raises as ``simulate`` does."""
        with collection_paused():
            return self._step_of(scenario)  # all but the answer is gone before the collector may look again

    def least_of(self, scenario: Scenario) -> StepOf:
        """The step of ``scenario`` if nobody shared a link (least.py). It is no longer than its own step,
        and cheaper: contention of many messages and collectives is not computed. Raises as ``simulate``
        does."""
        from .least import least_programs

        with collection_paused():
            return self._step_of(scenario, least_programs)

    def floor_of(self, scenario: Scenario) -> float:
        """A lower bound of the step of ``scenario`` in seconds (floor.py); 0 where none is known."""
        with collection_paused():
            return step_floor(self._plan(scenario, self._cluster(scenario)), self._cache)

    def _step_of(self, scenario: Scenario, written: Callable[[Programs], Programs] | None = None) -> StepOf:
        cluster = self._cluster(scenario)
        plan = self._short_plan(scenario, cluster)
        memory = _memory(plan, scenario.num_microbatches)

        def run(one: Scenario) -> ShortStep:
            return replayed(one, cluster, self.profile, self._cache, plan, written)

        def record(one: ShortStep) -> Record:
            return one.record

        found = (
            extended(scenario, run, record)
            if memory is None
            else shortened(scenario, run, record, partial(periods_until_paced, plan))
        )
        seconds, path = seconds_of_step(found), path_of_step(found)
        doubt = doubt_of(seconds, path, found.run.lowered.plan, microbatches=scenario.num_microbatches)
        return StepOf(
            step_time_s=seconds,
            memory=memory_of_step(found, scenario.num_microbatches) if memory is None else memory,
            path=tuple(path),
            parts=parts_of(doubt, measured_steps()),
        )

    def _cluster(self, scenario: Scenario) -> Cluster:
        for known, cluster in self._clusters:
            if known == scenario.cluster and scenario.is_checked:
                return cluster
        cluster = build_cluster(scenario)
        self._clusters.append((scenario.cluster, cluster))
        return cluster

    def _short_plan(self, scenario: Scenario, cluster: Cluster) -> StepPlan:
        """The plan of a step with as many microbatches as its memory depends on."""
        check_work(step_work(scenario))
        return self._plan(of_length(scenario, enough_microbatches(scenario)), cluster)

    def _plan(self, scenario: Scenario, cluster: Cluster) -> StepPlan:
        used = self.profile or calibrated_profile(cluster.gpu, scenario.calibration)
        return make_plan(scenario, cluster, used, self._cache)


def _memory(plan: StepPlan, microbatches: int) -> tuple[StageMemory, ...] | None:
    """Memory by the order of actions; None where it depends on the clock: on how far hosts run ahead, or on
    which actions pair."""
    found = memory_of_plan(plan, microbatches)
    return found.high if found is not None and found.exact else None
