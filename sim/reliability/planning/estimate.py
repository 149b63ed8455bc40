"""How much there is to simulate, before anything is: events of a campaign, to within a factor of about two.

Knows rates, the end of a run and what a failure sets off, and holds replications against the limit of work.
Simulates nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...estimate import SECONDS_PER_EVENT, Work, check_work
from ...scenario.faults.kinds import get_kind
from ..campaign.plan import MOST_EVENTS, CampaignPlan
from ..campaign.recovering_rules import CHECKED

PER_FAILURE = 6.0
"""Events of one failure: arrival, detection, rescheduling, restore, the next stretch of steps, a repair."""

EVENT_S = 80e-6
"""Of a campaign: Llama 3.1 405B, 4,600 failures in 540 days, took 2.2 s on the machine of sim/estimate.py."""


def expected_events(plan: CampaignPlan, replications: int = 1) -> float:
    """Events of a campaign: failures with what they set off, checkpoints that are followed one by one, units
    with ages of their own. Never more than campaigns are cut at.
    """
    live = [source for source in plan.sources if source.kind not in plan.off]
    rate = math.fsum(source.rate_per_s for source in live)
    wall_s = min(plan.end_s, plan.goal_steps * plan.step_s / _useful_share(plan, rate))
    failures = rate * wall_s + len(plan.events)
    storage = plan.storage
    saves = wall_s / (storage.every * plan.step_s) if storage and storage.overlap else 0.0
    units = sum(source.units for source in live if not source.memoryless or source.prevalence)
    hosts = plan.machine.nodes if plan.frailty_cv else 0
    return replications * (min(MOST_EVENTS, PER_FAILURE * failures + 2 * saves + 1) + units + hosts)


def _useful_share(plan: CampaignPlan, rate: float) -> float:
    """A first guess at ETTR, from what a failure costs on average; at least that of a run given up."""
    rules, notice = plan.recovering, plan.notice
    if rate == 0.0:
        return 1.0
    stops = math.fsum(
        source.rate_per_s
        for source in plan.sources
        if source.kind not in plan.off and get_kind(source.kind).effect in ("crash", "hang", "silent")
    )
    restart = (
        rules.fixed.mean if rules.fixed else rules.kill_s + rules.standby_s + rules.init_s + rules.compile_s
    )
    noticed = notice.fixed.mean if notice.fixed else max(notice.checks[name] for name in CHECKED) / 2
    lost = plan.storage.every * plan.step_s / 2 if plan.storage else 0.0
    return max(0.01, 1.0 / (1.0 + stops * (restart + noticed + notice.diagnosis.mean + lost)))


def check_replications(plans: Sequence[CampaignPlan], count: int, max_events: int | None = None) -> None:
    """TooMuchWork: ``count`` replications of every plan are above ``max_events`` (None: an hour's worth).

    The limit counts events of a step's replay; those of campaigns are shorter.
    """
    each = sum(map(expected_events, plans)) * EVENT_S / SECONDS_PER_EVENT
    points = f" of {len(plans):,} points" if len(plans) > 1 else ""
    work = Work(
        events=each * count,
        reason=f"{count:,} replications{points} with about {each / max(1, len(plans)):,.0f} events each",
        advice="fewer replications or points, or a shorter horizon",
    )
    check_work(work, max_events)
