"""Profiles as files: the one writer of what hardware/calibrated reads, for shipped and for own profiles.

Knows the YAML layout, the units, and rounds to four digits, so that the same measurements always give the
same bytes. An own profile holds only what was fitted, so that all else stays as shipped. Fits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from ...hardware.calibrated.models import FORMAT, REFERENCE_BYTES
from ...hardware.files import write_text
from ...hardware.profile import (
    AttentionCurve,
    GemmCurve,
    GemmShape,
    GpuProfile,
    Harness,
    MemoryCurve,
    Provenance,
    TimedKernel,
)
from ...hardware.quantities import parse_quantity
from ...hardware.step_factors import CAUSES

if TYPE_CHECKING:
    from ...hardware.collective_curve import CollectiveCurve
    from ...hardware.step_factors import OwnStep, StepFactors
    from .collectives import FittedCurve

Interval = tuple[float, float]

_SHIPPED = """\
# Calibrated constants of {gpu}; hardware/profile.py says what each means. Written by
#   python -m stepsim.calibration.fit.kernels
# clock_fraction, corun_slowdown and step_time_fit are fitted on step times and kept when it runs again.
"""
_OWN = """\
# A profile of measurements, for `calibration: [THIS FILE]` in a scenario and --calibration. What is not
# here stays as shipped. Residuals are |predicted / measured - 1|; held out: of measurements that the fit
# did not see. Intervals hold nine in ten of the fits on measurements drawn again. The fields:
# `stepsim schema --profile`.
"""
_RESIDUALS = ("median_residual", "p90_residual", "held_out_median", "held_out_p90")
_MEASURED = ("measured_clock_fraction", "measured_power_limited", "measured_boost", "measured_call_s")
_UNITS = {"flops": " FLOP", "bytes": " B"}
"""Units in which measured ranges are written; the ranges without one are counts."""


class WrittenKernels(Protocol):
    """What a fit of kernels found: ``FittedKernels`` of ``own``, a folder that imports this one."""

    @property
    def profile(self) -> GpuProfile: ...

    @property
    def fitted(self) -> Sequence[str]: ...

    @property
    def whole_shape(self) -> bool: ...

    @property
    def intervals(self) -> Mapping[str, Mapping[str, Interval]]: ...


class WrittenCurve(Protocol):
    """A fitted collective: ``OwnCurve`` of ``own/collectives.py``. ``fitted`` has the constants with their
    residuals, ``curve`` is what a profile holds of them: seconds over the payload."""

    @property
    def fitted(self) -> FittedCurve: ...

    @property
    def curve(self) -> CollectiveCurve: ...


class _Writer(yaml.SafeDumper):
    """Short lists and mappings on one line, long texts unwrapped."""


_Writer.add_representer(
    float, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", _digits(value))
)


def write_profile(profile: GpuProfile, folder: Path) -> None:
    """Write a shipped ``profile`` to ``folder/<gpu>.yaml``, whole."""
    text = _SHIPPED.format(gpu=profile.gpu) + _text(_whole(profile))
    write_text(folder / f"{profile.gpu}.yaml", text, edits=True)


def profile_text(
    gpu: str, made: Mapping[str, str], kernels: WrittenKernels | None, collectives: Sequence[WrittenCurve]
) -> str:
    """An own profile. ``made``: command, date, device and whatever else tells where it comes from."""
    document: dict[str, Any] = {"profile": FORMAT, "gpu": gpu, "made": dict(made)}
    if kernels is not None:
        document |= _fitted(kernels)
    return _OWN + _text(document | _given(collectives=[_collective(one) for one in collectives]))


def steps_profile_text(gpu: str, made: Mapping[str, str], factors: StepFactors) -> str:
    """An own profile of what whole steps have shown."""
    names = ", ".join(run.name for run in factors.runs)
    errors = sorted(abs(run.calibrated_s / run.measured_s - 1) for run in factors.runs)
    record = Provenance(
        source=f"measured steps: {names}",
        points=len(errors),
        median_residual=median(errors),
        p90_residual=errors[math.ceil(0.9 * len(errors)) - 1],
    )
    block: dict[str, Any] = {cause: getattr(factors, cause) for cause in CAUSES}
    block |= _given(fixed_s=factors.fixed_s) | {"reach": factors.reach}
    block |= {"runs": [_own_step(run) for run in factors.runs], "provenance": _provenance(record)}
    return _OWN + _text({"profile": FORMAT, "gpu": gpu, "made": dict(made), "steps": block})


def _step_time(value: float) -> str:
    """A step time of six digits.

    >>> _step_time(4.3104567)
    '4.31046 s'
    """
    return f"{value:.6g} s" if 1e-3 <= value < 1e6 else seconds_text(value)


def _own_step(run: OwnStep) -> dict[str, Any]:
    return {
        "name": run.name,
        "measured": _step_time(run.measured_s),
        "predicted": _step_time(run.predicted_s),
        "calibrated": _step_time(run.calibrated_s),
        "shares": dict(run.shares),
        "sizes": dict(run.kind.sizes),
        "kinds": dict(run.kind.kinds),
        "pull": run.pull,
    }


def _text(document: Mapping[str, Any]) -> str:
    return yaml.dump(
        document, Dumper=_Writer, sort_keys=False, width=110, default_flow_style=None, allow_unicode=True
    )


def _whole(profile: GpuProfile) -> dict[str, Any]:
    return {
        "profile": FORMAT,
        "gpu": profile.gpu,
        "clock_fraction": profile.clock_fraction,
        "corun_slowdown": profile.corun_slowdown,
        "step_time_fit": profile.step_time_fit,
        **({} if profile.clock_from_steps else {"clock_from_steps": False}),
        **_given(step_time_residual=profile.step_time_residual),
        **_given(**{name: getattr(profile, name) for name in _MEASURED}),
        "kernel_latency": seconds_text(profile.kernel_latency_s),
        "memory": _memory(profile.memory),
        "gemm": _gemm(profile.gemm),
        "attention": {curve.implementation: _attention(curve) for curve in profile.attention},
    }


def _fitted(kernels: WrittenKernels) -> dict[str, Any]:
    """The blocks of what was fitted, each with the intervals of its constants."""
    profile, blocks = kernels.profile, dict[str, Any]()
    names: dict[str, list[str]] = {}
    for part in kernels.fitted:
        block, _, name = part.partition(" ")
        names.setdefault(block, []).append(name)
    intervals = {block: _intervals(found) for block, found in kernels.intervals.items()}
    if dtypes := names.get("gemm"):
        blocks["clock_fraction"] = profile.clock_fraction
        blocks |= _given(measured_power_limited=profile.measured_power_limited)
        blocks["gemm"] = _gemm(profile.gemm, dtypes, kernels.whole_shape, intervals.get("gemm"))
    if constants := names.get("memory"):
        blocks["memory"] = _memory(profile.memory, constants, intervals.get("memory"))
    curves = {curve.implementation: curve for curve in profile.attention}
    attention = {
        name: _attention(curves[name], intervals.get(f"attention {name}"))
        for name in names.get("attention", ())
    }
    return blocks | _given(attention=attention)


def _given(**fields: Any) -> dict[str, Any]:
    """Fields that say something: those that are absent, empty or 0 by default are left out.

    Durations are written with their unit, and without it in their name.
    """
    return {
        name.removesuffix("_s"): seconds_text(value) if name.endswith("_s") else value
        for name, value in fields.items()
        if value
    }


def _memory(
    curve: MemoryCurve,
    names: Sequence[str] = ("stream_efficiency", "pointwise_efficiency", "ramp_s"),
    intervals: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    constants = _given(**{name: getattr(curve, name) for name in names})
    return constants | _given(intervals=intervals) | {"provenance": _provenance(curve.provenance)}


def _gemm(
    curve: GemmCurve,
    dtypes: Sequence[str] | None = None,
    whole_shape: bool = True,
    intervals: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    rates = {
        rate.dtype: {
            "fraction": rate.fraction,
            **_given(shape=_shape(rate.shape) if rate.shape and whole_shape else None),
            **_given(harness=_harness(rate.harness), timed=_timed(rate.timed)),
            "provenance": _provenance(rate.provenance),
        }
        for rate in curve.rates
    }
    block: dict[str, Any] = {"rates": {dtype: rates[dtype] for dtype in dtypes or rates}}
    if whole_shape:
        block |= _shape(curve)
    return block | _given(intervals=intervals) | {"provenance": _provenance(curve.provenance)}


def _shape(shape: GemmCurve | GemmShape) -> dict[str, Any]:
    return {
        "tiles": [[tile.m, tile.n, tile.efficiency] for tile in shape.tiles],
        "tile_overhead": seconds_text(shape.tile_overhead_s),
        "store_exposed": shape.store_exposed,
        "wave_quantisation": shape.wave_quantisation,
        **_given(epilogue_s=shape.epilogue_s, deep_slowdown=shape.deep_slowdown, split_s=shape.split_s),
    }


def _attention(curve: AttentionCurve, intervals: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {
        "forward": dict(curve.forward),
        "backward": dict(curve.backward),
        "forward_blend": curve.forward_blend,
        "backward_blend": curve.backward_blend,
        "diagonal_keys": curve.diagonal_keys,
        "causal_tail": curve.causal_tail,
        "wave_quantisation": curve.wave_quantisation,
        **_given(harness=_harness(curve.harness), intervals=intervals),
        "provenance": _provenance(curve.provenance),
    }


def _harness(harness: Harness | None) -> dict[str, Any] | None:
    """What differs from a harness that adds nothing."""
    if harness is None:
        return None
    plain = asdict(Harness())
    stated = {
        name: value for name, value in asdict(harness).items() if _digits(value) != _digits(plain[name])
    }
    return _given(**stated)


def _timed(kernel: TimedKernel | None) -> dict[str, Any] | None:
    return {"fraction": kernel.fraction, "shape": _shape(kernel.shape)} if kernel else None


def _collective(one: WrittenCurve) -> dict[str, Any]:
    curve, fitted = one.curve, one.fitted
    root = math.sqrt(REFERENCE_BYTES)
    ends = {
        "latency_s": (fitted.alpha_s.low, fitted.alpha_s.high),
        "sqrt_term_at_1MB_s": (fitted.gamma_s.low * root, fitted.gamma_s.high * root),
    }
    rates = [rate_text(fitted.bytes_per_s.low), rate_text(fitted.bytes_per_s.high)]
    return {
        "kind": curve.kind,
        "ranks": curve.ranks,
        "domains": curve.domains,
        "latency": seconds_text(curve.alpha_s),
        "sqrt_term_at_1MB": seconds_text(curve.gamma_s * root),
        "rate": rate_text(curve.bytes_per_s),
        "sizes": [f"{curve.low_bytes:.0f} B", f"{curve.high_bytes:.0f} B"],
        **_given(corrections=[[f"{size:.0f} B", by] for size, by in curve.corrections]),
        "intervals": _intervals(ends) | {"rate": rates},
        "provenance": _provenance(curve.provenance),
    }


def _intervals(found: Mapping[str, Interval]) -> dict[str, list[Any]]:
    return {
        name.removesuffix("_s"): [seconds_text(end) if name.endswith("_s") else end for end in ends]
        for name, ends in found.items()
    }


def _provenance(item: Provenance) -> dict[str, Any]:
    residuals = {name: getattr(item, name) for name in _RESIDUALS}
    ranges = {
        name: [f"{math.floor(low)}{_UNITS[name]}", f"{math.ceil(high)}{_UNITS[name]}"]
        if name in _UNITS
        else [math.floor(low), math.ceil(high)]
        for name, low, high in item.ranges
    }
    return {
        "source": item.source,
        "points": item.points,
        **{name: value for name, value in residuals.items() if value is not None},
        **_given(ranges=ranges, carried=item.carried, note=item.note),
    }


def seconds_text(value: float) -> str:
    """A duration of four digits in the first unit in which exactly these are read back.

    >>> seconds_text(1.18e-6), seconds_text(2.1611e-6), seconds_text(0.25)
    ('1.18 us', '2161 ns', '250000 us')
    """
    exact = float(f"{value:.4g}")
    texts = (f"{exact / unit_s:.10g} {unit}" for unit, unit_s in (("us", 1e-6), ("ns", 1e-9), ("ms", 1e-3)))
    return next((text for text in texts if parse_quantity(text, "seconds") == exact), f"{exact!r} s")


def rate_text(value: float) -> str:
    """A rate with a unit.

    >>> rate_text(3.8123e11)
    '381.2 GB/s'
    """
    return f"{value * 1e-9:.4g} GB/s"


def _digits(value: float) -> str:
    text = f"{value:.4g}"
    if "e" in text:  # YAML 1.1 reads 1e-06 as text; 1.0e-06 is a number in every version
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text if "." in text else text + ".0"
