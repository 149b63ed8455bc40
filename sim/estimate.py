"""What a simulation will cost, before it starts: events to replay, seconds, memory; and the limit.

Knows sizes of scenarios and counts of ops; takes no time that grows with them. An estimate is right within a
factor of three for nineteen layouts of twenty (tests/test_estimate.py), which tells a second from an hour,
and an hour from a month; steps whose blocks run in detail, since something interferes with them, take more.

Constants were measured on two cores of a cloud machine (Xeon, Python 3.11, 2026-11). Llama 3.1 405B on 16,384
GPUs with 16, 128, 512 and 8,000 microbatches of a pipeline (4,096 to 2,048,000 actions) makes 12,236,
69,379, 265,243 and 4,084,591 events in 0.56, 5.9, 35 and 463 s, with all cores taken; and 80, 223 and 738 MB
of the first three. Of 250 drawn layouts (tests/small_scenarios.py) nine in ten make 0.9 to 1.8 events an
op of their programs.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..hardware.quantities import DAY_S, HOUR_S
from .scenario.schedules import schedule_named

if TYPE_CHECKING:
    from .program.program import Programs
    from .scenario.models import Scenario

SECONDS_PER_EVENT = 110e-6
"""Seconds of a replay for each event, by the longest of these runs."""
BYTES_PER_EVENT = 2.6e3
"""Memory of a replay for each event, by the growth from the first to the third."""
EVENTS_PER_OP = 1.2
"""Events for each op of the programs, by the drawn layouts."""
OPS_PER_ACTION = 2.0
"""Events of an action: repeated blocks, and a message on most sides. 405B has 3.1 with 16 microbatches, 3.0
with 512."""
OPS_PER_RANK = 14.0
"""Events at the start and the end of a step: norm, optimizer, parameters, buckets."""
OPS_PER_LAYER = 0.5
"""Events of an action in which parameters are awaited, or gradients leave, between layers."""

MEMORY_SHARE = 0.8
"""Share of the machine's memory that one simulation may take."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a replay costs. ``reason`` says what dominates it, and ``advice`` what would make it less."""

    events: float
    reason: str
    advice: str

    @property
    def seconds(self) -> float:
        """Seconds of the simulation on one core."""
        return self.events * SECONDS_PER_EVENT

    @property
    def memory_bytes(self) -> float:
        """Peak memory of the simulation in bytes."""
        return self.events * BYTES_PER_EVENT


class TooMuchWork(ValueError):
    """The estimate is above the limit."""

    def __init__(self, work: Work, limit: int) -> None:
        self.work, self.limit = work, limit
        super().__init__(
            f"about {_rounded(work.events)} events to replay, {_lasting(work.seconds)} and "
            f"{_rounded(work.memory_bytes / 1e9)} GB of memory, are more than the limit of {limit:,} events: "
            f"{work.reason}; {work.advice}, or raise the limit (--max-events, max_events=)"
        )


def step_work(scenario: Scenario, *, ranks: int | None = None, replays: int = 1) -> Work:
    """The work of a step in which so many ranks, or classes of ranks, are replayed so often.

    None is one for each pipeline rank. Knows no faults and no loads of experts, which unfold ranks.
    """
    par, m = scenario.parallelism, scenario.num_microbatches
    kinds = 3 if schedule_named(scenario.schedule).splits_backward else 2
    actions = float(par.vpp) * m * kinds  # of one rank
    layers = (scenario.model.num_layers + scenario.model.mtp_layers) / par.pp
    ops = actions * (OPS_PER_ACTION if par.pp > 1 else 1.0) + OPS_PER_RANK + OPS_PER_LAYER * layers
    classes = par.pp if ranks is None else ranks
    chunks = f" × vpp {par.vpp}" if par.vpp > 1 else ""
    of = f"{classes:,} ranks" if ranks else f"pp {par.pp}"
    return Work(
        events=ops * classes * EVENTS_PER_OP * replays,
        reason=f"{of}{chunks} × {m:,} microbatches × {kinds} actions" + _each(replays),
        advice="fewer microbatches (a smaller global_batch, a larger micro_batch), chunks or stages",
    )


def programs_work(programs: Programs, *, replays: int = 1) -> Work:
    """The work of programs that are at hand, each class by itself."""
    lengths = {id(one): len(one.ops) for one in programs.classes}
    ops = sum(lengths[id(one)] for one in programs.classes)
    classes = len(programs.classes)
    return Work(
        events=ops * EVENTS_PER_OP * replays,
        reason=f"{classes:,} classes of ranks with {ops / max(classes, 1):,.0f} ops each" + _each(replays),
        advice="fewer microbatches, chunks, or faults that make ranks differ",
    )


def default_limit() -> int:
    """Events of an hour on one core, or as many as this machine's memory holds if those are fewer."""
    return int(min(HOUR_S / SECONDS_PER_EVENT, MEMORY_SHARE * _memory_bytes() / BYTES_PER_EVENT))


def check_work(work: Work, max_events: int | None = None) -> None:
    """Raise TooMuchWork, with the estimate, if it is above ``max_events`` (None: ``default_limit``)."""
    limit = default_limit() if max_events is None else max_events
    if work.events > limit:
        raise TooMuchWork(work, limit)


def _memory_bytes() -> float:
    """Memory of this machine; a terabyte where it does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 1e12


def _each(replays: int) -> str:
    return f", {replays:,} times over (each fault is left out once)" if replays > 1 else ""


def _rounded(value: float) -> str:
    """A number with two digits, as befits an estimate."""
    return f"{float(f'{value:.2g}'):,.0f}" if value >= 1 else f"{value:.1g}"


def _lasting(seconds: float) -> str:
    for unit, size in (("years", 365 * DAY_S), ("days", DAY_S), ("hours", HOUR_S), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{_rounded(seconds / size)} {unit}"
    return f"{_rounded(seconds)} seconds"
