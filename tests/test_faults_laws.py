"""Laws of campaigns: over every kind, policy and clock, and pair by pair under the same chance."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faults_campaigns import DAY, HOUR, campaigns, crashes, document, outcome_of, plan_of, processes
from hypothesis import given, settings
from hypothesis import strategies as st

from stepsim.sim.faults.campaign.ledger import BADPUT, CATEGORIES
from stepsim.sim.faults.campaign.replicate import replicate
from stepsim.sim.faults.campaign.timeline import Place, Stretch
from stepsim.sim.faults.kinds import get_kind, kind_names
from stepsim.sim.faults.report.event_log import write_events
from stepsim.sim.faults.study import study as studies
from stepsim.sim.faults.study.study import Study


@given(campaigns())
@settings(max_examples=60)
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


# Every kind -------------------------------------------------------------------------------------------------

COSTS_NOTHING_BY_ITSELF = {"storage_outage", "storage_slow"}


@pytest.mark.parametrize("name", sorted(set(kind_names()) - {"host_jitter"}))  # of single steps
def test_every_kind_costs_time_at_its_time(name: str) -> None:
    kind = get_kind(name)
    event: dict[str, Any] = {"kind": name, "at": "7100 s"}
    if "job" not in kind.scopes and "storage" not in kind.scopes:
        event["target"] = f"{kind.scopes[0]}/0"
    if kind.effect == "slow":
        event |= {"slow_factor": 1.5, "duration": "1 h"}
    doc = document(faults={"events": [event]})
    out, healthy = outcome_of(doc), outcome_of(document(faults={}))
    assert out.failures == {name: 1}
    if name in COSTS_NOTHING_BY_ITSELF:
        assert out.wall_s == pytest.approx(healthy.wall_s, abs=60.0)
    else:
        assert out.wall_s > healthy.wall_s + 1.0
    stops = {"crash": 1, "hang": 1, "silent": 1}.get(kind.effect, 0)
    assert out.interruptions == stops


def test_a_slow_hour_costs_its_share() -> None:
    event = {"kind": "gpu_throttle", "target": "gpu/9", "slow_factor": 1.5, "duration": "1 h", "at": "1 h"}
    out = outcome_of(document(faults={"events": [event]}, checkpoint={}))
    assert out.seconds["slow"] == pytest.approx(HOUR / 3, rel=1e-9)
    assert out.wall_s == pytest.approx(10 * DAY + HOUR / 3, rel=1e-9)


def test_a_host_that_leaves_takes_its_slowness_along() -> None:
    slow = {"kind": "gpu_throttle", "target": "node/5", "slow_factor": 1.5, "at": "1 h"}
    dies = {"kind": "node_down", "target": "node/5", "at": "2 h"}
    other = {"kind": "node_down", "target": "node/6", "at": "2 h"}

    def slowed(*events: Any) -> float:
        return outcome_of(document(faults={"events": events}, run={"work": "1 d"})).seconds["slow"]

    assert slowed(slow, dies) < HOUR / 3 + 1.0
    assert slowed(slow, other) > 6 * HOUR


@pytest.mark.parametrize("action", ["drain_at_checkpoint", "evict"])
def test_the_straggler_monitor_swaps_slow_hosts(action: str) -> None:
    slow = {"kind": "gpu_throttle", "target": "node/5", "slow_factor": 1.5, "at": "1 h"}

    def run(**straggler: Any) -> Any:
        return outcome_of(document(faults={"events": [slow]}, detection={"straggler": straggler}))

    tolerated, swapped = run(action="tolerate"), run(threshold=1.2, window=50, action=action)
    unseen = run(threshold=1.6, window=50, action=action)
    assert swapped.wall_s < tolerated.wall_s - 24 * HOUR
    assert unseen.wall_s == tolerated.wall_s
    watched = 50 * 15.0 / 3  # the excess of 50 steps
    assert watched <= swapped.seconds["slow"] + swapped.seconds["recompute"] < watched + 1.5 * HOUR
    assert (swapped.seconds["recompute"] > 0) == (action == "evict")


def test_corruption_costs_everything_since_the_last_clean_checkpoint() -> None:
    event = {"kind": "sdc", "target": "gpu/9", "at": "5000 s"}
    doc = document(faults={"events": [event]}, detection={"silent": "2 h"}, recovery={"restart_cost": "0 s"})
    out = outcome_of(doc)
    clean = 2 * 1820.0  # two checkpoints of 30 min and 20 s were on storage
    assert out.seconds["recompute"] == pytest.approx(5000.0 + 2 * HOUR - clean, rel=1e-9)


def test_preemption_with_time_for_a_checkpoint_loses_nothing() -> None:
    def lost(notice: str) -> float:
        return outcome_of(
            document(faults={"events": [{"kind": "preemption", "at": "7000 s", "notice": notice}]})
        ).seconds["recompute"]

    assert lost("2 min") == 0.0
    assert lost("10 s") > 1000.0


def test_a_flap_within_the_budget_waits_and_beyond_it_stops_the_job() -> None:
    def run(duration: str) -> Any:
        event = {"kind": "link_flap", "target": "link/3", "at": "7000 s", "duration": duration}
        return outcome_of(document(faults={"events": [event]}))

    assert run("20 s").interruptions == 0
    assert run("20 s").seconds["slow"] == pytest.approx(20.0)
    assert run("40 s").interruptions == 1


def test_peer_memory_loses_less_than_storage_and_falls_back_when_a_group_is_lost() -> None:
    peers = {"every": "1 step", "stall": "0 s", "load": "5 s", "placement": "neighbours"}
    checkpoint = {**document()["checkpoint"], "peer_memory": peers}

    def tier(kind: str, target: str) -> str:
        event = {"kind": kind, "target": target, "at": "7000 s"}
        out = outcome_of(document(faults={"events": [event]}, checkpoint=checkpoint))
        return out.log[0].tier

    assert tier("gpu_fatal", "gpu/0") == "peer_memory"
    assert tier("rack_power", "rack/0") == "storage"  # both hosts of a group
    across = {**checkpoint, "peer_memory": {**peers, "placement": "cross_failure_domain"}}
    event = {"kind": "rack_power", "target": "rack/0", "at": "7000 s"}
    assert outcome_of(document(faults={"events": [event]}, checkpoint=across)).log[0].tier == "peer_memory"


def test_a_bad_copy_costs_one_failed_restart() -> None:
    checkpoint = {
        **document()["checkpoint"],
        "peer_memory": {"every": "1 step", "stall": "0 s", "load": "5 s"},
    }
    doc = document(
        faults={"events": [{"kind": "software_crash", "at": "7000 s"}]},
        checkpoint=checkpoint,
        recovery={"p_bad_copy": 1.0, "restart_cost": "8 min"},
    )
    out = outcome_of(doc)
    assert out.seconds["failed_restart"] == pytest.approx(480.0)
    assert out.log[0].tier == "storage"


def test_the_earliest_way_of_noticing_wins() -> None:
    def noticed(**detection: Any) -> float:
        checks = {"health_check": {"host": "40 s", "period": "fixed"}, **detection}
        event = {"kind": "node_down", "target": "node/5", "at": "2 h"}
        return outcome_of(document(faults={"events": [event]}, detection=checks)).seconds["detection"]

    assert noticed() == pytest.approx(40.0)
    assert noticed(heartbeat="5 s") == pytest.approx(5.0)
    assert noticed(heartbeat="5 s", order=["health_check", "watchdog"]) == pytest.approx(40.0)
    assert noticed(order=["error", "watchdog"], watchdog={"timeout": "100 s"}) == pytest.approx(100.0)


def test_false_alarms_come_with_checkpoints() -> None:
    watchdog = {"watchdog": {"false_positive_per_ckpt": 0.02}}
    plan = plan_of(document(detection=watchdog, run={"work": "100 d"}))
    found = [replicate(plan, number) for number in range(3)]
    checkpoints = 3 * 100 * 48
    expected = checkpoints * 0.02 / 0.98  # the one that was taken for a hang is taken again
    assert sum(one.interruptions for one in found) == pytest.approx(expected, rel=4 / math.sqrt(expected))
    assert all(one.failures == {} for one in found)


def test_a_lost_part_is_away_for_its_duration() -> None:
    recovery = {"spares": {"warm": 0}, "restart_cost": "1 min"}
    event = {"kind": "leaf_switch_down", "target": "leaf/1", "at": "2 h", "duration": "5 h"}
    out = outcome_of(document(faults={"events": [event]}, recovery=recovery))
    assert out.seconds["idle"] + out.seconds["detection"] == pytest.approx(5 * HOUR, abs=61.0)
    assert out.most_repair == 16


def test_elastic_jobs_go_on_with_fewer_replicas() -> None:
    base = {"spares": {"warm": 0}, "repair": {"replace": "1 d", "p_reboot_fixes": 0.0}}
    faults = {"events": [{"kind": "node_down", "target": "node/5", "at": "2 h"}]}

    def run(**more: Any) -> Any:
        return outcome_of(document(faults=faults, recovery={**base, **more}))

    elastic = {"replicas": 8, "min_replicas": 0.5}
    waits, shrinks = run(), run(policy="elastic_dp", elastic=elastic)
    assert waits.seconds["idle"] == pytest.approx(DAY + 600, rel=0.01)
    assert shrinks.seconds["idle"] == 0.0
    assert shrinks.seconds["degraded"] == pytest.approx(DAY / 8, rel=0.05)
    assert run(policy="elastic_dp", elastic={**elastic, "batch": "refuse"}).seconds["idle"] > DAY


@pytest.mark.parametrize("clock", ["wall", "exposure"])
@pytest.mark.parametrize("dist", ["exponential", {"weibull": {"shape": 1.0000001}}])
def test_hosts_that_differ_fail_as_often_as_their_sum_says(clock: str, dist: Any) -> None:
    """With few hosts and no swaps of fortune: the mean of gamma variates is 1 over many replications."""
    faults = {
        "clock": clock,
        "processes": [{"kind": "node_down", "rate_per_unit_day": 0.02, "dist": dist}],
        "heterogeneity": {"node_frailty": {"gamma_cv": 0.5}},
    }
    recovery = {
        "restart_cost": "0 s",
        "spares": {"warm": 64},
        "repair": {"reboot": "1 s", "p_reboot_fixes": 1.0},
    }
    doc = document(faults=faults, detection="0 s", recovery=recovery, run={"horizon": "40 d"})
    plan = plan_of(doc)
    counts = [replicate(plan, number).failures["node_down"] for number in range(40)]
    mean = 64 * 0.02 * 40
    # Poisson, and 64 gammas of deviation 0.5 (spares of their own come and go)
    spread = math.sqrt((mean + (mean * 0.5) ** 2 / 64) / 40)
    assert abs(sum(counts) / 40 - mean) < 3.5 * spread


def test_bad_hosts_are_worth_excluding() -> None:
    def ettr(exclude: int | None) -> float:
        doc = document(
            faults={
                "processes": [{"kind": "node_down", "rate_per_unit_day": 0.05}],
                "heterogeneity": {"node_frailty": {"gamma_cv": 3.0}},
            },
            recovery={"spares": {"warm": 8}, "repair": {"replace": "2 h", "exclude_after": exclude}},
            run={"horizon": "90 d"},
        )
        plan = plan_of(doc)
        return sum(replicate(plan, number).ettr for number in range(6))

    assert ettr(1) > ettr(3) > ettr(None)


def test_a_run_that_gets_nowhere_stops() -> None:
    doc = document(
        faults=crashes("5 min"), recovery={"restart_cost": "1 h", "crash_loop": {"max_no_progress": 3}}
    )
    assert outcome_of(doc).ended == "no_progress"


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
    stretch = Stretch(
        start_s=0.0,
        place=Place(first, part, 0.0, pause),
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
