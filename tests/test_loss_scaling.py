"""Dynamic loss scaling in FP16: how many steps are skipped, what one costs, who may ask for it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_scenarios import every_op, scenario
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.lowering.lower import lower
from stepsim.sim.program.program import Compute
from stepsim.sim.result.loss_scaling import LossScaling, first_skipped, skipped_share
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.loss_scale import LossScale
from stepsim.sim.simulate import build_cluster, simulate


def scaler_by_steps(scale: LossScale, limit: float, steps: int) -> int:
    """Skipped of ``steps`` steps: a scaler moved step by step, gradients overflowing above ``limit``."""
    now, good, patience, skipped = limit, 0, scale.patience, 0
    for _ in range(steps):
        if now > limit * (1 + 1e-9):
            skipped, good, patience = skipped + 1, 0, patience - 1
            if patience <= 0:
                now *= scale.backoff
            continue
        good += 1
        if good == scale.interval:
            now, good, patience = now * scale.growth, 0, scale.patience
    return skipped


@pytest.mark.parametrize(("kind", "expected"), [("megatron", 2 / 1002), ("torch", 1 / 2001)])
def test_the_frameworks_own_windows(kind: Any, expected: float) -> None:
    assert skipped_share(LossScale(kind=kind)) == pytest.approx(expected)


@given(
    interval=st.integers(1, 50),
    hysteresis=st.integers(1, 4),
    growth=st.sampled_from([2.0, 4.0, 8.0]),
    backoff=st.sampled_from([0.5, 0.25]),
)
def test_the_share_is_that_of_a_scaler(interval: int, hysteresis: int, growth: float, backoff: float) -> None:
    scale = LossScale(growth_interval=interval, hysteresis=hysteresis, growth=growth, backoff=backoff)
    steps = 4000
    assert skipped_share(scale) == pytest.approx(scaler_by_steps(scale, 2.0**12, steps) / steps, abs=0.02)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"sustained": 2.0**16}, 17),  # 16 halvings from 2^32, and one overflow more for the hysteresis
        ({"kind": "torch", "sustained": 2.0**12}, 4),
        ({"kind": "torch", "sustained": 2.0**20}, 0),
        ({}, None),
    ],
)
def test_steps_skipped_at_first(fields: dict[str, Any], expected: int | None) -> None:
    assert first_skipped(LossScale(**fields)) == expected


@pytest.mark.parametrize("layout", [{}, {"dp": 4, "zero": 1}, {"pp": 2, "tp": 2, "schedule": "1f1b"}])
def test_a_skipped_step_is_the_step_without_its_update(layout: dict[str, Any]) -> None:
    """Forward, backward, reduction, unscaling; no norm, clipping, Adam, nor parameters gathered."""
    run = scenario(precision="fp16", **layout)

    def names(*, skips: bool) -> dict[str, float]:
        ops = every_op(lower(run, build_cluster(run), skips=skips).programs.classes[0])
        found: dict[str, float] = {}
        for op, count in ops:
            seconds = op.work.seconds if isinstance(op.work, Compute) else 0.0
            found[op.name] = found.get(op.name, 0.0) + count * seconds
        return found

    whole, skipped = names(skips=False), names(skips=True)
    gone = whole.keys() - skipped.keys()
    assert {"gradient norm", "clip gradients", "Adam", "copy parameters"} <= gone
    assert all("layer" not in name and "wgrad" not in name for name in gone)
    assert skipped.keys() - whole.keys() == {"overflow check all_reduce"}
    assert all(skipped[name] == whole[name] for name in skipped.keys() & whole.keys())


@pytest.mark.parametrize("layout", [{}, {"dp": 4, "zero": 1}, {"pp": 2, "schedule": "interleaved", "vpp": 2}])
def test_what_a_run_says(layout: dict[str, Any]) -> None:
    plain = simulate(scenario(precision="fp16", **layout))
    result = simulate(scenario(precision="fp16", loss_scale={"kind": "megatron"}, **layout))
    assert plain.loss_scaling is None
    assert result.step_time_s == plain.step_time_s
    found = result.loss_scaling
    assert found is not None
    assert 0 < found.skipped_step_s < result.step_time_s
    said = result.to_dict()["loss_scaling"]
    assert said["effective_step_s"] == pytest.approx(
        (1000 * result.step_time_s + 2 * found.skipped_step_s) / 1000
    )
    assert said["goodput"] == pytest.approx(result.step_time_s / said["effective_step_s"])
    assert said["first_skipped_steps"] is None


def test_halves_skipped_take_half_the_time() -> None:
    found = LossScaling(step_s=2.0, skipped_step_s=2.0, skipped_share=0.5)
    assert (found.effective_step_s, found.goodput) == (4.0, 0.5)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"precision": "bf16", "loss_scale": {"kind": "torch"}},
            "loss_scale.*bf16",
        ),
        ({"precision": "fp16", "loss_scale": {"kind": "apex"}}, r"loss_scale"),
        ({"precision": "fp16", "loss_scale": {"backoff": 2.0}}, r"loss_scale\.backoff"),
        (
            {"precision": "fp16", "loss_scale": {}, "pp": 2, "schedule": "pipedream"},
            "pipedream .*microbatch",
        ),
    ],
)
def test_what_is_not_scaled_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario(**fields)


def test_the_command_says_it() -> None:
    arguments = ["run", "gpt-22b-a100", "--set", "training.loss_scale=torch"]
    told = CliRunner().invoke(app, arguments)
    assert "0.05 % of steps overflow" in told.output
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).output)
    assert document["loss_scaling"]["skipped_share"] == pytest.approx(1 / 2001)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"backoff": 0.99999999999},
            r"0\.99999999999 .*2\.0 .*6\.93e\+10",
        ),
        ({"growth": 1e7, "backoff": 0.99}, "lower backoff"),
        ({"initial": 1e300, "sustained": 1.0}, r"1e\+300"),
        ({"sustained": 1e-300}, "1e-300"),
    ],
)
def test_scales_that_no_run_has_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        scenario(precision="fp16", loss_scale={"kind": "megatron", **fields})


def test_the_widest_scales_come_down() -> None:
    assert first_skipped(LossScale(kind="torch", initial=1.5 * 2.0**127, sustained=2.0**-126)) == 254
