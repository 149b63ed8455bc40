"""Every campaign ends, says how, and gives figures that are figures: shares in [0, 1], nothing infinite."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from faults_campaigns import DAY, campaigns, crashes, document, plan_of
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples

from stepsim.sim.reliability.ask import ask
from stepsim.sim.reliability.campaign import plan as plans
from stepsim.sim.reliability.campaign import replicas, replicate, state
from stepsim.sim.reliability.planning.estimate import expected_events
from stepsim.sim.reliability.study.statistics import ratio_difference, ratio_of
from stepsim.sim.reliability.study.study import Study
from stepsim.sim.reliability.study.sweep import Axis, SweepPoint, rank
from stepsim.sim.report.reliability.document import answers_document
from stepsim.sim.report.reliability.sweep_table import sweep_document, verdict_lines
from stepsim.sim.scenario.faults.machine import Machine
from stepsim.sim.scenario.load import campaign_from_document


def outcome(doc: dict[str, Any]) -> Any:
    return replicate.replicate(plan_of(doc), 0)


NODES = {"kind": "node_down", "scope": "node", "rate_per_unit_day": 0.2}
SCARCE: dict[str, Any] = {
    "faults": {"clock": "wall", "processes": [NODES]},
    "recovery": {
        "spares": {"warm": 0},
        "repair": {"reboot": "0 s", "p_reboot_fixes": 0.0, "replace": "1 d"},
    },
}


def test_a_job_that_can_never_go_on_is_given_up() -> None:
    """64 hosts of which 11 are always in repair, on average: the job has never all of them."""
    out = outcome(document(**SCARCE))
    assert out.ended == "gave_up"
    assert out.wall_s == pytest.approx(1000 * DAY)
    assert 0 <= out.ettr < 0.01
    assert out.stuck_why == "waits for a host"
    assert 0 < out.stuck_s < out.wall_s


def test_a_storage_that_never_comes_back_is_waited_for_until_the_end() -> None:
    events = [{"at": "1 h", "kind": "storage_outage"}, {"at": "2 h", "kind": "software_crash"}]
    doc = document(faults={"events": [{**events[0], "duration": "30000 d"}, events[1]]})
    out = outcome(doc)
    assert (out.ended, out.stuck_why) == ("gave_up", "waits for the storage")
    assert out.stuck_s == pytest.approx(7200, abs=200)
    doc["run"] = {"horizon": "30 d"}
    again = outcome(doc)
    assert (again.ended, again.stuck_why) == ("horizon", "waits for the storage")
    assert again.wall_s == 30 * DAY


def test_restarts_that_lead_nowhere_say_since_when() -> None:
    recovery = {"restart_cost": "1 h", "crash_loop": {"max_no_progress": 5}}
    out = outcome(document(faults=crashes("5 min"), recovery=recovery))
    assert (out.ended, out.stuck_why) == ("no_progress", "5 restarts in a row without a new checkpoint")
    assert out.stuck_s < out.wall_s


def test_events_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plans, state, replicate):
        monkeypatch.setattr(module, "MOST_EVENTS", 2000)
    every = {"every": "1 step", "stall": "0 s", "load": "0 s"}
    doc = document(faults=crashes("1 min"), checkpoint={"storage": every}, recovery={"restart_cost": "1 s"})
    out = outcome(doc)
    assert out.ended == "events"
    assert sum(out.seconds.values()) == pytest.approx(out.wall_s)
    wall = outcome(document(faults={**crashes("1 min"), "clock": "wall"}, recovery={"restart_cost": "1 h"}))
    assert wall.ended in ("events", "no_progress")


@pytest.mark.slow
def test_the_document_says_who_got_stuck() -> None:
    loaded = campaign_from_document(document(**SCARCE), "scarce")
    answers = ask(loaded, replications=2)
    assert answers.stuck
    stuck = answers_document(answers)["stuck"]
    assert stuck["share"] == 1.0
    assert stuck["why"] == {"waits for a host": 2}
    assert stuck["since_s"] > 0


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from numbers(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for part in value:
            yield from numbers(part, path)
    elif isinstance(value, float | int) and not isinstance(value, bool):
        yield path, value


@given(campaigns(), st.integers(1, 4))
@examples(12)
def test_every_figure_is_finite_and_shares_are_shares(doc: dict[str, Any], count: int) -> None:
    found = answers_document(ask(campaign_from_document(doc, "drawn"), replications=count))
    for path, value in numbers(found):
        assert math.isfinite(value), path
        assert value >= 0 or path.startswith(".what_if"), path
    for share in (found["ettr"], *found["waterfall_intervals"].values()):
        if count == 1:
            assert share["low"] is share["high"] is None
        else:
            assert 0 <= share["low"] <= share["mean"] <= share["high"] <= 1


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 100)), min_size=2, max_size=6))
def test_intervals_of_shares_stay_shares(pairs: list[tuple[float, float]]) -> None:
    wholes = [whole for _, whole in pairs]
    parts = [share * whole for share, whole in pairs]
    one = ratio_of(parts, wholes, 0.95)
    assert 0 <= one.low <= one.mean <= one.high <= 1
    gap = ratio_difference((parts, wholes), (wholes, wholes), 0.95)
    assert -1 <= gap.low <= gap.mean + 1e-12 <= gap.high + 1e-12 <= 1 + 1e-12


def test_narrow_intervals_are_the_usual_ones() -> None:
    parts, wholes = [49.9, 50.0, 50.1, 50.0], [100.0] * 4
    one = ratio_of(parts, wholes, 0.95)
    assert one.half_width == pytest.approx(3.182 * one.error, rel=2e-3)
    assert one.error == pytest.approx(0.001 / math.sqrt(1.5) / 2, rel=1e-6)


# How much there is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mtbf", ["30 min", "2 h", "1 d"])
def test_events_are_estimated(mtbf: str) -> None:
    plan = plan_of(document(faults=crashes(mtbf), recovery={"restart_cost": "8 min"}))
    alive = state.ReplicationState(plan, 0, log=False)
    alive.start()
    alive.job = alive.env.process(replicate._job(alive))
    alive.env.run(until=alive.job)
    assert alive.events / 3 < expected_events(plan) < alive.events * 3
    assert expected_events(plan, 7) == 7 * expected_events(plan)


def test_estimates_know_what_is_followed_one_by_one() -> None:
    storage = {
        "every": "10 min",
        "mode": "async",
        "snapshot_stall": "1 s",
        "persist": "15 min",
        "load": "0 s",
    }
    plan = plan_of(document(checkpoint={"storage": {**storage, "on_overlap": "skip"}}))
    assert expected_events(plan) > 10 * 144
    assert expected_events(plan_of(document())) < 10
    endless = plan_of(document(**SCARCE))
    assert expected_events(replace(endless, goal_steps=1e15)) <= plans.MOST_EVENTS


# Replicas ---------------------------------------------------------------------------------------------------


def machine(nodes: int, replicas_: int, gpus_per_node: int = 8) -> Machine:
    gpus = nodes * gpus_per_node
    return Machine(
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        nics_per_node=8,
        nodes_per_leaf=16,
        nodes_per_rack=2,
        racks_per_power=10,
        replicas=replicas_,
        replica_gpus=gpus // replicas_,
    )


@given(st.sampled_from([(32, 4), (32, 8), (8, 32), (12, 4), (16, 16)]), st.data())
def test_regrouping_never_has_fewer_replicas(shape: tuple[int, int], data: st.DataObject) -> None:
    one = machine(*shape)
    empty = data.draw(st.lists(st.integers(0, one.nodes - 1), unique=True))
    waits = replicas.standing(one, empty, regroup=False)
    regrouped = replicas.standing(one, empty, regroup=True)
    assert 0 <= waits.live <= regrouped.live <= one.replicas
    for found in (waits, regrouped):
        assert not found.idle & set(empty)
    working = waits.live * one.nodes // one.replicas if one.nodes >= one.replicas else None
    if working is not None:
        assert working + len(waits.idle) + len(empty) == one.nodes
        assert len(regrouped.idle) < one.nodes // one.replicas
    assert replicas.grows(one, empty, len(empty), waits.live, regroup=False) == bool(empty)


def test_a_host_may_hold_several_replicas() -> None:
    small = machine(8, 32)
    assert small.replicas_of(3) == (12, 13, 14, 15)
    assert replicas.standing(small, [3], regroup=False).live == 28
    assert machine(32, 4).replicas_of(9) == (1,)


def test_replicas_rejoin_one_by_one() -> None:
    """Two hosts of two replicas leave an hour apart: each replica is away for a day."""
    events = [
        {"at": "1 h", "kind": "node_down", "target": "node/1"},
        {"at": "5 h", "kind": "node_down", "target": "node/60"},
        {"at": "6 h", "kind": "node_down", "target": "node/1"},  # is out already
        {"at": "7 h", "kind": "gpu_transient", "target": "gpu/16"},  # stands idle
    ]
    doc = document(
        faults={"events": events},
        detection="0 s",
        recovery={
            "policy": "elastic_dp",
            "restart_cost": "1 s",
            "spares": {"warm": 0},
            "repair": {"reboot": "0 s", "p_reboot_fixes": 0.0, "replace": "1 d"},
            "elastic": {"replicas": 8, "min_replicas": 0.5},
        },
        checkpoint={"storage": {"every": "1 step", "stall": "0 s", "load": "0 s"}},
        run={"horizon": "3 d"},
    )
    out = outcome(doc)
    assert out.interruptions == 2
    assert out.failures == {"node_down": 2}
    away = 4 / 8 + 20 * 2 / 8 + 4 / 8  # hours of the whole job
    assert out.seconds["degraded"] == pytest.approx(away * 3600, rel=1e-3)


def test_a_host_that_is_lost_while_the_job_is_rescheduled_is_waited_for() -> None:
    """It merges into the recovery under way, which needs a host for its slot, too."""
    events = [
        {"at": "1 h", "kind": "node_down", "target": "node/1"},
        {
            "at": f"{3600 + 86400 + 30} s",
            "kind": "node_down",
            "target": "node/2",
        },  # 30 s after a host is there
    ]
    doc = document(
        faults={"clock": "wall", "events": events},
        detection="0 s",
        recovery={
            "restart_cost": {"schedule": {"standby": "5 min", "requeue": {"base": "5 min"}}, "load": "0 s"},
            "spares": {"warm": 0},
            "repair": {"reboot": "0 s", "p_reboot_fixes": 0.0, "replace": "1 d"},
        },
        run={"horizon": "5 d"},
    )
    out = outcome(doc)
    assert out.interruptions == 1
    assert out.seconds["idle"] == pytest.approx(DAY + DAY - (300 + 15 - 30), abs=1.0)


# Sweeps -----------------------------------------------------------------------------------------------------


def points(*spares: dict[str, int], **more: Any) -> tuple[list[Axis], list[SweepPoint]]:
    found = []
    for one in spares:
        plan = plan_of(document(faults={"processes": [NODES]}, recovery={"spares": one}, **more))
        done = tuple(replicate.replicate(plan, number) for number in range(3))
        found.append(SweepPoint((str(one["warm"]),), Study(plan, done, 0.95)))
    return [Axis("recovery.spares.warm", tuple(point.values[0] for point in found))], found


def test_equal_points_are_no_difference() -> None:
    axes, same = points({"warm": 40}, {"warm": 40})
    ranking = rank(same)
    assert (ranking.by, ranking.no_difference, len(ranking.equal)) == ("ettr", True, 2)
    assert sweep_document(axes, same)["no_difference"] is True
    assert "".join(verdict_lines(axes, ranking)).startswith("no difference")


def test_spares_have_a_price_and_so_an_optimum() -> None:
    axes, found = points(*({"warm": warm, "cold": 3} for warm in (0, 10, 25, 40, 200)))
    ettr = [point.ettr.mean for point in found]
    assert ettr[0] < ettr[-1]
    ranking = rank(found)
    assert ranking.by == "ettr_held"
    assert ranking.best not in (found[0], found[-1])
    held = found[1].study
    assert held.gpus_held == (64 + 10 + 3) * 8
    assert held.ettr_held is not None
    assert held.ettr_held.mean == pytest.approx(held.ettr.mean * 64 / 77)
    said = sweep_document(axes, found)
    assert said["held_fixed"] == "3 cold spares in every point"
    assert said["best_by"] == "ettr_held"
    assert rank(points({"warm": 0}, {"warm": 40})[1]).no_difference is False
