"""What faults cost a step, and who waits for whom: the figures, and as part of the JSON document.

Knows two steps of one scenario, the healthy one and the one that ran. Simulates nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..figures import finite
from .step import AXES, PEERS, PathSegment
from .step_hang import Hang, hang_document

WAITING = (*AXES, "bubble", *PEERS)
"""What a rank's compute stream stands still for: communication by axis, other pipeline stages (the bubble),
and ranks of its own stage that are late.
"""


@dataclass(frozen=True, kw_only=True)
class Side:
    """Mean seconds of a step over some ranks: ``work_s`` of the compute stream, and what it stood still for
    (WAITING).
    """

    work_s: float
    waiting_s: Mapping[str, float]

    @property
    def total_waiting_s(self) -> float:
        """Seconds of waiting for all axes, in the bubble, and for late peers."""
        return sum(self.waiting_s.values())


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Ranks (``members``) by how they are joined to the nearest one that is struck, before and after."""

    name: str  # "struck", "same TP group", ...
    ranks: int
    before: Side
    after: Side
    members: tuple[int, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class StepFaults:
    """The step with ``faults`` against the healthy one. ``relations`` has all ranks, each once; a fault
    between switches strikes none. ``without_s`` is the step time without each of ``faults`` in
    turn, where that was replayed (else empty). With a ``hang`` the step has no end: its time is infinite, and
    nothing is known after it. ``gains_s`` is how much shorter the step is with each of them mended, or
    its host drained, by those replays or by a pass over all replicas; None: not known.
    ``least_s`` is known where the step is shorter than the healthy one, since what is late leaves shared
    links to what is awaited: the healthy step with nothing shared, which no fault can undercut.
    """

    faults: tuple[str, ...]
    healthy_step_time_s: float
    step_time_s: float
    before: Side
    after: Side
    relations: tuple[Relation, ...]
    critical_path_before: tuple[PathSegment, ...]
    critical_path_after: tuple[PathSegment, ...]
    classes_before: int
    classes_after: int
    without_s: tuple[float, ...] = ()
    gains_s: tuple[float | None, ...] = ()
    least_s: float | None = None
    hang: Hang | None = None

    @property
    def slowdown(self) -> float:
        """Step time over the healthy one."""
        return self.step_time_s / self.healthy_step_time_s


def step_faults_document(found: StepFaults) -> dict[str, Any]:
    """Every figure, in SI units."""
    return {
        "faults": list(found.faults),
        "slowdown": finite(found.slowdown),
        "step_time_s": {"before": float(found.healthy_step_time_s), "after": finite(found.step_time_s)},
        "least_step_time_s": None if found.least_s is None else float(found.least_s),
        "without": [
            {"fault": fault, "step_time_s": finite(step_s)}
            for fault, step_s in zip(found.faults, found.without_s, strict=False)
        ],
        "gains": [
            {
                "fault": fault,
                "gain_s": gain_s,
                "gain": None if gain_s is None else gain_s / found.step_time_s,
                "replayed": bool(found.without_s),
            }
            for fault, gain_s in zip(found.faults, found.gains_s, strict=False)
        ],
        "waiting_s": {
            name: {"before": float(found.before.waiting_s[name]), "after": float(found.after.waiting_s[name])}
            for name in WAITING
        },
        "who_waits": [
            {
                "ranks": relation.ranks,
                "relation": relation.name,
                "before": _side(relation.before),
                "after": _side(relation.after),
            }
            for relation in found.relations
        ],
        "critical_path": {
            "before": [{"name": s.name, "seconds": float(s.seconds)} for s in found.critical_path_before],
            "after": [{"name": s.name, "seconds": float(s.seconds)} for s in found.critical_path_after],
        },
        "classes": {"before": found.classes_before, "after": found.classes_after},
        "hang": hang_document(found.hang) if found.hang else None,
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "work_s": float(side.work_s),
        "waiting_s": {name: float(side.waiting_s[name]) for name in WAITING},
    }
