"""Bounds of a step of which few replicas were replayed, and as part of the JSON document.

Knows figures; simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class StepBounds:
    """The step takes ``lower_s`` to ``upper_s``. Of ``of`` replicas of the pipeline, ``replicas`` were
    replayed for it; ``passed``: a pass over all of them, which replays nothing, says what the others add.
    ``proven``: no margin stands for what is not known of it.
    """

    lower_s: float
    upper_s: float
    replicas: int
    of: int
    passed: bool
    proven: bool

    @property
    def gap(self) -> float:
        """How far apart the bounds are, as a share of the lower one."""
        return self.upper_s / self.lower_s - 1


def bounds_document(step_time_s: float, bounds: StepBounds | None) -> dict[str, Any]:
    """Both bounds, equal where all ranks were replayed, and what they rest on."""
    if bounds is None:
        return {"step_time_bounds_s": [float(step_time_s)] * 2, "bounded": None}
    return {
        "step_time_bounds_s": [float(bounds.lower_s), float(bounds.upper_s)],
        "bounded": {
            "replicas": bounds.replicas,
            "of": bounds.of,
            "passed": bounds.passed,
            "proven": bounds.proven,
        },
    }
