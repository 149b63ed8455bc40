"""Shares of time that count under faults: when weeks end, who simulates them, and which are the same."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

import pytest
from small_plans import FAULTS, FIX, answer, small

from stepsim.sim.plan.search.goodput import (
    Campaigns,
    GoodputShares,
    Replicated,
    campaign_of,
    here,
    most_share,
)
from stepsim.sim.plan.search.plan import plan
from stepsim.sim.reliability.study.study import Study, outcomes
from stepsim.sim.scenario.models import Scenario


class Counted:
    """Replications by this process, with their numbers."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(
        self, scenario: Scenario, step_s: float, numbers: Iterable[int]
    ) -> Generator[Replicated, None, None]:
        for number in numbers:
            self.asked.append(number)
            yield from here(scenario, step_s, [number])


@pytest.mark.slow
@pytest.mark.parametrize("run", [{"horizon": "5 d"}, {"steps": 40000}, {"work": "2 d", "horizon": "2 d"}])
def test_no_share_of_time_is_above_what_a_few_replications_leave(run: dict[str, Any]) -> None:
    scenario = small(**{**FAULTS, "run": run})
    campaign = campaign_of(scenario, 4.0)
    done = [*here(scenario, 4.0, range(8))]
    whole = most_share(campaign, done, 8)
    assert whole == Study(campaign, tuple(outcomes(campaign, range(8))), 0.9).ettr.mean
    shares = [most_share(campaign, done[:count], 8) for count in range(9)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0 > whole


@pytest.mark.slow
def test_weeks_end_as_soon_as_they_cannot_be_enough() -> None:
    scenario = small(**FAULTS)
    whole, early, near = Counted(), Counted(), Counted()
    share = GoodputShares(whole).share(scenario, 4.0)
    assert whole.asked == [*range(32)]
    least = GoodputShares(early).share(scenario, 4.0, enough=1.0)
    assert share < least < 1.0
    assert early.asked == [*range(4)]
    assert GoodputShares(near).share(scenario, 4.0, enough=0.999 * share) == share
    assert near.asked == [*range(32)]


def test_weeks_that_are_the_same_are_simulated_once() -> None:
    """As far as they are asked for: of the second layout more are than of the first."""
    one, other = (small(**FAULTS, parallelism__zero=zero, parallelism__tp=2) for zero in (1, 2))
    counted = Counted()
    shares = GoodputShares(counted)
    least = shares.share(one, 4.0, enough=1.0)
    assert shares.share(other, 4.0) == GoodputShares().share(other, 4.0) < least
    assert counted.asked == [*range(32)]
    assert shares.share(one, 4.0, enough=1.0) == least
    shares.share(one, 4.5, enough=1.0)
    assert counted.asked == [*range(32), *range(4)]


@pytest.mark.parametrize(
    "changes",
    [
        {"faults__processes": [{"kind": "gpu_throttle", "rate_per_unit_day": 0.5, "slow_factor": 1.3}]},
        {"faults__events": [{"kind": "gpu_throttle", "target": "gpu/3", "at": "1 d", "slow_factor": 1.3}]},
        {"faults__seed": 4},
        {"parallelism__tp": 1},
    ],
    ids=["what slows", "what slows at a known time", "other draws", "other replicas"],
)
def test_weeks_that_may_differ_are_simulated_apart(changes: dict[str, Any]) -> None:
    one = small(**FAULTS, parallelism__tp=2)
    both = [one, small(**{**FAULTS, "parallelism__tp": 2, **changes})]
    if "faults__processes" in changes or "faults__events" in changes:
        both[0] = both[1]  # how much steps are slowed is not known of either
    counted = Counted()
    shares = GoodputShares(counted)
    for scenario in both:
        shares.share(scenario, 4.0, enough=1.0)
    assert counted.asked == [*range(4)] * 2


def test_the_share_does_not_depend_on_who_simulates() -> None:
    """Nor the plan: replications of one layout are shared among processes."""
    scenario = small(**FAULTS)
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 1}
    alone, beside = (plan(scenario, fix=fix, objective="goodput", audit=2, jobs=jobs) for jobs in (1, 2))
    assert answer(alone) == answer(beside)
    assert alone.certificate.optimal


def test_a_campaign_is_kept_for_its_next_replication(monkeypatch: pytest.MonkeyPatch) -> None:
    from stepsim.sim.plan.search import goodput

    made: list[float] = []

    def counted(scenario: Scenario, step_s: float) -> Any:
        made.append(step_s)
        return campaign_of(scenario, step_s)

    monkeypatch.setattr(goodput, "campaign_of", counted)
    replicated, scenario = Campaigns(), small(**FAULTS)
    for number in range(3):
        replicated(scenario, goodput.Weeks(4.0, number))
    replicated(scenario, goodput.Weeks(4.5, 0))
    assert made == [4.0, 4.5]
