"""What an exact replay says of one layout, as short as a search needs it.

Knows the replay and how its answer is written down; knows no search.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...result.step import IntervalPart, fullest_of

if TYPE_CHECKING:
    from ...brief.search import Search, StepOf
    from ...scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedLayout:
    """``step_time_s`` is inf where the layout was ``refused``: by the simulator, for the reason given.

    ``path`` is the critical path in seconds by name, ``memory`` the terms of the fullest rank in bytes,
    ``parts`` are the causes of doubt. ``fit_probability`` is that the job has memory enough.
    """

    step_time_s: float
    peak_memory_bytes: float
    capacity_bytes: float
    refused: str = ""
    path: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[IntervalPart, ...] = ()
    fit_probability: float | None = None

    def to_row(self) -> dict[str, Any]:
        """Plain values; floats survive being written and read."""
        return {"refused": self.refused} if self.refused else asdict(self)

    @classmethod
    def of_row(cls, row: dict[str, Any]) -> JudgedLayout:
        """Back from ``to_row``."""
        if row["refused"]:
            return refused(row["refused"])
        return cls(**{**row, "parts": tuple(IntervalPart(**part) for part in row["parts"])})


@dataclass(frozen=True, slots=True)
class LeastStep:
    """What is ``judged`` of a step that is no longer than that of a layout."""

    judged: JudgedLayout


def refused(reason: str) -> JudgedLayout:
    """A layout that the simulator does not take, for that reason."""
    return JudgedLayout(
        step_time_s=math.inf, peak_memory_bytes=math.nan, capacity_bytes=math.nan, refused=reason
    )


class ReplayOf:
    """Judges scenarios by the exact replay; what layouts have in common is found once in each process."""

    def __call__(self, scenario: Scenario) -> JudgedLayout:
        try:
            return self.judged(scenario)
        except ValueError as refusal:
            return refused(f"{refusal}".splitlines()[0])

    def least(self, scenario: Scenario) -> LeastStep:
        """The step as if no two transfers shared a link, which never makes a step longer."""
        try:
            return LeastStep(self._judged(scenario, self._search.least_of(scenario)))
        except ValueError as refusal:
            return LeastStep(refused(f"{refusal}".splitlines()[0]))

    def floor_s(self, scenario: Scenario) -> float:
        """A lower bound of the step in seconds, action by action; 0 if the simulator refuses the scenario."""
        try:
            return self._search.floor_of(scenario)
        except ValueError:
            return 0.0

    def load(self) -> None:
        """Load the simulator, before processes are forked that would each load it for themselves."""
        self._search  # noqa: B018 - whose modules are those of every replay

    def judged(self, scenario: Scenario) -> JudgedLayout:
        """What an exact replay says of a scenario. Raises as ``simulate`` does."""
        return self._judged(scenario, self._search.step_of(scenario))

    def _judged(self, scenario: Scenario, step: StepOf) -> JudgedLayout:
        from ...evidence.measured_memory import fit_probability

        fullest = fullest_of(step.memory)
        return JudgedLayout(
            step_time_s=step.step_time_s,
            peak_memory_bytes=fullest.peak_bytes,
            capacity_bytes=fullest.capacity_bytes,
            path={part.name: part.seconds for part in step.path},
            memory=dict(fullest.terms),
            parts=step.parts,
            fit_probability=fit_probability(scenario.software.name, step.memory),
        )

    @cached_property
    def _search(self) -> Search:
        from ...brief.search import Search as ReplaySearch

        return ReplaySearch()

    def __getstate__(self) -> dict[str, object]:
        """The state without what was found: another process finds its own."""
        return {}
