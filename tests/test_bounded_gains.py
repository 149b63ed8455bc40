"""What mending a part is worth: passes against replays without it, and parts that nobody waits for."""

from __future__ import annotations

import numpy as np
import pytest
from small_scenarios import changed, scenario
from struck_steps import TWIN

from stepsim.sim.bounded import bounds as bounds_module
from stepsim.sim.bounded import conditions
from stepsim.sim.result.step_faults import StepFaults
from stepsim.sim.simulate import simulate

RUN = scenario(**{**TWIN, "dp": 8})


def cost(lines: list[str], *, each: bool) -> StepFaults:
    found = simulate(RUN, faults=lines, each_fault=each).faults
    assert found is not None
    return found


@pytest.fixture(autouse=True)
def _few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "MOST_CLASSES", 8)
    monkeypatch.setattr(bounds_module, "MOST_EVENTS", 0)


@pytest.mark.slow
def test_gains_of_a_pass_are_near_those_of_replays() -> None:
    ranks = np.random.default_rng(1).choice(RUN.world_size, 10, replace=False).tolist()
    lines = [f"gpu_throttle rank/{rank} slow_factor={1.1 + 0.05 * i}" for i, rank in enumerate(ranks)]
    passed, replayed = cost(lines, each=False), cost(lines, each=True)
    assert not passed.without_s
    assert len(replayed.without_s) == len(passed.gains_s) == len(lines)
    for quick, slow in zip(passed.gains_s, replayed.gains_s, strict=True):
        assert quick is not None
        assert slow is not None
        assert quick == pytest.approx(slow, abs=0.01 * passed.step_time_s)
    assert max(gain or 0.0 for gain in passed.gains_s) > 0.02 * passed.step_time_s


def test_the_slower_of_two_in_a_group_is_worth_mending_alone() -> None:
    """Both are ranks of one tensor-parallel group, which goes at the pace of the slowest."""
    lines = ["gpu_throttle rank/0 slow_factor=1.5", "gpu_throttle rank/1 slow_factor=1.2"]
    lines += [f"gpu_throttle rank/{rank} slow_factor=1.05" for rank in range(10, 60, 5)]
    found = cost(lines, each=False)
    worst, other = found.gains_s[:2]
    assert worst is not None
    assert worst > 0.05 * found.step_time_s
    assert other == 0.0
    assert sum(gain or 0.0 for gain in found.gains_s[2:]) < 0.01 * worst


def test_the_slowest_gpus_of_a_spread_have_gains() -> None:
    run = changed(RUN, cluster={"variation": {"gpu_speed": {"normal": {"cv": 0.1}}, "seed": 3}})
    found = simulate(run).variation
    assert found is not None
    slow = [one.slow for one in found.gains]
    assert slow == sorted(slow, reverse=True)
    assert max(one.gain_s or 0.0 for one in found.gains) > 0.0
