"""GEMMs of four bit: tables time other libraries' kernels than training runs, which are cuBLAS's."""

from __future__ import annotations

import statistics
from dataclasses import replace

import pytest

from stepsim.calibration.fit.curve_fit import as_timed, predicted_seconds
from stepsim.calibration.fit.kernels import all_measurements
from stepsim.calibration.fit.library import FOUR_BIT, library_gain, with_library
from stepsim.calibration.measure.plan import PLANS
from stepsim.calibration.readers.measurements import Measurement, is_gemm
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.profile import GpuProfile, Rate
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Gemm

TIMED_ELSEWHERE = [plan.gpu for plan in PLANS if plan.library]
B200 = "B200-SXM-180GB"


def rates(profile: GpuProfile) -> dict[str, Rate]:
    return {rate.dtype: rate for rate in profile.gemm.rates}


def published() -> list[Measurement]:
    return [m for m in all_measurements([]) if m.gpu == B200 and is_gemm(m, FOUR_BIT)]


def before_the_limit(profile: GpuProfile) -> GpuProfile:
    return replace(profile, clock_fraction=1.0, power_limited=0.0)


@pytest.mark.parametrize("name", TIMED_ELSEWHERE)
def test_four_bits_go_with_eight_bits_and_the_table_keeps_its_kernel(name: str) -> None:
    gpu, own = get_gpu(name), rates(load_profile(name))
    four, eight = own[FOUR_BIT], own["fp8"]
    gain = library_gain(load_profile(B200), published(), get_gpu(B200))
    by_eight = gain * eight.fraction * gpu.peak_flops["fp8"] / gpu.peak_flops["fp4"]
    assert four.fraction == pytest.approx(by_eight, rel=2e-3)
    assert four.shape == eight.shape
    assert four.timed is not None
    assert four.timed.shape != four.shape


@pytest.mark.parametrize("gain", [1.6, 1.9])
def test_the_gain_that_made_the_points_is_found(gain: float) -> None:
    gpu, profile = get_gpu(B200), load_profile(B200)
    made = with_library(profile, gain, gpu, "made")
    points = [
        replace(m, seconds=kernel_seconds(m.kernels[-1], gpu, before_the_limit(made))) for m in published()
    ]
    assert library_gain(profile, points, gpu) == pytest.approx(gain, rel=1e-3)


def test_points_of_cublas_are_met_before_the_power_limit() -> None:
    gpu, profile = get_gpu(B200), before_the_limit(load_profile(B200))
    off = [abs(kernel_seconds(m.kernels[-1], gpu, profile) / m.seconds - 1) for m in published()]
    assert len(off) == 12
    assert statistics.median(off) < 0.055
    assert max(off) < 0.09


def test_a_table_is_told_by_the_kernel_that_it_timed() -> None:
    gpu, profile = get_gpu(B200), load_profile(B200)
    product = Gemm(m=8192, n=8192, k=8192, dtype="nvfp4")
    item = Measurement(id="made", gpu=B200, source="made", kernels=(product,), seconds=1.0, short_run=True)
    timed = as_timed(product, profile)
    assert predicted_seconds(item, gpu, profile) == predicted_seconds(item, gpu, timed)
    slower, quicker = (kernel_seconds(product, gpu, before_the_limit(one)) for one in (timed, profile))
    assert slower > 1.2 * quicker
    bits16 = Gemm(m=8192, n=8192, k=8192)
    assert rates(as_timed(bits16, profile)) == rates(profile)
