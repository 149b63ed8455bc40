"""Laws of campaigns: of ledgers, seeds and logs, of pairs under the same chance, of stretches of steps."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean, pstdev
from typing import Any

import pytest
from faults_campaigns import DAY, campaigns, crashes, document, outcome_of, plan_of, processes
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.sim.reliability.campaign.chance import gap_law, law_of
from stepsim.sim.reliability.campaign.ledger import BADPUT, CATEGORIES
from stepsim.sim.reliability.campaign.replicate import replicate
from stepsim.sim.reliability.campaign.timeline import StepPosition, StepStretch
from stepsim.sim.reliability.study import study as studies
from stepsim.sim.reliability.study.study import Study
from stepsim.sim.report.reliability.event_log import write_events
from stepsim.sim.scenario.faults.laws import Gaps, Lasting


@pytest.mark.slow
@given(campaigns())
@settings(max_examples=20)
def test_the_ledger_closes_and_nothing_is_negative(doc: dict[str, Any]) -> None:
    out = outcome_of(doc)
    assert math.isclose(sum(out.seconds.values()), out.wall_s, rel_tol=1e-9)
    assert set(out.seconds) == set(CATEGORIES) == set(BADPUT)
    assert all(seconds >= -1e-6 for seconds in out.seconds.values()), out.seconds
    assert out.wall_s <= 8 * DAY + 1e-6
    shares = Study(plan_of(doc), (out,), 0.95).waterfall
    assert math.isclose(sum(shares.values()), 1.0, rel_tol=1e-9)


@given(campaigns())
@settings(max_examples=20)
def test_the_record_of_useful_time_is_the_ledger_s(doc: dict[str, Any]) -> None:
    out = outcome_of(doc)
    recorded = math.fsum(useful for _, _, useful in out.pieces)
    assert math.isclose(recorded, out.seconds["useful"], rel_tol=1e-9, abs_tol=1e-6)
    times = [time for start, end, _ in out.pieces for time in (start, end)]
    assert times == sorted(times)


@pytest.mark.slow
@given(campaigns(), st.integers(0, 3))
@settings(max_examples=10)
def test_the_same_seed_gives_the_same_log(doc: dict[str, Any], number: int) -> None:
    first, second = outcome_of(doc, number), outcome_of(doc, number)
    assert str(first.log) == str(second.log)
    assert first.seconds == second.seconds


def test_replications_differ_and_do_not_depend_on_one_another() -> None:
    plan = plan_of(document(faults=crashes()))
    assert replicate(plan, 1).wall_s != replicate(plan, 2).wall_s
    assert replicate(plan, 2).wall_s == replicate(plan, 2).wall_s


def test_processes_beside_one_another_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(document(faults=crashes()))
    serial = studies.outcomes(plan, range(6))
    monkeypatch.setattr(studies, "PARALLEL_ABOVE_S", 0.0)
    monkeypatch.setattr(studies.os, "cpu_count", lambda: 2)
    beside = studies.outcomes(plan, range(6))
    assert [one.number for one in beside] == list(range(6))
    assert [one.seconds for one in beside] == [one.seconds for one in serial]
    plans = [plan, replace(plan, off=frozenset({"software_crash"})), replace(plan, seed=3)]
    several = studies.many(plans, 2)
    alone = [[replicate(one, number).seconds for number in range(2)] for one in plans]
    assert [[one.seconds for one in done] for done in several] == alone


@given(st.integers(1, 400), st.integers(1, 60), st.floats(0, 100))
def test_without_faults_a_run_takes_its_fault_free_time_exactly(steps: int, every: int, stall: float) -> None:
    doc = document(
        run={"steps": steps},
        checkpoint={"storage": {"every": f"{every} steps", "stall": f"{stall} s", "load": "0 s"}},
        faults={"processes": [{"kind": "software_crash", "rate_per_unit_day": 0}]},
    )
    out = outcome_of(doc)
    assert out.wall_s == pytest.approx(steps * 10.0 + steps // every * stall, rel=1e-12)
    assert out.seconds["useful"] == pytest.approx(steps * 10.0, rel=1e-12)
    assert out.interruptions == 0


@given(processes())
@settings(max_examples=15)
def test_a_scale_of_zero_is_no_faults(drawn: list[dict[str, Any]]) -> None:
    out = outcome_of(document(faults={"processes": drawn, "scale": 0}))
    assert out.wall_s == outcome_of(document(faults={})).wall_s
    assert out.failures == {}


def walls(doc: dict[str, Any], count: int = 6) -> list[float]:
    plan = plan_of(doc)
    return [replicate(plan, number).wall_s for number in range(count)]


@given(
    st.sampled_from(["2 min", "20 min", "1 h"]), st.sampled_from(["1 min", "10 min", "1 h"]), st.booleans()
)
@settings(max_examples=12)
def test_detection_and_restore_cost_what_they_take(detect: str, restore: str, exposed: bool) -> None:
    """Pair by pair: the same failures, each of them longer."""
    faults = crashes(restore_exposed=exposed)
    quick = walls(document(faults=faults, detection="1 min", recovery={"restart_cost": "30 s"}))
    slow = walls(document(faults=faults, detection=detect, recovery={"restart_cost": "30 s"}))
    assert all(a <= b for a, b in zip(quick, slow, strict=True))
    if not exposed:
        longer = walls(document(faults=faults, detection="1 min", recovery={"restart_cost": restore}))
        assert all(a <= b for a, b in zip(quick, longer, strict=True))


def test_more_failures_cost_more() -> None:
    several = [sum(walls(document(faults=crashes(mtbf)), 10)) for mtbf in ("100 h", "20 h", "6 h", "2 h")]
    assert several == sorted(several)
    assert several[0] < several[-1]


def test_more_spares_wait_less() -> None:
    """On average: fewer spares also shelter the job, so single runs may differ."""

    def waiting(warm: int) -> float:
        doc = document(
            faults={"processes": [{"kind": "node_down", "rate_per_unit_day": 0.05}]},
            recovery={"spares": {"warm": warm}, "repair": {"replace": "1 d", "p_reboot_fixes": 0.0}},
            run={"horizon": "60 d"},
        )
        plan = plan_of(doc)
        return sum(replicate(plan, number).ettr for number in range(4))

    found = [waiting(warm) for warm in (1, 3, 6, 12)]
    assert found == sorted(found)
    assert found[-1] > found[0] * 1.2


@pytest.mark.parametrize("watchdog", [60, 600])
def test_a_hang_costs_the_watchdog_more_than_a_crash(watchdog: int) -> None:
    def wall(kind: str) -> float:
        doc = document(
            faults={"events": [{"at": "7000 s", "kind": kind}]},
            detection={"watchdog": {"timeout": f"{watchdog} s"}},
        )
        return outcome_of(doc).wall_s

    assert wall("hang") - wall("software_crash") == pytest.approx(watchdog, rel=1e-9)


def test_slow_factor_1_changes_nothing() -> None:
    healthy = outcome_of(document(faults=crashes()))
    slow = {"kind": "gpu_throttle", "target": "node/3", "slow_factor": 1.0, "at": "100 s"}
    nothing = outcome_of(document(faults=crashes(events=[slow])))
    assert nothing.wall_s == pytest.approx(healthy.wall_s, rel=1e-12)
    assert nothing.seconds["slow"] == 0.0


@given(
    st.lists(
        st.sampled_from(["software_crash", "hang", "gpu_fatal", "nic_down", "sdc"]),
        min_size=2,
        max_size=4,
        unique=True,
    ),
    st.integers(0, 20),
)
@settings(max_examples=15)
def test_switching_a_kind_off_never_costs_on_the_exposure_clock(kinds: list[str], seed: int) -> None:
    """Run by run, where recovery does not depend on how many failed before (always a spare, no
    elasticity).
    """
    some = {"software_crash": 4.0, "hang": 2.0, "gpu_fatal": 0.01, "nic_down": 0.005, "sdc": 0.0005}
    faults = {
        "seed": seed,
        "restore_exposed": False,
        "processes": [{"kind": kind, "rate_per_unit_day": some[kind]} for kind in kinds],
    }
    fixed = {"fixed": "2 min", "silent": "1 h"}
    doc = document(faults=faults, detection=fixed, recovery={"restart_cost": "8 min"})
    plan = plan_of(doc)
    whole = [replicate(plan, number).ettr for number in range(3)]
    for kind in kinds:
        if "sdc" in kinds and kind != "sdc":
            continue  # a crash may come between a corruption and its discovery, and save steps from it
        less = replace(plan, off=frozenset({kind}))
        assert all(replicate(less, number).ettr >= ettr for number, ettr in enumerate(whole))


def test_switching_off_leaves_the_others_as_they_were() -> None:
    faults = crashes(restore_exposed=False)
    faults["processes"].append({"kind": "hang", "scope": "job", "mtbf": "9 h"})
    with_hangs = outcome_of(document(faults=faults))
    without = outcome_of(document(faults={**faults, "off": ["hang"]}))
    assert without.failures.keys() == {"software_crash"}
    assert without.wall_s < with_hangs.wall_s


def test_the_event_log_replays_as_a_trace(tmp_path: Path) -> None:
    faults = crashes(restore_exposed=False)
    faults["processes"] += [
        {"kind": "gpu_fatal", "rate_per_unit_day": 0.004},
        {"kind": "gpu_throttle", "rate_per_unit_day": 0.02, "slow_factor": 1.3, "duration": "2 h"},
    ]
    fixed: dict[str, Any] = {"detection": "2 min", "recovery": {"restart_cost": "8 min"}}
    first = outcome_of(document(faults=faults, **fixed))
    write_events(first, tmp_path / "log.csv")
    again = outcome_of(document(faults={"events": [{"trace": str(tmp_path / "log.csv")}]}, **fixed))
    assert len(first.log) > 20
    assert again.failures == first.failures
    assert again.wall_s == pytest.approx(first.wall_s, rel=1e-9)
    assert again.seconds == pytest.approx(first.seconds, rel=1e-9)


# Stretches against counting steps ---------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(1, 7), st.sampled_from([0.0, 0.25, 3.0])), max_size=3),
    st.integers(0, 20),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([0.0, 2.0]),
    st.floats(0, 100),
)
def test_a_stretch_is_where_counting_says(
    due: list[tuple[int, float]], first: int, part: float, pause: float, time: float
) -> None:
    stretch = StepStretch(
        start_s=0.0,
        place=StepPosition(first, part, 0.0, pause),
        step_s=1.0,
        useful_s=1.0,
        slow_s=0.0,
        due=tuple(due),
    )
    clock, steps = pause + (1.0 - part), first + 1  # when that step is done
    while clock <= time:
        clock += sum(stall for every, stall in due if steps % every == 0) + 1.0
        steps += 1
    if abs(clock - time) > 1e-9:
        assert stretch.steps_by(time) == steps - 1
    place = stretch.at(time)
    assert math.isclose(sum(stretch.spent(place).values()), time, abs_tol=1e-9)
    assert stretch.time_of(place.steps) <= time + place.stall_s + place.pause_s + 1e-9 or place.pause_s > 0


DURATIONS: list[tuple[dict[str, Any], float]] = [
    ({"constant": 90.0}, 90.0),
    ({"exponential": {"mean": 90.0}}, 90.0),
    ({"weibull": {"mean": 90.0, "shape": 0.7}}, 90.0),
    ({"weibull": {"mean": 90.0, "shape": 2.0}}, 90.0),
    ({"lognormal": {"median": 90.0, "sigma": 0.5}}, 90.0 * math.exp(0.125)),
    ({"uniform": {"low": 60.0, "high": 120.0}}, 90.0),
]


@pytest.mark.parametrize(
    ("said", "mean_s"), DURATIONS, ids=[f"{next(iter(one))}-{i}" for i, (one, _) in enumerate(DURATIONS)]
)
def test_durations_have_the_mean_that_was_written(said: dict[str, Any], mean_s: float) -> None:
    """As they say themselves, and as they are drawn, within four standard errors."""
    law, stream = law_of(Lasting.model_validate(said)), Random(7)
    assert law.mean == pytest.approx(mean_s)
    drawn = [law.draw(stream) for _ in range(4000)]
    assert fmean(drawn) == pytest.approx(mean_s, abs=4 * pstdev(drawn) / math.sqrt(len(drawn)) + 1e-9)


@pytest.mark.parametrize(
    "dist",
    [
        {"constant": {}},
        {"weibull": {"shape": 0.7}},
        {"lognormal": {"sigma": 0.5}},
        {"uniform": {"spread": 0.5}},
        {"exponential": {}},
    ],
    ids=str,
)
def test_gaps_between_failures_have_their_mean(dist: dict[str, Any]) -> None:
    assert gap_law(Gaps.model_validate(dist), 90.0).mean == pytest.approx(90.0)
