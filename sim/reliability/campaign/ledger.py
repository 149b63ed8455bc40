"""How the wall-clock time was spent: one account per category, which together are the whole of it.

Categories are those of the accounting identity in docs/faults.md; each has the name that Google's
ml-goodput-measurement gives to such time (``goodput_utils.py``, BadputType), so that both can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BADPUT: Final[Mapping[str, str]] = {
    "useful": "PRODUCTIVE",
    "checkpoint": "UNPRODUCTIVE_CHECKPOINT_SAVE",
    "recompute": "WASTED_PROGRESS_FROM_DISRUPTION",
    "detection": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "reschedule": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "idle": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",
    "restart": "PROGRAM_STARTUP",
    "load": "UNPRODUCTIVE_CHECKPOINT_RESTORE",
    "failed_restart": "PROGRAM_STARTUP",
    "slow": "OTHER",
    "degraded": "ELASTIC_SLICE_DOWN",
    "maintenance": "CUSTOM",
}
"""Category: ml-goodput's name of it. PRODUCTIVE is its goodput."""

CATEGORIES: Final = tuple(BADPUT)

MEANING: Final[Mapping[str, str]] = {
    "useful": "steps that count, at their fault-free length",
    "checkpoint": "steps waiting for a checkpoint to be taken",
    "recompute": "work since the last durable checkpoint, done again",
    "detection": "from the fault until someone knows",
    "reschedule": "diagnosis, ending processes, getting hosts",
    "idle": "waiting for a spare host, or for the storage",
    "restart": "processes, communicators, compiling, warming up",
    "load": "loading the checkpoint",
    "failed_restart": "restarts that another fault ended",
    "slow": "steps longer than fault-free ones, and pauses",
    "degraded": "steps on fewer replicas",
    "maintenance": "planned absence",
}


class Ledger:
    """Seconds by category."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self.seconds = dict.fromkeys(CATEGORIES, 0.0) if seconds is None else dict(seconds)

    def add(self, category: str, seconds: float) -> None:
        """Book time."""
        self.seconds[category] += seconds

    def book(self, entries: Mapping[str, float]) -> None:
        """Book several."""
        for category, seconds in entries.items():
            self.seconds[category] += seconds

    def copy(self) -> Ledger:
        return Ledger(self.seconds)

    def undo(self, since: Ledger) -> None:
        """What was gained since then is worth nothing: its time was spent on work that is done again."""
        for category in ("useful", "slow", "degraded", "checkpoint"):
            wasted = self.seconds[category] - since.seconds[category]
            self.seconds[category] -= wasted
            self.seconds["recompute"] += wasted

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())
