"""What one replication leaves behind: where its time went, what failed, how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class LogEntry:
    """One fault in the log. Times are of the wall clock; nan: it did not stop the job."""

    at_s: float
    kind: str
    target: str
    duration_s: float
    magnitude: float
    effect: str
    source: str = ""
    detected_s: float = float("nan")
    resumed_s: float = float("nan")
    lost_s: float = float("nan")
    restored_step: int = -1
    tier: str = ""
    note: str = ""


@dataclass(slots=True)
class Outcome:
    """``seconds`` by category; ``pieces``: (from, until, useful seconds) of the wall clock, in order;
    ``repairs``: hosts in repair from each time on, of a logged replication.

    ``ended``: goal, horizon, no_progress (restarts lead nowhere), gave_up (Plan.end_s), events (too many).
    ``stuck_s`` and ``stuck_why``: since when and why it got no further; nan and empty where it did.
    ``mean_repair`` are hosts in repair over time, ``exposed_s`` the time in which failures of the job's own
    clock could arrive.
    """

    number: int
    wall_s: float = 0.0
    seconds: dict[str, float] = field(default_factory=dict)
    steps: float = 0.0
    ended: str = "goal"
    failures: dict[str, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    detect_s: list[float] = field(default_factory=list)
    recover_s: list[float] = field(default_factory=list)
    lost_s: list[float] = field(default_factory=list)
    pieces: list[tuple[float, float, float]] = field(default_factory=list)
    log: list[LogEntry] = field(default_factory=list)
    repairs: list[tuple[float, int]] = field(default_factory=list)
    interruptions: int = 0
    exposed_s: float = 0.0
    mean_repair: float = float("nan")
    most_repair: int = 0
    excluded: int = 0
    stuck_s: float = float("nan")
    stuck_why: str = ""

    @property
    def ettr(self) -> float:
        return self.seconds["useful"] / self.wall_s if self.wall_s else 1.0
