"""Ranks placed by the measured speed of their GPUs: which go where, and what that gains by a formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from slow_by_hand import LARGE, kernels_s, step_s
from small_scenarios import changed, scenario

from stepsim.sim.result.variation import StepVariation
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

TWO_STAGES: dict[str, Any] = {**LARGE, "tp": 4, "pp": 2, "dp": 1, "schedule": "1f1b", "microbatches": 16}
"""Both stages in one host of eight GPUs."""


def placed(run: Scenario, path: Path, *speeds: float) -> StepVariation:
    path.write_text("\n".join(map(str, speeds)))
    spread = {"gpu_speed": {"file": str(path)}, "by_speed": True}
    found = simulate(changed(run, cluster={"variation": spread})).variation
    assert found is not None
    return found


def test_slow_gpus_share_a_tensor_parallel_group(tmp_path: Path) -> None:
    """Two slow GPUs in the groups of both stages slow both; in one group only the first stage, as one
    slow rank of that stage does.
    """
    run = scenario(**TWO_STAGES)
    found = placed(run, tmp_path / "speeds", 1, 1, 0.5, 1, 1, 0.5, 1, 1)
    assert found.by_speed is not None
    assert found.by_speed.gpus == (2, 5, 0, 1, 3, 4, 6, 7)
    both = step_s(run, "gpu_throttle rank/2 slow_factor=2", "gpu_throttle rank/5 slow_factor=2")
    one = step_s(run, "gpu_throttle rank/0 slow_factor=2")
    assert found.draws[0].step_time_s == pytest.approx(both, rel=1e-9)
    assert found.by_speed.step.step_time_s == pytest.approx(one, rel=1e-9)
    assert both - one > 0.9 * kernels_s(run, 1) / 16


def test_slow_hosts_take_the_first_stage(tmp_path: Path) -> None:
    """1F1B: p - 1 forwards of a slow first stage are over before it is waited for, none of the last one's."""
    run = scenario(**LARGE, tp=8, pp=4, dp=1, schedule="1f1b", microbatches=16)
    found = placed(run, tmp_path / "speeds", *([1] * 24), *([0.5] * 8))
    assert found.by_speed is not None
    assert found.by_speed.gpus == (*range(24, 32), *range(24))
    first = step_s(run, "gpu_throttle node/0 slow_factor=2")
    assert found.by_speed.step.step_time_s == pytest.approx(first, rel=1e-9)
    assert found.by_speed.step.step_time_s < found.draws[0].step_time_s


def test_replicas_gain_nothing(tmp_path: Path) -> None:
    """All wait for the slowest, wherever it is."""
    found = placed(scenario(**LARGE, dp=8), tmp_path / "speeds", 1, 1, 0.8, 1, 1, 0.5, 1, 1)
    assert found.by_speed is not None
    assert found.by_speed.step.step_time_s == pytest.approx(found.draws[0].step_time_s, rel=1e-9)


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(1, 10**6))
def test_every_rank_has_a_gpu_and_hosts_stay_whole(seed: int) -> None:
    run = scenario(**{**TWO_STAGES, "dp": 4, "hidden_size": 256, "ffn_hidden_size": 1024, "seq_length": 128})
    spread = {"gpu_speed": {"normal": {"cv": 0.05}}, "seed": seed, "by_speed": True}
    found = simulate(changed(run, cluster={"variation": spread})).variation
    assert found is not None
    assert found.by_speed is not None
    gpus = found.by_speed.gpus
    assert sorted(gpus) == list(range(32))
    for first in range(0, 32, 8):
        assert len({gpu // 8 for gpu in gpus[first : first + 8]}) == 1
    explicit = changed(
        run,
        cluster={
            "variation": {**spread, "by_speed": False},
            "placement": {"kind": "explicit", "gpus": list(gpus)},
        },
    )
    assert simulate(explicit).step_time_s == pytest.approx(found.by_speed.step.step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    "cluster",
    [
        {"placement": {"kind": "scattered", "seed": 3}},
        {"other_gpus": [{"gpu": "H100-SXM5-80GB", "hosts": [0]}]},
    ],
)
def test_hosts_that_are_placed_or_differ_already(cluster: dict[str, Any]) -> None:
    spread = {"gpu_speed": {"normal": {"cv": 0.05}}, "by_speed": True}
    with refused_at("cluster.variation.by_speed"):
        changed(scenario(**LARGE, dp=16), cluster={"variation": spread, **cluster})
