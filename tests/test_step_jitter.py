"""Jitter of hosts: drawn once a step and host, seeded, and what the slowest of them costs."""

from __future__ import annotations

import numpy as np
import pytest
from faults_campaigns import document, plan_of
from small_scenarios import scenario
from struck_steps import REPLICAS, TWIN, assert_same, cost, seeded

from stepsim.sim.degradation.of_faults import jitter_factor
from stepsim.sim.simulate import simulate

HOSTS = 8


def test_the_step_takes_as_long_as_with_the_slowest_host_alone() -> None:
    run = scenario(**REPLICAS)
    factors = [jitter_factor(7, host, 0.05) for host in range(HOSTS)]
    slowest = int(np.argmax(factors))
    found = cost(run, "host_jitter job cv=0.05")
    alone = cost(run, f"gpu_throttle node/{slowest} slow_factor={factors[slowest]!r}")
    assert found.step_time_s == pytest.approx(alone.step_time_s, rel=1e-9)
    assert found.step_time_s > found.healthy_step_time_s
    assert found.classes_after == len(set(factors))  # undisturbed hosts are alike
    struck = next(relation for relation in found.relations if relation.name == "struck")
    assert struck.ranks == 8 * sum(factor > 1 for factor in factors)


def test_no_deviation_is_no_fault() -> None:
    assert cost(scenario(**REPLICAS), "host_jitter job cv=0").slowdown == 1.0


def test_jitter_is_seeded_and_each_host_has_its_own() -> None:
    line = "host_jitter job cv=0.1"
    once, again, other = (cost(seeded(seed, **REPLICAS), line).step_time_s for seed in (1, 1, 2))
    assert once == again != other
    run = scenario(**TWIN)
    of_one = cost(run, "host_jitter node/2 cv=0.1")
    factor = jitter_factor(7, 2, 0.1)
    if factor > 1:
        same = cost(run, f"gpu_throttle node/2 slow_factor={factor!r}")
        assert of_one.step_time_s == same.step_time_s


def test_folded_jitter_is_unfolded_jitter() -> None:
    run, line = scenario(**TWIN), "host_jitter job cv=0.1"
    found = cost(run, line)
    assert found.classes_after < run.world_size
    assert_same(found, cost(run, line, fold=False))


@pytest.mark.parametrize(("hosts", "expected"), [(64, 2.344), (512, 3.044)])
def test_the_slowest_of_many_hosts(hosts: int, expected: float) -> None:
    """E[max] of so many normal variates (the integral of x over Phi(x)^n), within three standard errors."""
    seeds = range(15_000 // hosts)
    most = [max(jitter_factor(seed, host, 0.01) for host in range(hosts)) for seed in seeds]
    z = (np.array(most) - 1) / 0.01
    assert abs(z.mean() - expected) < 3 * z.std(ddof=1) / np.sqrt(len(z)) + 0.005


def test_too_many_hosts_are_refused_with_advice() -> None:
    distinct = {jitter_factor(7, host, 0.02) for host in range(64)}
    with pytest.raises(ValueError, match=rf"{len(distinct)} classes of 512 ranks .*--max-classes"):
        simulate(scenario(**{**REPLICAS, "dp": 512}), faults=["host_jitter job"], max_classes=16)


def test_campaigns_know_what_lasts() -> None:
    with pytest.raises(ValueError, match="host_jitter:"):
        plan_of(document(faults={"events": ["host_jitter job cv=0.02"]}))
