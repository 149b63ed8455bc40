"""Weeks have the step times of ``stepsim run``: stage by stage, fault by fault, and never a faster step."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import scenario
from struck_steps import LINKED, TWIN

from stepsim.sim.reliability.ask import with_faults
from stepsim.sim.reliability.campaign.plan import CampaignPlan, Effect
from stepsim.sim.reliability.campaign.replicate import replicate
from stepsim.sim.reliability.planning.blocks import blocks_of
from stepsim.sim.reliability.planning.build_plan import build_plan
from stepsim.sim.reliability.planning.step_time import SimulatedStep
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains, Faults, parse_fault
from stepsim.sim.scenario.faults.recovery import Run
from stepsim.sim.scenario.load import load_campaign, load_scenario
from stepsim.sim.simulate import simulate

if TYPE_CHECKING:
    from stepsim.sim.scenario.models import Scenario

pytestmark = pytest.mark.xdist_group("weeks as steps")  # healthy steps are built once

LARGE = "llama3.1-405b-16k"
DEEP = scenario(**{**TWIN, "pp": 8, "vpp": 1, "num_layers": 8, "dp": 2, "schedule": "1f1b"})
PAIRS = [
    ("gpu_throttle node/1 slow_factor=1.2", "gpu_throttle gpu/9 slow_factor=1.2"),
    ("gpu_throttle gpu/3 slow_factor=1.3", "gpu_throttle rank/3 slow_factor=1.1"),
    ("link_degraded nic/1@node/0 bandwidth_factor=0.5", "link_degraded rail/1 bandwidth_factor=0.5"),
    ("nic_down nic/0@node/0 bandwidth_factor=0.5", "link_degraded nic/0@node/0 bandwidth_factor=0.6"),
    ("gpu_throttle gpu/2 slow_factor=1.5", "link_degraded nic/2@node/0 bandwidth_factor=0.3"),
    ("gpu_throttle gpu/5 slow_factor=1.2", "gpu_throttle gpu/5 slow_factor=1.2"),
]


@functools.cache
def model_of(name: str) -> SimulatedStep:
    run = {"deep": lambda: DEEP, "linked": lambda: scenario(**LINKED), "large": lambda: load_scenario(LARGE)}
    found = run[name]()
    return SimulatedStep(found, machine_of(found.cluster, found.parallelism, Domains()))


def effect(line: str) -> Effect:
    event = parse_fault(line)
    assert event.kind
    return Effect(event.kind, event.where, event.slow_factor, event.bandwidth_factor)


def weeks(step: SimulatedStep, *lines: str) -> float:
    """The slowdown that weeks have, of lines that differ."""
    return step(frozenset(effect(line) for line in lines)) / step.healthy_s


def in_a_step(run: Scenario, *lines: str) -> float:
    found = simulate(run, faults=lines).faults
    assert found
    assert found.slowdown
    return found.slowdown


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("name", ["deep", "linked"])
def test_two_faults_are_as_in_a_step(name: str, pair: tuple[str, str]) -> None:
    step = model_of(name)
    one, other = (effect(line) for line in pair)
    both = frozenset([one, other]) if one != other else frozenset([replace(one, times=2)])
    expected = in_a_step(step.scenario, *pair)
    assert step(both) / step.healthy_s == pytest.approx(max(1.0, expected), rel=1e-9)


def test_two_faults_of_a_part_are_worse_than_either() -> None:
    step = model_of("deep")
    for one, other in PAIRS[:2]:
        assert weeks(step, one, other) > 1.005 * max(weeks(step, one), weeks(step, other))


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["gpu_throttle rank/{} slow_factor=1.3", "link_degraded nic/{} bandwidth_factor=0.02"]
)
def test_every_stage_is_as_in_a_step(kind: str) -> None:
    """A lone fault is replayed in the stage where it is."""
    step, size = model_of("deep"), DEEP.world_size // DEEP.parallelism.pp
    found = []
    for stage in range(DEEP.parallelism.pp):
        line = kind.format(stage * size)
        found.append(weeks(step, line))
        assert found[-1] == pytest.approx(max(1.0, in_a_step(DEEP, line)), rel=1e-9)
    assert len({round(one, 6) for one in found}) > 3


@pytest.mark.slow
def test_a_weak_leaf_of_the_second_stage_costs_what_a_step_says() -> None:
    """In the first stage the same weakness makes a step faster; it lies in the second."""
    step, line = model_of("large"), "leaf_switch_down leaf/4 bandwidth_factor=0.875"
    found = weeks(step, line)
    assert found > 1.0002
    assert found == pytest.approx(in_a_step(step.scenario, line), rel=1e-9)


@pytest.mark.slow
def test_a_fault_that_makes_a_step_faster_gains_weeks_nothing() -> None:
    line = "nic_down nic/3@node/7 bandwidth_factor=0.9"
    assert in_a_step(model_of("large").scenario, line) < 1.0
    assert weeks(model_of("large"), line) == 1.0


def test_weeks_on_a_large_job_lose_with_every_fault() -> None:
    for line in (
        "leaf_switch_down leaf/4 bandwidth_factor=0.875",
        "nic_down nic/3@node/7 bandwidth_factor=0.9",
    ):
        blocks = blocks_of(load_campaign(LARGE, ["faults.presets=[]", "run.horizon=4 d"]))
        blocks = with_faults(blocks, [f"{line} at=1h duration=80h"])
        out = replicate(build_plan(blocks, model_of("large")), 0)
        assert out.seconds["slow"] >= 0.0
        assert out.seconds["useful"] <= out.wall_s


@st.composite
def lines(draw: st.DrawFn) -> str:
    """A fault that slows modelled steps, for a while."""
    host, share = draw(st.integers(0, 1)), draw(st.sampled_from([0.5, 0.9, 0.95, 0.99]))
    what = draw(
        st.sampled_from(
            [
                f"gpu_throttle gpu/{draw(st.integers(0, 15))} slow_factor={1 + (1 - share) / 2:.3f}",
                f"gpu_throttle node/{host} slow_factor=1.1",
                f"link_degraded nic/{draw(st.integers(0, 7))}@node/{host} bandwidth_factor={share}",
                f"link_degraded rail/{draw(st.integers(0, 7))} bandwidth_factor={share}",
                f"nic_down nic/{draw(st.integers(0, 7))}@node/{host} bandwidth_factor={share}",
            ]
        )
    )
    return f"{what} at={draw(st.integers(0, 20))}min duration={draw(st.integers(1, 30))}min"


@pytest.mark.slow
@examples(8)
@given(st.sampled_from(["deep", "linked"]), st.lists(lines(), min_size=1, max_size=3))
def test_the_ledger_of_modelled_steps_closes_and_nothing_is_negative(name: str, struck: list[str]) -> None:
    out = replicate(modelled(name, struck), 0)
    assert math.isclose(sum(out.seconds.values()), out.wall_s, rel_tol=1e-9)
    assert all(seconds >= -1e-6 for seconds in out.seconds.values()), out.seconds
    assert out.seconds["useful"] <= out.wall_s * (1 + 1e-9)


def modelled(name: str, struck: list[str]) -> CampaignPlan:
    """An hour."""
    none = {"faults": Faults(), "run": Run(horizon=3600.0)}
    blocks = with_faults(blocks_of(model_of(name).scenario.model_copy(update=none)), struck)
    return build_plan(blocks, model_of(name))
