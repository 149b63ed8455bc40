"""Steps beside the writing of a checkpoint: what they lose, and when the copy is durable."""

from __future__ import annotations

from typing import Any

import pytest
from faults_campaigns import DAY, crashes, document, outcome_of, plan_of
from small_scenarios import scenario
from struck_steps import LINKED, cost

from stepsim.sim.reliability.planning.blocks import blocks_of
from stepsim.sim.reliability.planning.build_plan import build_plan
from stepsim.sim.reliability.planning.step_time import SimulatedStep
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains
from stepsim.sim.scenario.load import scenario_from_document


def storage(**fields: Any) -> dict[str, Any]:
    """A copy every half hour, written in 5 min."""
    written = {"every": "30 min", "mode": "async", "snapshot_stall": "1 s", "persist": "5 min"}
    return {"storage": {**written, "load": "30 s", **fields}}


def test_steps_beside_writes_lose_what_the_factor_says() -> None:
    """5 min at 1/1.2 of the speed: 50 s for each of the copies, of which the last comes with the end."""
    out = outcome_of(document(checkpoint=storage(persist_slow_factor=1.2), faults={}))
    assert out.wall_s == pytest.approx(10 * DAY + 10 * 48 * (1 + 50), rel=1e-9)


def test_the_copy_is_durable_when_it_was() -> None:
    (tier,) = plan_of(document(checkpoint=storage(persist_slow_factor=1.2))).tiers
    assert tier.stall_s + tier.lag_s == pytest.approx(1 + 300)
    assert tier.stall_s == pytest.approx(1 + 50)


def test_a_network_of_its_own_is_the_default_and_costs_nothing() -> None:
    runs = [document(checkpoint=storage(**f), faults=crashes()) for f in ({}, {"persist_slow_factor": 1})]
    assert outcome_of(runs[0]).wall_s == outcome_of(runs[1]).wall_s


def test_more_traffic_costs_more() -> None:
    walls = [
        outcome_of(document(checkpoint=storage(persist_slow_factor=f), faults={})).wall_s
        for f in (1.0, 1.01, 1.5, 4.0)
    ]
    assert walls == sorted(set(walls))


@pytest.mark.parametrize("rule", ["skip", "queue", "block"])
def test_writing_for_longer_than_an_interval(rule: str) -> None:
    """Slow steps stretch the interval: 40 min fit into it when they are twice as long."""
    with pytest.raises(ValueError, match=r"on_overlap: writing takes 2,400\.0 s"):
        plan_of(document(checkpoint=storage(persist="40 min")))
    plan_of(document(checkpoint=storage(persist="40 min", persist_slow_factor=2)))
    doc = document(checkpoint=storage(persist="80 min", persist_slow_factor=2, on_overlap=rule), faults={})
    (tier,) = plan_of(doc).tiers
    assert (tier.overlap, tier.every, tier.stall_s, tier.lag_s) == (rule, 180, 1.0, 4800.0)
    # Half speed while a copy is written: an interval of 30 min takes 1 h. The first one is at full speed.
    one_s, work_s = 1800.0, 10 * DAY
    if rule == "skip":  # the second comes while the first is written, the third 20 min of work after its end
        cycle_work_s, cycle_s = 2 * one_s, 1.0 + 4800.0 + (2 * one_s - 2400.0)
    else:  # writes one after the other
        cycle_work_s, cycle_s = one_s, 4800.0 + (1.0 if rule == "block" else 0.0)
    expected = work_s / cycle_work_s * cycle_s
    assert outcome_of(doc).wall_s == pytest.approx(expected, abs=2 * cycle_s)
    assert outcome_of(doc).seconds["degraded"] == pytest.approx(0.0, abs=1e-6)


def test_writes_over_the_network_of_the_gpus() -> None:
    """A share of every NIC: as if every rail had so much less."""
    run = scenario(**LINKED)
    step = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    rails = [f"link_degraded rail/{rail} bandwidth_factor=0.75" for rail in range(8)]
    slowed = step.during_writes(0.25)
    assert slowed == pytest.approx(cost(run, *rails).slowdown, rel=1e-9)
    assert slowed > 1.05
    found = {**run.to_document(), "run": {"steps": 1000}, "faults": {}}
    host = run.cluster.interconnect
    assert host == "ib-ndr400-x8"  # 400 GB/s a host, of which 4 hosts write a quarter: 100 GB/s for 2 s
    traffic = storage(persist="2 s", bytes="800 GB", every="2000 steps", persist_slow_factor="from_bytes")
    plan = build_plan(blocks_of(scenario_from_document({**found, "checkpoint": traffic}, "small")))
    assert plan.tiers[0].stall_s == pytest.approx(1 + 2 * (1 - 1 / slowed), rel=2e-2)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"persist_slow_factor": 0.5}, "persist_slow_factor"),
        ({"persist_slow_factor": "much"}, "persist_slow_factor"),
        ({"persist_slow_factor": "from_bytes", "bytes": "1 TB"}, "persist_slow_factor: from_bytes needs"),
    ],
)
def test_impossible_checkpoint_fields_are_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        plan_of(document(checkpoint=storage(**fields)))


def test_a_write_that_the_network_cannot_carry_in_its_time_is_refused() -> None:
    run = {**scenario(**LINKED).to_document(), "run": {"steps": 1000}, "faults": {}}
    traffic = storage(persist="1 s", bytes="80 TB", every="20000 steps", persist_slow_factor="from_bytes")
    with pytest.raises(ValueError, match=r"1\.0 s .*network"):
        build_plan(blocks_of(scenario_from_document({**run, "checkpoint": traffic}, "small")))
