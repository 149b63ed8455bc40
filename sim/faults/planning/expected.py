"""What replications of a plan will cost, before they start: faults that come meanwhile, as events.

A fault takes 0.5 ms: what fails, who notices, what is swapped, the restart, what is repaired (Llama 3.1 405B
on 16,384 GPUs, 4,600 faults in 540 days, 2.2 s). Stretches between faults are arithmetic and cost nothing; a
plan whose checkpoints are followed one by one costs an event for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...estimate import Work, check_work
from ..campaign.plan import MOST_EVENTS, Plan

EVENTS_PER_FAULT = 4.5
"""0.5 ms in events of a step's replay, which are the unit of all estimates (estimate.py)."""

LONGER = 1.5
"""A run with a goal takes so many times its fault-free time, as it is estimated here."""


def expected_events(plan: Plan) -> float:
    """Of one replication, which is given up where it has too many."""
    wall_s = min(plan.end_s, LONGER * plan.goal_steps * plan.step_s)
    faults = sum(source.rate_per_s * wall_s + source.prevalence * source.units for source in plan.sources)
    followed = (tier for tier in plan.tiers if tier.overlap)
    writes = sum(wall_s / (tier.every * plan.step_s) for tier in followed)
    found = EVENTS_PER_FAULT * (faults + len(plan.events)) + writes
    return min(found, float(MOST_EVENTS)) if math.isfinite(found) else float(MOST_EVENTS)


def check_replications(plans: Sequence[Plan], count: int, max_events: int | None = None) -> None:
    """TooMuchWork: ``count`` replications of every plan are above ``max_events`` (None: an hour's worth)."""
    each = sum(map(expected_events, plans))
    points = f" of {len(plans):,} points" if len(plans) > 1 else ""
    work = Work(
        events=each * count,
        reason=f"{count:,} replications{points} with about {each / max(1, len(plans)):,.0f} events each",
        advice="fewer replications or points, or a shorter horizon",
    )
    check_work(work, max_events)
