"""A step in which a rank stops: who waits for it, in which communication, since when, and until when.

Figures, and as part of the JSON document. Simulates nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Ranks that wait for ever in communications of one ``axis``: the ``operation`` that the first of them is
    in, how many ``ranks`` end up there, and since when the first and the last of them do nothing else.
    """

    axis: str
    operation: str
    ranks: int
    first_s: float
    last_s: float


@dataclass(frozen=True, kw_only=True)
class Waiters:
    """Ranks by how they are joined to one that stopped: of ``ranks``, so many ``blocked``, the first at
    ``first_s`` (None: none is) in a communication of ``axis``.
    """

    name: str
    ranks: int
    blocked: int
    first_s: float | None
    axis: str


@dataclass(frozen=True, kw_only=True)
class Hang:
    """Times count from the start of the step. ``stopped`` ranks at ``at_s``; ``finished`` ranks had done all
    of their step. ``entered_s`` is when the first of the communications that never end was entered, and
    ``watchdog_s`` later the watchdog ends the job.
    """

    at_s: float
    stopped: int
    finished: int
    blocked: tuple[Blocked, ...]
    waiters: tuple[Waiters, ...]
    entered_s: float
    watchdog_s: float

    @property
    def ends_s(self) -> float:
        """When the watchdog ends the job."""
        return self.entered_s + self.watchdog_s


def hang_document(found: Hang) -> dict[str, Any]:
    """Every figure, in SI units."""
    return {
        "at_s": float(found.at_s),
        "stopped_ranks": found.stopped,
        "finished_ranks": found.finished,
        "blocked": [
            {
                "axis": one.axis,
                "operation": one.operation,
                "ranks": one.ranks,
                "first_s": float(one.first_s),
                "last_s": float(one.last_s),
            }
            for one in found.blocked
        ],
        "who_waits": [
            {
                "relation": one.name,
                "ranks": one.ranks,
                "blocked": one.blocked,
                "first_s": None if one.first_s is None else float(one.first_s),
                "axis": one.axis or None,
            }
            for one in found.waiters
        ],
        "watchdog": {
            "timeout_s": float(found.watchdog_s),
            "counts_from_s": float(found.entered_s),
            "ends_job_s": float(found.ends_s),
        },
    }
