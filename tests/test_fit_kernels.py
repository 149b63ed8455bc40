"""The fit of kernel curves: it recovers what made the data, writes what it read, and matches measurements."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from stepsim.calibration.fit.curve_fit import predicted_seconds
from stepsim.calibration.fit.gemm import fit_fraction, fit_shape
from stepsim.calibration.fit.kernels import all_measurements, keep_step_time_fit
from stepsim.calibration.fit.profile_file import write_profile
from stepsim.calibration.fit.residual_table import residual_rows
from stepsim.calibration.measure.plan import PLANS
from stepsim.calibration.readers.measurements import Measurement, read_measurements
from stepsim.hardware.calibrated.overlay import laid_over, load_profile, profile_names, shipped_profile
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.profile import GpuProfile, Tile
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Attention, Gemm

# Median and 90th percentile of |predicted / measured - 1|, a little above what is reached. No GEMM among
# them shaped a curve: those come from tables of other machines, and of a sweep only its clock is fitted.
# B200's figures are those of two power states, between which its boost lies: nearer to one, as a median would
# have it, is far from the other. H800's are two releases of one library, at 64 to 4,096 rows; the curve is
# that of H100's table, which begins at 1,024 rows and leaves open what narrower tiles reach.
BOUNDS = {
    ("A100-PCIe-80GB", "gemm bf16"): (0.02, 0.094),
    ("A100-PCIe-80GB", "attention fa2"): (0.03, 0.07),
    ("A100-SXM4-80GB", "attention fa2"): (0.015, 0.03),
    ("B200-SXM-180GB", "gemm bf16"): (0.065, 0.20),
    ("B200-SXM-180GB", "grouped gemm bf16"): (0.105, 0.20),
    ("B200-SXM-180GB", "attention cudnn"): (0.04, 0.15),  # two boards and releases of cuDNN
    ("H100-SXM5-80GB", "attention fa2"): (0.02, 0.04),
    ("H100-SXM5-80GB", "attention fa3"): (0.03, 0.12),
    ("H100-SXM5-80GB", "attention cudnn"): (0.025, 0.055),
    ("H800-SXM5-80GB", "gemm fp8_block"): (0.105, 0.255),  # of repeats themselves: 0.23
    ("H800-SXM5-80GB", "grouped gemm fp8_block"): (0.08, 0.13),
}


def test_shipped_profiles_match_the_measurements(shared: Path) -> None:
    measurements = all_measurements([shared / "data" / "kernels.yaml"])
    profiles = [load_profile(name) for name in gpu_names()]
    rows = {(row.gpu, row.operation): row for row in residual_rows(profiles, measurements)}
    for key, (median, p90) in BOUNDS.items():
        assert rows[key].median <= median, key
        assert rows[key].p90 <= p90, key


@pytest.mark.parametrize("name", ["A100-PCIe-80GB", "B200-SXM-180GB"])
def test_gradients_in_fp32_are_predicted_as_other_products_are(shared: Path, name: str) -> None:
    """Of SimuMax's sweeps: GEMMs that are added to a main gradient in FP32, against all others."""
    gpu, shipped = get_gpu(name), load_profile(name)
    profile = replace(shipped, clock_fraction=shipped.measured_clock_fraction)
    off: dict[bool, list[float]] = {True: [], False: []}
    for item in all_measurements([shared / "data" / "kernels.yaml"]):
        kernel = item.kernels[-1]
        if item.gpu == name and isinstance(kernel, Gemm) and not (item.grouped or item.best_of_search):
            ratio = predicted_seconds(item, gpu, profile) / item.seconds
            off[kernel.out_bytes == 4].append(math.log(ratio))
    assert abs(statistics.median(off[True]) - statistics.median(off[False])) < 0.02


def test_attention_of_a_limited_sweep_runs_at_the_clock_that_its_own_watts_leave() -> None:
    """B200's sweep ran its GEMMs at 0.72 of the boost clock; attention's backward, which draws less, ran
    faster, and a point at the boost clock faster still. Where no limit showed, all ran at one clock."""
    seen: dict[str, list[float]] = {}
    runs: tuple[tuple[str, Literal["cudnn", "fa2"]], ...] = (
        ("B200-SXM-180GB", "cudnn"),
        ("A100-PCIe-80GB", "fa2"),
    )
    for name, implementation in runs:
        gpu, shipped = get_gpu(name), load_profile(name)
        profile = replace(shipped, clock_fraction=shipped.measured_clock_fraction)
        kernel = Attention(
            batch=1, seq_q=131072, seq_kv=131072, heads=8, kv_heads=1, head_dim=128, causal=True,
            implementation=implementation, direction="backward",
        )  # fmt: skip
        alone_s = kernel_seconds(kernel, gpu, replace(profile, clock_fraction=1.0, power_limited=0.0))
        point = Measurement(
            id="made", gpu=name, source="made", kernels=(kernel,), seconds=alone_s, operation="attention"
        )
        points = (point, replace(point, at_boost=True))
        seen[name] = [alone_s / predicted_seconds(item, gpu, profile) for item in points]
        assert seen[name][1] == pytest.approx(1.0)
    assert load_profile("B200-SXM-180GB").measured_clock_fraction + 0.05 < seen["B200-SXM-180GB"][0] < 0.95
    assert seen["A100-PCIe-80GB"][0] == pytest.approx(
        load_profile("A100-PCIe-80GB").measured_clock_fraction, rel=0.02
    )


def test_twins_have_one_curve_of_8_bit_and_one_suddenness_of_the_limit() -> None:
    twins = [(load_profile(plan.gpu), load_profile(plan.twin)) for plan in PLANS if plan.twin]
    assert twins
    for profile, twin in twins:
        gpu, other = get_gpu(profile.gpu), get_gpu(twin.gpu)
        assert (gpu.sms, gpu.peak_flops, gpu.tdp_w) == (other.sms, other.peak_flops, other.tdp_w)
        own, given = ({rate.dtype: rate for rate in one.gemm.rates} for one in (profile, twin))
        assert own["fp8"].fraction == given["fp8"].fraction
        assert own["fp8"].shape == given["fp8"].shape
        harnesses = [rates["bf16"].harness for rates in (own, given)]
        assert len({harness.burst_order for harness in harnesses if harness}) == 1


def _with_tiles_of_a_sweep() -> GpuProfile:
    """A100-PCIe with tiles as a sweep finds them; its table's 64 x 64 is nearly as good as 128 x 128."""
    shipped = load_profile("A100-PCIe-80GB")
    sizes = {
        1.0: ((256, 128), (128, 256)),
        0.85: ((128, 128),),
        0.70: ((256, 64), (64, 256)),
        0.55: ((128, 64), (64, 128)),
        0.4: ((64, 64),),
    }
    tiles = tuple(Tile(m=m, n=n, efficiency=share) for share, both in sizes.items() for m, n in both)
    return replace(shipped, gemm=replace(shipped.gemm, tiles=tiles))


def _sweep(truth_fraction: float) -> tuple[list[Measurement], float]:
    """A noiseless sweep that a known profile would measure."""
    shipped = _with_tiles_of_a_sweep()
    gpu, profile = get_gpu("A100-PCIe-80GB"), replace(shipped, clock_fraction=1.0, power_limited=0.0)
    bf16 = next(rate for rate in profile.gemm.rates if rate.dtype == "bf16")
    truth = replace(profile, gemm=replace(profile.gemm, rates=(replace(bf16, fraction=truth_fraction),)))
    shapes = [(m, n, k) for m in (512, 4096) for n in (640, 2048, 8192) for k in (512, 2048, 8192)]
    gemms = [Gemm(m=m, n=n, k=k, out_bytes=out) for m, n, k in shapes for out in (2, 4)]
    points = [
        Measurement(
            id=str(gemm),
            gpu=gpu.name,
            source="made",
            kernels=(gemm,),
            seconds=kernel_seconds(gemm, gpu, truth),
        )
        for gemm in gemms
    ]
    return points, truth_fraction


@pytest.mark.slow
def test_the_fit_recovers_the_constants_that_made_a_sweep() -> None:
    gpu, start = get_gpu("A100-PCIe-80GB"), replace(_with_tiles_of_a_sweep(), clock_fraction=1.0)
    points, truth = _sweep(0.66)
    assert fit_fraction(start, "bf16", points, gpu) == pytest.approx(truth, rel=1e-3)
    fitted, fraction = fit_shape(start, "bf16", points, gpu)
    assert fraction == pytest.approx(truth, rel=0.03)
    assert fitted.gemm.tile_overhead_s == pytest.approx(start.gemm.tile_overhead_s, rel=0.3)


@pytest.mark.parametrize("name", profile_names())
def test_writing_a_loaded_profile_changes_no_byte(name: str, tmp_path: Path, root: Path) -> None:
    write_profile(load_profile(name), tmp_path)
    written, shipped = tmp_path / f"{name}.yaml", root / "hardware" / "profiles" / f"{name}.yaml"
    assert written.read_text() == shipped.read_text()
    assert shipped_profile(written) == load_profile(name)


def test_a_shipped_file_is_a_profile_of_ones_own_too(root: Path) -> None:
    shipped, file = load_profile("B200-SXM-180GB"), root / "hardware" / "profiles" / "B200-SXM-180GB.yaml"
    own = laid_over(replace(shipped, clock_fraction=0.5, corun_slowdown=0.3, measured_boost=0.0), file)
    assert own == shipped


def test_step_time_constants_survive_a_new_kernel_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = load_profile("H100-SXM5-80GB")
    stepped = replace(fresh, clock_fraction=0.9, corun_slowdown=0.1, step_time_fit="fitted on step times")
    monkeypatch.setattr("stepsim.calibration.fit.kernels.load_profile", lambda _: stepped)
    default = replace(fresh, clock_fraction=1.0, corun_slowdown=0.0, step_time_fit="defaults")
    assert keep_step_time_fit(default) == stepped
    monkeypatch.setattr("stepsim.calibration.fit.kernels.load_profile", lambda _: default)
    assert keep_step_time_fit(default) == default


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "cases.yaml"
    other.write_text("kind: cases\n")
    with pytest.raises(ValueError, match="not a kernel-point file"):
        read_measurements([other])
