"""What faults cost a campaign: every kind at its time, and what noticing, spares and policies change."""

from __future__ import annotations

import math
from typing import Any

import pytest
from faults_campaigns import DAY, HOUR, crashes, document, outcome_of, plan_of

from stepsim.sim.reliability.campaign.replicate import replicate
from stepsim.sim.scenario.faults.kinds import get_kind, kind_names

COSTS_NOTHING_BY_ITSELF = {"storage_outage", "storage_slow"}


@pytest.mark.parametrize("name", sorted(name for name in kind_names() if not get_kind(name).of_a_step))
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


def test_a_cold_spare_is_made_a_warm_one_when_one_is_taken() -> None:
    """The second host that is lost has it at once, and no queue is waited for."""
    downs = [{"kind": "node_down", "target": f"node/{n}", "at": at} for n, at in ((5, "2 h"), (6, "20 h"))]

    def reschedule_s(warm: int, cold: int) -> float:
        recovery = {
            "spares": {"warm": warm, "cold": cold, "promote": "1 h"},
            "repair": {"replace": "100 d", "p_reboot_fixes": 0.0},
            "restart_cost": {"schedule": {"standby": "50 s", "requeue": {"base": "500 s"}}},
        }
        doc = document(faults={"events": downs}, recovery=recovery, run={"work": "1 d"})
        return outcome_of(doc).seconds["reschedule"]

    assert reschedule_s(1, 1) == reschedule_s(2, 0)
    assert reschedule_s(0, 2) == pytest.approx(reschedule_s(2, 0) + 2 * 450.0)


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


@pytest.mark.slow
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
