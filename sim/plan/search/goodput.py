"""The share of time that counts, of a layout under the faults of its scenario.

Knows campaigns of weeks, and that others may simulate their replications; does not know what is searched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...reliability.campaign.plan import CampaignPlan
    from ...scenario.models import Scenario

REPLICATIONS = 32
"""Replications of the weeks of each layout, with the same random draws for all of them, so that differences
between layouts are not noise."""

AT_ONCE = 4
"""Replications after which it is asked whether the rest could still make it enough."""


class Replicated(NamedTuple):
    """Seconds of one replication: all of them on the wall clock, and those that count as useful."""

    wall_s: float
    useful_s: float


class Weeks(NamedTuple):
    """A replication of the weeks of a layout: its healthy step takes ``step_s``, and ``replication`` is the
    number that its random draws follow from."""

    step_s: float
    replication: int


def campaign_of(scenario: Scenario, step_s: float) -> CampaignPlan:
    """The campaign of a scenario (weeks with faults) whose healthy step takes ``step_s``."""
    from ...reliability.planning.blocks import blocks_of
    from ...reliability.planning.build_plan import build_plan
    from ...scenario.checked import checked_campaign

    return build_plan(blocks_of(checked_campaign(scenario.with_({"step_time": f"{step_s!r} s"}))))


class Campaigns:
    """Replications one by one. The last campaign is kept: all of its replications are asked for in a row."""

    def __init__(self) -> None:
        self._last: tuple[Scenario, float, CampaignPlan] | None = None

    def __call__(self, scenario: Scenario, weeks: Weeks) -> Replicated:
        from ...reliability.campaign.replicate import replicate

        if self._last is None or self._last[1] != weeks.step_s or self._last[0] != scenario:
            self._last = scenario, weeks.step_s, campaign_of(scenario, weeks.step_s)
        done = replicate(self._last[2], weeks.replication)
        return Replicated(done.wall_s, done.seconds["useful"])

    def __getstate__(self) -> dict[str, object]:
        """Without what was kept: another process makes its own."""
        return {"_last": None}


Replicate = Callable[["Scenario", float, Iterable[int]], Generator[Replicated, None, None]]
"""Replications of a layout, by its scenario, the seconds of its healthy step, and their numbers: in turn, as
far as they are asked for."""


def here(scenario: Scenario, step_s: float, numbers: Iterable[int]) -> Generator[Replicated, None, None]:
    """Replications ``numbers`` of a scenario's weeks, simulated one after the other by this process."""
    replicated = Campaigns()
    for number in numbers:
        yield replicated(scenario, Weeks(step_s, number))


@dataclass
class GoodputShares:
    """Shares of time that count, of layouts whose weeks ``replicate`` simulates. Weeks that are the same for
    two layouts are simulated once."""

    replicate: Replicate = here
    known: dict[float, list[tuple[CampaignPlan, list[Replicated]]]] = field(default_factory=dict, repr=False)

    def share(self, scenario: Scenario, step_s: float, enough: float = 0.0) -> float:
        """Useful time over wall time (ETTR), from 0 to 1, with healthy steps of ``step_s``; or something that
        is no less, as soon as it is known to be below ``enough``."""
        from ...reliability.planning.estimate import check_replications

        campaign = campaign_of(scenario, step_s)
        check_replications([campaign], REPLICATIONS, None)
        done = self._known_of(campaign)
        with closing(self.replicate(scenario, step_s, range(len(done), REPLICATIONS))) as more:
            for count in range(AT_ONCE, REPLICATIONS + 1, AT_ONCE) if enough else ():
                _upto(count, done, more)
                if (most := most_share(campaign, done[:count], REPLICATIONS)) < enough:
                    return most
            _upto(REPLICATIONS, done, more)
        return most_share(campaign, done, REPLICATIONS)

    def _known_of(self, campaign: CampaignPlan) -> list[Replicated]:
        """The replications so far of these weeks."""
        known = self.known.setdefault(campaign.step_s, [])
        for other, done in known:
            if _same_weeks(campaign, other):
                return done
        known.append((campaign, []))
        return known[-1][1]


def _upto(count: int, done: list[Replicated], more: Iterator[Replicated]) -> None:
    while len(done) < count:
        done.append(next(more))


_NOT_READ = ("name", "step_time")
"""Fields of a campaign that its replications do not read, where nothing slows steps."""


def _same_weeks(one: CampaignPlan, other: CampaignPlan) -> bool:
    """Whether two campaigns have the same replications. Only what slows steps asks how long they take then,
    of which a campaign does not know beforehand whether it is the same for both."""
    from ...scenario.faults.kinds import get_kind

    kinds = [*(get_kind(source.kind) for source in one.sources), *(event.kind for event in one.events)]
    if any(kind.effect == "slow" for kind in kinds):
        return False
    names = [each.name for each in fields(one) if each.name not in _NOT_READ]
    return all(getattr(one, name) == getattr(other, name) for name in names)


def most_share(plan: CampaignPlan, done: Sequence[Replicated], count: int) -> float:
    """The share of ``count`` replications at most, of which some are ``done``: all time of the others counts,
    up to the goal or the end of the run. What counts is never more than either."""
    most_s = min(plan.end_s, plan.goal_steps * plan.step_s)
    left_s = (count - len(done)) * most_s if len(done) < count else 0.0
    if math.isinf(left_s):
        return 1.0
    wall_s = math.fsum(one.wall_s for one in done) + left_s
    useful_s = math.fsum(one.useful_s for one in done) + left_s
    return min(1.0, useful_s / wall_s) if wall_s > 0 else 1.0
