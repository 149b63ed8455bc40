"""Fits every GPU's kernel curves from measured kernels and rewrites the shipped profiles.

    python -m stepsim.calibration.fit.kernels ../shared/data/kernels.yaml \
        ../shared/data/kernel_tables/{gemm,attention_forward}.csv [--check]

Knows the order of work: GEMMs by tables, the state of sweeps, attention, then what is carried (plan.py).
Same input, same bytes. ``--check`` prints the residuals of the shipped profiles and writes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...hardware.calibrated.overlay import load_profile, profile_names
from ...hardware.gpus import get_gpu
from ...hardware.profile import AttentionCurve, GemmCurve, GpuProfile, MemoryCurve, Provenance, Tile
from ...kernels.kernel import Attention, Gemm
from ..measure.plan import PLANS, Donor, MeasurementPlan, MemorySweep
from ..readers.kernel_tables import is_kernel_table, read_kernel_tables
from ..readers.measurements import Measurement, is_gemm, read_measurements
from .attention import fit_attention, scaled
from .attention_table import fit_attention_table, with_harness
from .gemm import fit_state, fraction_of_best, with_fraction
from .gemm_table import fit_table
from .library import FOUR_BIT, library_gain, with_library
from .profile_file import write_profile
from .residual_table import print_residuals

PUBLISHED = Path(__file__).parent / "published.yaml"
PROFILES = Path(__file__).parents[2] / "hardware" / "profiles"

DEFAULTS = "defaults"
"""The ``step_time_fit`` of a profile whose clock nobody has set yet."""

# Gap between kernels of a busy stream: 1-2 us (hardware.yaml latency_us, unverified).
_KERNEL_LATENCY_S = 1.5e-6
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


def fit_profiles(
    measurements: Sequence[Measurement], tables: Sequence[Measurement]
) -> tuple[GpuProfile, ...]:
    """The profile of every planned GPU, fitted on ``tables`` and ``measurements``, or carried."""
    from joblib import Parallel, delayed

    alone = [plan for plan in PLANS if plan.table and not plan.twin]
    fitted = Parallel(n_jobs=-1)(
        delayed(_gemm_profile)(plan, {}, measurements, [m for m in tables if m.gpu == plan.gpu])
        for plan in alone
    )
    shapes: dict[str, GpuProfile] = {profile.gpu: profile for profile in fitted}
    for plan in PLANS:
        if plan.gpu not in shapes:
            shapes[plan.gpu] = _gemm_profile(plan, shapes, measurements, tables)
    shapes = with_libraries(shapes, measurements)
    return _with_attention(shapes, measurements, tables)


def _gemm_profile(
    plan: MeasurementPlan,
    done: dict[str, GpuProfile],
    measurements: Sequence[Measurement],
    tables: Sequence[Measurement],
) -> GpuProfile:
    profile = GpuProfile(
        gpu=plan.gpu,
        clock_fraction=1.0,
        corun_slowdown=0.0,
        step_time_fit=DEFAULTS,
        clock_from_steps=False,
        measured_clock_fraction=1.0,
        kernel_latency_s=_KERNEL_LATENCY_S,
        memory=_memory(plan.memory),
        gemm=_START,
        attention=(),
    )
    if plan.table:
        own = [m for m in tables if m.gpu == plan.gpu and isinstance(m.kernels[-1], Gemm)]
        profile = fit_table(profile, own, get_gpu(plan.gpu), slows=plan.slows, twin=done.get(plan.twin))
    else:
        profile = replace(profile, gemm=_carried(done[plan.shape_from]))
    profile = _with_rates(profile, plan, measurements)
    return _with_state(profile, plan, measurements) if plan.sweep_dtype else profile


def with_libraries(
    shapes: dict[str, GpuProfile], measurements: Sequence[Measurement]
) -> dict[str, GpuProfile]:
    """``shapes`` with the GEMMs of 4 bit that training runs, where tables timed other libraries'."""
    found = dict(shapes)
    for plan in PLANS:
        if plan.library:
            points = [m for m in measurements if m.gpu == plan.library and is_gemm(m, FOUR_BIT)]
            gain = library_gain(shapes[plan.library], points, get_gpu(plan.library))
            source = f"{points[0].source} on {plan.library}"
            found[plan.gpu] = with_library(shapes[plan.gpu], gain, get_gpu(plan.gpu), source)
    return found


def _carried(donor: GpuProfile) -> GemmCurve:
    """A relative's GEMMs: shape constants, and rates as fractions of the peak."""
    note = f"shape of {donor.gpu}"
    rates = tuple(
        replace(rate, harness=None, timed=None, provenance=_as_carried(rate.provenance, f"of {donor.gpu}"))
        for rate in donor.gemm.rates
        if rate.dtype != "fp32"
    )
    return replace(donor.gemm, rates=rates, provenance=_as_carried(donor.gemm.provenance, note))


def _as_carried(record: Provenance, note: str) -> Provenance:
    return replace(
        record,
        carried=True,
        points=0,
        median_residual=None,
        p90_residual=None,
        held_out_median=None,
        held_out_p90=None,
        note=note,
    )


def _with_state(
    profile: GpuProfile, plan: MeasurementPlan, measurements: Sequence[Measurement]
) -> GpuProfile:
    """``profile`` with the clock at which this GPU's own sweep ran, and the boost of its short kernels."""
    assert plan.sweep_dtype is not None
    sweep = [
        m
        for m in measurements
        if m.gpu == plan.gpu and is_gemm(m, plan.sweep_dtype) and not (m.best_of_search or m.grouped)
    ]
    fitted = fit_state(profile, sweep, get_gpu(plan.gpu), two_states=plan.two_states)
    return replace(fitted, clock_fraction=1.0, measured_clock_fraction=fitted.clock_fraction)


def _best_of_search(measurements: Sequence[Measurement], gpu: str, dtype: str) -> Measurement:
    for measurement in measurements:
        if measurement.gpu == gpu and measurement.best_of_search and is_gemm(measurement, dtype):
            return measurement
    raise ValueError(f"the files hold no best measured {dtype} GEMM (upper_bound: true) of {gpu}")


def _memory(memory: MemorySweep) -> MemoryCurve:
    return MemoryCurve(
        stream_efficiency=memory.stream,
        pointwise_efficiency=memory.pointwise,
        ramp_s=memory.ramp_s,
        provenance=Provenance(source=memory.source, carried=True, note=memory.note),
    )


def _with_rates(
    profile: GpuProfile, plan: MeasurementPlan, measurements: Sequence[Measurement]
) -> GpuProfile:
    """``profile`` with a rate for every dtype that the GPU has."""
    for dtype, donor in plan.best:
        best = _best_of_search(measurements, donor, dtype)
        record = Provenance(source=f"{best.id} (best shape of a search)", points=1, carried=donor != plan.gpu)
        profile = with_fraction(profile, dtype, fraction_of_best(best, get_gpu(donor)), record)
    rates = {rate.dtype: rate for rate in profile.gemm.rates}
    if "fp8" in get_gpu(plan.gpu).peak_flops and "fp8" not in rates:
        record = Provenance(source="0.9 of the 16-bit fraction, as on H100", carried=True)
        profile = with_fraction(profile, "fp8", _UNMEASURED_FP8 * rates["bf16"].fraction, record)
    unverified = Provenance(source="unverified", carried=True)
    return with_fraction(profile, "fp32", _FP32_FRACTION, unverified)


def _with_attention(
    shapes: dict[str, GpuProfile], measurements: Sequence[Measurement], tables: Sequence[Measurement]
) -> tuple[GpuProfile, ...]:
    fitted: dict[tuple[str, str], AttentionCurve] = {}
    for plan in PLANS:
        for implementation, donor in plan.attention:
            if donor is None:
                fitted[plan.gpu, implementation] = _own_attention(
                    plan, implementation, shapes[plan.gpu], measurements, tables
                )

    def curve_of(plan: MeasurementPlan, implementation: str, donor: Donor | None) -> AttentionCurve:
        if donor is None:
            return fitted[plan.gpu, implementation]
        curve = carried_attention(fitted[donor.gpu, donor.implementation], implementation, donor)
        table = _attention_table(plan, implementation, tables)
        return with_harness(shapes[plan.gpu], curve, table, get_gpu(plan.gpu)) if table else curve

    return tuple(
        replace(shapes[plan.gpu], attention=tuple(curve_of(plan, *entry) for entry in plan.attention))
        for plan in PLANS
    )


def carried_attention(original: AttentionCurve, implementation: str, donor: Donor) -> AttentionCurve:
    """The curve of ``implementation`` as ``donor`` says that it is carried from ``original``."""
    backward = donor.factor if donor.backward is None else donor.backward
    apart = "" if donor.backward is None else f", backward x {backward:.3f}"
    return scaled(
        original,
        implementation=implementation,
        factor=donor.factor,
        backward=backward,
        source=f"{donor.implementation} on {donor.gpu} x {donor.factor:.3f}{apart}",
        note=donor.note,
    )


def _own_attention(
    plan: MeasurementPlan,
    implementation: str,
    profile: GpuProfile,
    measurements: Sequence[Measurement],
    tables: Sequence[Measurement],
) -> AttentionCurve:
    """The curve of a GPU's own points, at the clock of its own sweep."""
    profile = replace(profile, clock_fraction=profile.measured_clock_fraction)
    own = [m for m in measurements if m.gpu == plan.gpu and _runs(m, implementation)]
    if table := _attention_table(plan, implementation, tables):
        return fit_attention_table(profile, implementation, table, own, get_gpu(plan.gpu))
    source = ", ".join(sorted({m.source for m in own}))
    return fit_attention(profile, implementation, own, get_gpu(plan.gpu), source)


def _attention_table(
    plan: MeasurementPlan, implementation: str, tables: Sequence[Measurement]
) -> list[Measurement]:
    if implementation != plan.attention_table:
        return []
    return [m for m in tables if m.gpu == plan.gpu and _runs(m, implementation)]


def _runs(measurement: Measurement, implementation: str) -> bool:
    kernel = measurement.kernels[-1]
    return isinstance(kernel, Attention) and kernel.implementation == implementation


def keep_step_time_fit(profile: GpuProfile) -> GpuProfile:
    """``profile`` with the step-time constants of its shipped file, where those were fitted."""
    if profile.gpu not in profile_names():
        return profile
    shipped = load_profile(profile.gpu)
    if shipped.step_time_fit == DEFAULTS:
        return profile
    return replace(
        profile,
        clock_fraction=shipped.clock_fraction,
        corun_slowdown=shipped.corun_slowdown,
        step_time_fit=shipped.step_time_fit,
        clock_from_steps=shipped.clock_from_steps,
        step_time_residual=shipped.step_time_residual,
    )


def main() -> None:
    """Entry point of ``python -m stepsim.calibration.fit.kernels``."""
    parser = argparse.ArgumentParser(description="Fit kernel curves and rewrite the shipped profiles.")
    parser.add_argument(
        "files", nargs="+", type=Path, help="kernel-point files (kind: kernels) and tables (CSV)"
    )
    parser.add_argument("--check", action="store_true", help="print residuals of the shipped profiles only")
    arguments = parser.parse_args()
    tables = [path for path in arguments.files if is_kernel_table(path)]
    measurements = all_measurements([path for path in arguments.files if path not in tables])
    if arguments.check:
        profiles = tuple(load_profile(plan.gpu) for plan in PLANS)
    else:
        profiles = fit_profiles(measurements, read_kernel_tables(tables))
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
