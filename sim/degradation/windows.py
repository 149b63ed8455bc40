"""When in a step each fault is there: what is wrong from the start, and from each of its edges on.

``at`` counts from the start of the step; without it a fault is there from the start, and without ``duration``
until the end. A fault that hangs a rank stops it for ever. A checkpoint has two phases. Knows no step time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from ..engine.scope import SLACK_S
from ..fold.ranks import Degradation
from ..scenario.refusal import NotSupported
from .of_faults import combined, degradation_of, lasts_s, named

if TYPE_CHECKING:
    from ..scenario.faults.faults import Event
    from .of_faults import Job


WRITES = "checkpoint_write"
"""The kind of fault that has phases: steps stand still, and go on beside a write."""


def window(event: Event) -> tuple[float, float]:
    """When it begins and ends, after the start of the step; infinite: it does not end."""
    at_s = event.at or 0.0
    lasting = lasts_s(event)
    return at_s, math.inf if lasting is None else at_s + lasting


def degradation_over_time(events: Sequence[Event], job: Job) -> Degradation:
    """All faults together, each in its window.

    Raises:
        NotSupported: a kind, or a key of it, that a step does not know; ways around a lost switch that change
            within a step.
        ValueError: what the job cannot go on without.
    """
    phases = [phase for event in events for phase in _phases(event, job)]
    edges = {edge for since, until, _ in phases for edge in (since, until) if 0 < edge < math.inf}
    times = [0.0, *sorted(edges)]
    states = [combined(wrong for since, until, wrong in phases if since <= at_s < until) for at_s in times]
    if len(times) > 1 and job.cluster.fabric.ecmp == "hashed":
        _check_routes(events, states)
    rows = [(0.0, _going(states[0])), *zip(times, states, strict=True)]
    distinct = [row for before, row in pairwise(rows) if row[1] != before[1]]
    return replace(rows[0][1], later=tuple(distinct))


def _phases(event: Event, job: Job) -> list[tuple[float, float, Degradation]]:
    """The effects of a fault, each with its begin and end."""
    if event.kind != WRITES:
        return [(*window(event), degradation_of([event], job))]
    assert job.checkpoint is not None
    return job.checkpoint.phases(range(len(job.gpu)), event.at or 0.0, lasts_s(event))


def begins_after(events: Sequence[Event], step_s: float) -> tuple[Event, ...]:
    """Events that begin when the step is over; what ends at the time of a fault has ended before it."""
    return tuple(event for event in events if window(event)[0] + SLACK_S >= step_s)


def _going(state: Degradation) -> Degradation:
    """The state without ranks that hang: a step begins with all ranks."""
    if all(math.isfinite(factor) for factor in state.slow.values()):
        return state
    return replace(state, slow={rank: slow for rank, slow in state.slow.items() if math.isfinite(slow)})


def _check_routes(events: Sequence[Event], states: Sequence[Degradation]) -> None:
    if any(0.0 in state.fabric_share.values() for state in states):
        timed = next((e for e in events if e.at or e.duration), events[0])
        raise NotSupported(
            f"faults: {named(timed)}: at",
            "with cluster.fabric.ecmp hashed, flows around a lost switch have their ways for the whole step; "
            "leave at and duration out, or set ecmp to spread",
        )
