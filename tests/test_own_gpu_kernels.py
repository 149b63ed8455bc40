"""A described GPU that differs from a measured one in no figure that decides a kernel is as sure as it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepsim.hardware.calibrated.overlay import calibrated_profile, profile_for
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.own_gpu import OwnGpu, gpu_from
from stepsim.sim.evidence.measured_steps import regime_of
from stepsim.sim.result.result import Result
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

_SCENARIO = "llama3-8b-h100"
_SHORT = {"model.num_layers": 2, "training.global_batch": 128}


def run(**changes: Any) -> Result:
    fields = {f"cluster.gpu.{name}": value for name, value in changes.items()}
    return simulate(load_scenario(_SCENARIO, _SHORT | fields))


def relative_interval(result: Result) -> tuple[float, float]:
    interval = result.interval
    assert interval is not None
    return interval.low_s / result.step_time_s, interval.high_s / result.step_time_s


def has_unmeasured_kernels(result: Result) -> bool:
    assert result.interval is not None
    return any("never measured" in part.name for part in result.interval.parts)


@pytest.mark.parametrize(
    "change", [{"memory": "80 Gb"}, {"memory": "94 GB", "name": "mine"}, {"pcie": "31.5 GB/s"}]
)
def test_what_decides_no_kernel_changes_no_interval(change: dict[str, str]) -> None:
    shipped, changed = run(), run(**change)
    assert changed.step_time_s == shipped.step_time_s
    assert relative_interval(changed) == relative_interval(shipped)


def test_a_lower_power_limit_moves_the_clock_of_measured_kernels() -> None:
    """As the limit of the cluster does."""
    shipped, limited = run(), run(power="500 W")
    capped = simulate(load_scenario(_SCENARIO, _SHORT | {"cluster.power.limit": "500 W"}))
    assert limited.step_time_s == capped.step_time_s
    assert limited.step_time_s > 1.05 * shipped.step_time_s
    assert not has_unmeasured_kernels(limited)


@pytest.mark.parametrize(
    "change", [{"memory_bandwidth": "4 TB/s"}, {"bf16_flops": "900 TFLOP/s"}, {"sms": 120}]
)
def test_what_decides_kernels_leaves_them_unmeasured(change: dict[str, Any]) -> None:
    low, high = relative_interval(run())
    changed = run(**change)
    assert has_unmeasured_kernels(changed)
    assert relative_interval(changed)[0] < low
    assert relative_interval(changed)[1] > high


def test_profiles_of_the_gpu_that_is_changed_are_taken() -> None:
    plain = calibrated_profile("H100-SXM5-80GB", ["h100-sxm"])
    gpu = gpu_from(OwnGpu(extends="H100-SXM5-80GB", memory=94e9))
    assert calibrated_profile(gpu, ["h100-sxm"]) == replace(plain, gpu=gpu.name)


def test_the_profile_is_that_of_the_measured_gpu_under_its_own_name() -> None:
    gpu = gpu_from(OwnGpu(extends="H100-SXM5-80GB", memory=94e9))
    profile = profile_for(gpu)
    assert profile.gpu == gpu.name
    assert profile.gemm == profile_for(get_gpu("H100-SXM5-80GB")).gemm


def test_steps_of_the_gpu_that_is_changed_are_steps_of_it() -> None:
    changed = load_scenario(_SCENARIO, {"cluster.gpu.memory": "94 GB"})
    assert regime_of(changed) == regime_of(load_scenario(_SCENARIO))
