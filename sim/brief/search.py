"""One step of each of many layouts: its time and its memory, exact, and as little besides as can be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..engine.collection import collection_paused
from ..lowering.tables import Tables
from .steady import Extended, extended

if TYPE_CHECKING:
    from ...hardware.profile import GpuProfile
    from ..result.step import StageMemory
    from ..scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOf:
    """``step_time_s`` and ``memory`` (by pipeline rank, without a timeline) as ``simulate`` has them."""

    step_time_s: float
    memory: tuple[StageMemory, ...]

    @property
    def peak_memory_bytes(self) -> float:
        """Of the fullest pipeline rank."""
        return max(stage.peak_bytes for stage in self.memory)

    @property
    def fits(self) -> bool:
        """Whether no rank runs out of memory."""
        return all(stage.fits for stage in self.memory)


@dataclass(kw_only=True)
class Search:
    """Replays layouts one after the other, with ``profile`` in place of the shipped one where given."""

    profile: GpuProfile | None = None
    _tables: Tables = field(default_factory=Tables)

    def step_of(self, scenario: Scenario) -> StepOf:
        """The step of ``scenario`` without faults. Raises as ``simulate`` does."""
        from .step import Replayed, memory_of_step, seconds_of_step

        with collection_paused():
            found = extended(scenario, self._run, lambda one: one.record)
            return StepOf(step_time_s=seconds_of_step(found), memory=memory_of_step(found))

    def _run(self, scenario):
        from ..engine.replay import replay
        from ..estimate import check_work, step_work
        from ..fold.whole import folded
        from ..lowering.lower import lower
        from ..simulate import build_cluster
        from .step import Replayed

        check_work(step_work(scenario))
        lowered = lower(scenario, build_cluster(scenario), profile=self.profile, tables=self._tables)
        ready = folded(lowered)
        return Replayed(lowered, ready, replay(ready.programs))
