"""What jobs on one fabric cost one another: the figures, and as part of the JSON document.

Knows figures; simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class JobBeside:
    """A neighbour: its hosts, when its steps begin after ours, and its step alone and beside all others."""

    name: str
    hosts: tuple[int, ...]
    offset_s: float
    alone_s: float
    step_time_s: float

    @property
    def slowdown(self) -> float:
        """How many times as long as alone its step takes."""
        return self.step_time_s / self.alone_s


@dataclass(frozen=True, kw_only=True)
class DealtHosts:
    """The step alone and beside the neighbours, with the hosts of all jobs dealt at random by ``seed``."""

    seed: int
    alone_s: float
    step_time_s: float

    @property
    def slowdown(self) -> float:
        """How many times as long as alone on the same hosts the step takes."""
        return self.step_time_s / self.alone_s


@dataclass(frozen=True, kw_only=True)
class StepNeighbours:
    """The healthy step alone on the fabric and beside its neighbours, and the same of ``others``; and of
    random ``placements``, where these were asked for.
    """

    alone_s: float
    step_time_s: float
    others: tuple[JobBeside, ...]
    placements: tuple[DealtHosts, ...] = ()

    @property
    def slowdown(self) -> float:
        """How many times as long as alone the step takes."""
        return self.step_time_s / self.alone_s


def neighbours_document(found: StepNeighbours | None) -> dict[str, Any] | None:
    """Every figure, in SI units; None of a job by itself."""
    if found is None:
        return None
    return {
        "alone_step_time_s": float(found.alone_s),
        "step_time_s": float(found.step_time_s),
        "slowdown": float(found.slowdown),
        "others": [
            {
                "scenario": one.name,
                "hosts": list(one.hosts),
                "offset_s": float(one.offset_s),
                "alone_step_time_s": float(one.alone_s),
                "step_time_s": float(one.step_time_s),
                "slowdown": float(one.slowdown),
            }
            for one in found.others
        ],
        "placements": [
            {
                "seed": one.seed,
                "alone_step_time_s": float(one.alone_s),
                "step_time_s": float(one.step_time_s),
                "slowdown": float(one.slowdown),
            }
            for one in found.placements
        ],
    }
