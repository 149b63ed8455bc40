"""The share of time that counts, of a layout under the faults of its scenario.

Knows campaigns of weeks; does not know what is searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...reliability.campaign.outcome import Outcome
    from ...reliability.campaign.plan import CampaignPlan
    from ...scenario.models import Scenario

REPLICATIONS = 32
"""Replications of the weeks of each layout, with the same random draws for all of them, so that differences
between layouts are not noise."""

AT_ONCE = 4
"""Replications after which it is asked whether the rest could still make it enough."""


def goodput_share(scenario: Scenario, step_time_s: float, enough: float = 0.0) -> float:
    """Useful time over wall time (ETTR), from 0 to 1, with steps of ``step_time_s``; or something that is no
    less, as soon as it is known to be below ``enough``."""
    from ...reliability.planning.blocks import blocks_of
    from ...reliability.planning.build_plan import build_plan
    from ...reliability.planning.estimate import check_replications
    from ...reliability.study.study import Study, outcomes
    from ...scenario.checked import checked_campaign

    blocks = blocks_of(checked_campaign(scenario.with_({"step_time": f"{step_time_s!r} s"})))
    plan = build_plan(blocks)
    check_replications([plan], REPLICATIONS, None)
    done: list[Outcome] = []
    while len(done) < REPLICATIONS:
        done += outcomes(
            plan, range(len(done), min(len(done) + AT_ONCE, REPLICATIONS) if enough else REPLICATIONS)
        )
        if (most := most_share(plan, done, REPLICATIONS)) < enough:
            return most
    return Study(plan, tuple(done), blocks.run.confidence).ettr.mean


def most_share(plan: CampaignPlan, done: Sequence[Outcome], count: int) -> float:
    """The share of ``count`` replications at most, of which some are ``done``: all time of the others counts,
    up to the goal or the end of the run. What counts is never more than either."""
    most_s = min(plan.end_s, plan.goal_steps * plan.step_s)
    left_s = (count - len(done)) * most_s if len(done) < count else 0.0
    if math.isinf(left_s):
        return 1.0
    wall_s = math.fsum(one.wall_s for one in done) + left_s
    useful_s = math.fsum(one.seconds["useful"] for one in done) + left_s
    return min(1.0, useful_s / wall_s) if wall_s > 0 else 1.0
