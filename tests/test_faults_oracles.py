"""Campaigns against Monte Carlo simulations that were written from docs/faults.md alone (``tests/oracles``).

Twice each: under the same faults at the same times, where both must agree to rounding, and under faults of
their own, where they must agree within three standard errors.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from faults_campaigns import DAY, HOUR, document, plan_of
from oracles.hosts_that_return import Hosts, Life
from oracles.hosts_that_return import monte_carlo as hosts_alone
from oracles.overlapping_writes import Overlapping, kept_steps
from oracles.overlapping_writes import monte_carlo as writes_alone

from stepsim.sim.reliability.campaign.replicate import replicate

MIN = 60.0

# Writes that overlap ----------------------------------------------------------------------------------------

WRITES = {
    "a published trial": {"m": 75 * MIN, "every": 12, "write": 22 * MIN, "stall": 2.0},
    "a write of five intervals": {"m": 90 * MIN, "every": 5, "write": 25 * MIN, "stall": 10.0},
    "hardly longer than the interval": {"m": 60 * MIN, "every": 10, "write": 10.5 * MIN, "stall": 1.0},
    "exactly two intervals": {"m": 120 * MIN, "every": 10, "write": 20 * MIN, "stall": 0.0},
    "rare failures": {"m": 10 * HOUR, "every": 15, "write": 40 * MIN, "stall": 30.0},
    "failures before a write ends": {"m": 15 * MIN, "every": 6, "write": 13 * MIN, "stall": 5.0},
    "steps are slow beside writes": {
        "m": 80 * MIN,
        "every": 8,
        "write": 21 * MIN,
        "stall": 3.0,
        "slow": 1.25,
    },
}


def overlapping(name: str, policy: str) -> Overlapping:
    return Overlapping(policy=policy, step=MIN, down=90.0, restore=4 * MIN, **cast(Any, WRITES[name]))


def writes_document(job: Overlapping, **more: Any) -> dict[str, Any]:
    storage = {
        "every": f"{job.every} steps",
        "mode": "async",
        "snapshot_stall": f"{job.stall!r} s",
        "persist": f"{job.write!r} s",
        "persist_slow_factor": job.slow,
        "load": "0 s",
        "on_overlap": job.policy,
    }
    crashes = {"kind": "software_crash", "scope": "job", "mtbf": f"{job.m!r} s"}
    return document(
        step_time=f"{job.step!r} s",
        faults={"restore_exposed": False, "processes": [crashes]},
        detection=f"{job.down!r} s",
        recovery={"restart_cost": f"{job.restore!r} s", "crash_loop": {"max_no_progress": 100_000}},
        checkpoint={"storage": storage},
        **more,
    )


@pytest.mark.parametrize("policy", ["skip", "block", "queue"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_under_the_same_faults(name: str, policy: str) -> None:
    """A life of the job ends at a known time; what it leaves on storage is that of the oracle."""
    job = overlapping(name, policy)
    lives = np.random.default_rng(5).exponential(job.m, 150)
    down = job.down + job.restore
    at = np.cumsum(lives) + down * np.arange(len(lives))
    events = [{"at": f"{float(time)!r} s", "kind": "software_crash"} for time in at]
    end = float(at[-1]) + down
    doc = writes_document(job, run={"horizon": f"{end!r} s"})
    doc["faults"] = {"events": events}
    out = replicate(plan_of(doc), 0)
    assert out.interruptions == len(lives)
    assert out.seconds["useful"] == pytest.approx(kept_steps(job, lives).sum() * job.step, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["skip", "block", "queue"])
@pytest.mark.parametrize("name", WRITES)
def test_writes_within_three_standard_errors(name: str, policy: str) -> None:
    job = overlapping(name, policy)
    plan = plan_of(writes_document(job, run={"horizon": f"{500 * job.m + 500 * 330!r} s"}))
    out = replicate(plan, 0)
    lives = 25_000  # fifty times as many as the campaign's, whose error is what counts
    expected, error = writes_alone(job, lives)
    own = error * math.sqrt(lives / out.interruptions)
    assert own < 0.02
    assert abs(out.ettr - expected) < 3 * math.hypot(own, error)


# Hosts that leave and return --------------------------------------------------------------------------------

TRIAL = Hosts(
    replicas=16,
    each=8,
    need=8,
    rate=0.025 / DAY,
    repair=18 * HOUR,
    detect=2 * MIN,
    restore=3 * MIN,
    step=MIN,
    every=30,
)
ELASTIC = {
    "the trial of sixteen replicas": TRIAL,
    "regrouped": replace(TRIAL, regroup=True),
    "smaller steps": replace(TRIAL, micro=True, exponential=True, rate=0.01 / DAY),
    "on the wall clock": replace(TRIAL, wall=True, rate=0.02 / DAY),
    "regrouped on the wall clock": replace(TRIAL, wall=True, regroup=True, rate=0.06 / DAY),
    "half of few large replicas": replace(TRIAL, replicas=4, each=16, need=2, rate=0.02 / DAY, stall=20.0),
    "it often waits": replace(TRIAL, replicas=4, each=4, need=4, rate=0.05 / DAY, repair=6 * HOUR),
    "some spares": replace(TRIAL, spares=2, restore=10 * MIN, exponential=True),
    "restores are safe": replace(TRIAL, exposed=False, restore=30 * MIN, every=10),
}
NO_SPARES = {
    "few hosts": replace(TRIAL, replicas=1, each=32, need=1, rate=0.01 / DAY),
    "the wall clock": replace(TRIAL, replicas=1, each=32, need=1, rate=0.01 / DAY, wall=True),
    "long repairs": replace(TRIAL, replicas=1, each=16, need=1, rate=0.01 / DAY, repair=3 * DAY),
    "repairs of random length": replace(
        TRIAL, replicas=1, each=64, need=1, rate=0.005 / DAY, exponential=True, wall=True
    ),
    "failures in long restores": replace(
        TRIAL, replicas=1, each=64, need=1, rate=0.05 / DAY, repair=HOUR, restore=HOUR, wall=True
    ),
    "costly checkpoints": replace(
        TRIAL, replicas=1, each=128, need=1, rate=0.02 / DAY, repair=2 * HOUR, stall=60.0, every=20
    ),
}
ALL = {**{f"elastic: {name}": job for name, job in ELASTIC.items()}}
ALL |= {f"no spares: {name}": job for name, job in NO_SPARES.items()}


def hosts_document(job: Hosts, horizon: float) -> dict[str, Any]:
    elastic = {
        "replicas": job.replicas,
        "min_replicas": job.need / job.replicas,
        "batch": "keep_micro" if job.micro else "keep_global",
        "idle_hosts": "regroup" if job.regroup else "wait",
    }
    mended: Any = f"{job.repair!r} s"
    if job.exponential:
        mended = {"exponential": {"mean": mended}}
    dies = {"kind": "node_down", "scope": "node", "rate_per_unit_day": job.rate * DAY}
    return document(
        step_time=f"{job.step!r} s",
        cluster={"gpus": 8 * job.each * job.replicas, "gpus_per_node": 8},
        faults={
            "clock": "wall" if job.wall else "exposure",
            "restore_exposed": job.exposed,
            "processes": [dies],
        },
        detection=f"{job.detect!r} s",
        recovery={
            "policy": "elastic_dp" if job.replicas > 1 else "restart",
            "restart_cost": f"{job.restore!r} s",
            "spares": {"warm": job.spares},
            "repair": {"reboot": "0 s", "p_reboot_fixes": 0.0, "replace": mended},
            "crash_loop": {"max_no_progress": 100_000},
            **({"elastic": elastic} if job.replicas > 1 else {}),
        },
        checkpoint={"storage": {"every": f"{job.every} steps", "stall": f"{job.stall!r} s", "load": "0 s"}},
        run={"horizon": f"{horizon!r} s"},
    )


@pytest.mark.parametrize("name", [name for name, job in ALL.items() if not job.exponential])
def test_hosts_under_the_same_faults(name: str) -> None:
    job, horizon = ALL[name], 60 * DAY
    chance, trace, now = Random(7), [], 0.0
    hosts = job.replicas * job.each
    while now < horizon:
        now += chance.expovariate(job.rate * hosts)
        trace.append((now, chance.randrange(hosts)))
    doc = hosts_document(job, horizon)
    del doc["faults"]["processes"]
    doc["faults"]["events"] = [
        {"at": f"{time!r} s", "kind": "node_down", "target": f"node/{host}"} for time, host in trace
    ]
    out = replicate(plan_of(doc), 0)
    expected = Life(job, horizon, Random(0), trace=list(trace)).run()
    assert out.interruptions > 5
    assert out.ettr == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_hosts_within_three_standard_errors(name: str) -> None:
    job, horizon, runs = ALL[name], 60 * DAY, 10
    plan = plan_of(hosts_document(job, horizon))
    found = [replicate(plan, number).ettr for number in range(runs)]
    expected, error = hosts_alone(job, horizon, 2 * runs)
    own = error * math.sqrt(2)
    assert own < 0.02
    assert abs(sum(found) / runs - expected) < 3 * math.hypot(own, error)
