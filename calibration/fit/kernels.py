"""Fits every GPU's kernel curves from measured kernels and rewrites the shipped profiles.

    python -m stepsim.calibration.fit.kernels ../shared/data/kernels.yaml [--check]

Knows the order of work: GEMM shapes where sweeps exist, rates from best measured shapes,
attention curves, then what is carried (plan.py). Same input, same bytes. ``--check`` prints the
residuals of the shipped profiles and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...hardware.calibrated.overlay import load_profile, profile_names
from ...hardware.gpus import get_gpu
from ...hardware.profile import AttentionCurve, GemmCurve, GpuProfile, MemoryCurve, Provenance, Tile
from ...kernels.gemm import math_fraction
from ...kernels.kernel import Attention
from ..measure.plan import PLANS, Donor, MeasurementPlan, MemorySweep
from ..readers.measurements import Measurement, is_gemm, read_measurements
from .attention import fit_attention, scaled
from .curve_fit import provenance
from .gemm import fit_fraction, fit_shape, fraction_of_best, mean_shape, with_fraction, with_wide_tiles
from .profile_file import write_profile
from .residual_table import print_residuals

PUBLISHED = Path(__file__).parent / "published.yaml"
PROFILES = Path(__file__).parents[2] / "hardware" / "profiles"

# Gap between kernels of a busy stream: 1-2 us (hardware.yaml latency_us, unverified).
_KERNEL_LATENCY_S = 1.5e-6
# 10 MB at 0.75 of peak where 100 MB reach 0.90 (size ramp of Calculon's system files): 0.5 us at 2 TB/s.
_RAMP_S = 0.5e-6
_FP32_FRACTION = 0.9  # SGEMM without tensor cores; unverified
_UNMEASURED_FP8 = 0.9  # of the 16-bit fraction: H100 0.709 / 0.803, B200 0.763 / 0.776 (best shapes)
_START = GemmCurve(
    rates=(),
    tiles=(Tile(m=256, n=128, efficiency=1.0),),
    tile_overhead_s=1.5e-6,
    store_exposed=0.4,
    wave_quantisation=0.8,
    provenance=Provenance(source="start"),
)


def fit_profiles(measurements: Sequence[Measurement]) -> tuple[GpuProfile, ...]:
    """The profile of every planned GPU, fitted on ``measurements`` or carried."""
    shapes: dict[str, GpuProfile] = {}
    for plan in PLANS:
        shapes[plan.gpu] = _gemm_profile(plan, shapes, measurements)
    return _with_attention(shapes, measurements)


def _gemm_profile(
    plan: MeasurementPlan, done: dict[str, GpuProfile], measurements: Sequence[Measurement]
) -> GpuProfile:
    profile = GpuProfile(
        gpu=plan.gpu,
        clock_fraction=1.0,
        corun_slowdown=0.0,
        step_time_fit="defaults",
        measured_clock_fraction=1.0,
        kernel_latency_s=_KERNEL_LATENCY_S,
        memory=_memory(plan.memory),
        gemm=_START,
        attention=(),
    )
    if plan.shape_from:
        donors = [done[name].gemm for name in plan.shape_from]
        record = replace(
            donors[0].provenance,
            carried=True,
            median_residual=None,
            p90_residual=None,
            points=0,
            note="shape of " + ("the mean of " if len(donors) > 1 else "") + " and ".join(plan.shape_from),
        )
        shape = with_wide_tiles(mean_shape(donors)) if plan.wide_tiles else mean_shape(donors)
        profile = replace(profile, gemm=replace(shape, provenance=record))
    rated = _with_sweep if plan.sweep_dtype else _with_rates
    return rated(profile, plan, measurements)


def _with_sweep(
    profile: GpuProfile, plan: MeasurementPlan, measurements: Sequence[Measurement]
) -> GpuProfile:
    """``profile`` with what this GPU's own sweep shows: shape and sustained clock, or the rate alone."""
    gpu, dtype = get_gpu(plan.gpu), plan.sweep_dtype
    assert dtype is not None
    sweep = [
        m
        for m in measurements
        if m.gpu == plan.gpu and is_gemm(m, dtype) and not (m.best_of_search or m.grouped)
    ]
    source = ", ".join(sorted({m.source for m in sweep}))
    if plan.shape_from:
        profile = _with_rates(profile, plan, measurements)
        fraction = fit_fraction(profile, dtype, sweep, gpu)
        fitted = with_fraction(profile, dtype, fraction, Provenance(source=source))
        return with_fraction(profile, dtype, fraction, provenance(source, sweep, gpu, fitted))
    profile, sustained = fit_shape(
        profile, dtype, sweep, gpu, two_states=plan.two_states, overlapped=plan.overlapped
    )
    profile = _with_rates(profile, plan, measurements)
    best = math_fraction(profile.gemm, dtype, gpu)
    clock = sustained / best
    profile = replace(profile, clock_fraction=clock, measured_clock_fraction=clock)
    record = provenance(source, sweep, gpu, profile, plan.sweep_note)
    return replace(profile, gemm=replace(profile.gemm, provenance=record))


def _best_of_search(measurements: Sequence[Measurement], gpu: str, dtype: str) -> Measurement:
    for measurement in measurements:
        if measurement.gpu == gpu and measurement.best_of_search and is_gemm(measurement, dtype):
            return measurement
    raise ValueError(f"the files hold no best measured {dtype} GEMM (upper_bound: true) of {gpu}")


def _memory(memory: MemorySweep) -> MemoryCurve:
    return MemoryCurve(
        stream_efficiency=memory.stream,
        pointwise_efficiency=memory.pointwise,
        ramp_s=_RAMP_S,
        provenance=Provenance(source=memory.source, carried=True, note=memory.note),
    )


def _with_rates(
    profile: GpuProfile, plan: MeasurementPlan, measurements: Sequence[Measurement]
) -> GpuProfile:
    """``profile`` with a rate for every dtype that the GPU has, the best measured shapes first."""
    for dtype, donor in plan.best:
        best = _best_of_search(measurements, donor, dtype)
        fraction = plan.power * fraction_of_best(best, get_gpu(donor))
        record = Provenance(
            source=f"{best.id} (best shape of a search)",
            points=1,
            carried=donor != plan.gpu,
            note=plan.power_note,
        )
        profile = with_fraction(profile, dtype, fraction, record)
    rates = {rate.dtype: rate for rate in profile.gemm.rates}
    if "fp8" in get_gpu(plan.gpu).peak_flops and "fp8" not in rates and plan.sweep_dtype != "fp8":
        record = Provenance(source="0.9 of the 16-bit fraction, as on H100", carried=True)
        profile = with_fraction(profile, "fp8", _UNMEASURED_FP8 * rates["bf16"].fraction, record)
    unverified = Provenance(source="unverified", carried=True)
    return with_fraction(profile, "fp32", _FP32_FRACTION, unverified)


def _with_attention(
    shapes: dict[str, GpuProfile], measurements: Sequence[Measurement]
) -> tuple[GpuProfile, ...]:
    fitted: dict[tuple[str, str], AttentionCurve] = {}
    for plan in PLANS:
        for implementation, donor in plan.attention:
            if donor is None:
                own = [m for m in measurements if m.gpu == plan.gpu and _runs(m, implementation)]
                source = ", ".join(sorted({m.source for m in own}))
                curve = fit_attention(shapes[plan.gpu], implementation, own, get_gpu(plan.gpu), source)
                fitted[plan.gpu, implementation] = curve

    def curve_of(gpu: str, implementation: str, donor: Donor | None) -> AttentionCurve:
        if donor is None:
            return fitted[gpu, implementation]
        source = f"{donor.implementation} on {donor.gpu} x {donor.factor:.3f}"
        original = fitted[donor.gpu, donor.implementation]
        return scaled(
            original, implementation=implementation, factor=donor.factor, source=source, note=donor.note
        )

    return tuple(
        replace(shapes[plan.gpu], attention=tuple(curve_of(plan.gpu, *entry) for entry in plan.attention))
        for plan in PLANS
    )


def _runs(measurement: Measurement, implementation: str) -> bool:
    kernel = measurement.kernels[0]
    return isinstance(kernel, Attention) and kernel.implementation == implementation


def keep_step_time_fit(profile: GpuProfile) -> GpuProfile:
    """``profile`` with the step-time constants of its shipped file, where those were fitted."""
    if profile.gpu not in profile_names():
        return profile
    shipped = load_profile(profile.gpu)
    if not shipped.step_time_fit.startswith("fitted"):
        return profile
    return replace(
        profile,
        clock_fraction=shipped.clock_fraction,
        corun_slowdown=shipped.corun_slowdown,
        step_time_fit=shipped.step_time_fit,
        step_time_residual=shipped.step_time_residual,
    )


def main() -> None:
    """Entry point of ``python -m stepsim.calibration.fit.kernels``."""
    parser = argparse.ArgumentParser(description="Fit kernel curves and rewrite the shipped profiles.")
    parser.add_argument("files", nargs="+", type=Path, help="kernel-point files (kind: kernels)")
    parser.add_argument("--check", action="store_true", help="print residuals of the shipped profiles only")
    arguments = parser.parse_args()
    measurements = all_measurements(arguments.files)
    if arguments.check:
        profiles = tuple(load_profile(plan.gpu) for plan in PLANS)
    else:
        profiles = fit_profiles(measurements)
        for profile in profiles:
            write_profile(keep_step_time_fit(profile), PROFILES)
    print_residuals(profiles, measurements)


def all_measurements(files: Sequence[Path]) -> tuple[Measurement, ...]:
    """Points of ``files`` and of the published figures; the first point of an id counts."""
    by_id: dict[str, Measurement] = {}
    for measurement in read_measurements([*files, PUBLISHED]):
        by_id.setdefault(measurement.id, measurement)
    return tuple(by_id.values())


if __name__ == "__main__":
    main()
