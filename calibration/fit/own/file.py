"""The profile file: what was fitted, with units, ranges, residuals and where it comes from.

Knows the layout that hardware/calibrated reads; writes only what was fitted, so that all else stays as
shipped. Four digits, the same bytes for the same measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from ....hardware.calibrated.models import FORMAT, REFERENCE_BYTES
from ....hardware.profile import AttentionCurve, GemmCurve
from ....hardware.provenance import Provenance
from .collectives import OwnCurve
from .judged import Interval
from .kernels import FittedKernels

HEADER = """\
# A profile of measurements, for `calibration: [THIS FILE]` in a scenario and --calibration. What is not
# here stays as shipped. Residuals are |predicted / measured - 1|; held out: of measurements that the fit
# did not see. Intervals hold nine in ten of the fits on measurements drawn again. The fields:
# `stepsim schema --profile`.
"""
_COUNTS = ("narrow", "k", "seq", "head_dim")


class _Writer(yaml.SafeDumper):
    """Short lists and mappings on one line."""


_Writer.add_representer(
    float, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", _digits(value))
)


def profile_text(
    gpu: str, made: Mapping[str, str], kernels: FittedKernels | None, collectives: Sequence[OwnCurve]
) -> str:
    """The YAML text. ``made``: command, date, device and whatever else tells where it comes from."""
    document: dict[str, Any] = {"profile": FORMAT, "gpu": gpu, "made": dict(made)}
    if kernels is not None:
        document |= _kernels(kernels)
    if collectives:
        document["collectives"] = [_collective(one) for one in collectives]
    body = yaml.dump(
        document, Dumper=_Writer, sort_keys=False, width=110, default_flow_style=None, allow_unicode=True
    )
    return HEADER + body


def _kernels(fitted: FittedKernels) -> dict[str, Any]:
    profile, parts = fitted.profile, fitted.fitted
    blocks: dict[str, Any] = {}
    if dtypes := [part.removeprefix("gemm ") for part in parts if part.startswith("gemm ")]:
        blocks["clock_fraction"] = profile.clock_fraction
        blocks["gemm"] = _gemm(profile.gemm, dtypes, fitted)
    if names := [part.removeprefix("memory ") for part in parts if part.startswith("memory ")]:
        blocks["memory"] = {
            **{name: getattr(profile.memory, name) for name in names},
            "intervals": _intervals(fitted.intervals.get("memory", {})),
            "provenance": _provenance(profile.memory.provenance),
        }
    if fused := [part.removeprefix("attention ") for part in parts if part.startswith("attention ")]:
        curves = {curve.implementation: curve for curve in profile.attention}
        blocks["attention"] = {
            name: _attention(curves[name], fitted.intervals.get(f"attention {name}", {})) for name in fused
        }
    return blocks


def _gemm(curve: GemmCurve, dtypes: Iterable[str], fitted: FittedKernels) -> dict[str, Any]:
    rates = {rate.dtype: rate for rate in curve.rates}
    block: dict[str, Any] = {
        "rates": {
            dtype: {"fraction": rates[dtype].fraction, "provenance": _provenance(rates[dtype].provenance)}
            for dtype in dtypes
        }
    }
    if fitted.whole_shape:
        block |= {
            "tiles": [[tile.m, tile.n, tile.efficiency] for tile in curve.tiles],
            "tile_overhead": seconds_text(curve.tile_overhead_s),
            "store_exposed": curve.store_exposed,
            "wave_quantisation": curve.wave_quantisation,
            **({"epilogue": seconds_text(curve.epilogue_s)} if curve.epilogue_s else {}),
        }
    block["intervals"] = _intervals(fitted.intervals.get("gemm", {}))
    return block | {"provenance": _provenance(curve.provenance)}


def _attention(curve: AttentionCurve, intervals: Mapping[str, Interval]) -> dict[str, Any]:
    return {
        "forward": dict(curve.forward),
        "backward": dict(curve.backward),
        "forward_blend": curve.forward_blend,
        "backward_blend": curve.backward_blend,
        "diagonal_keys": curve.diagonal_keys,
        "causal_tail": curve.causal_tail,
        "wave_quantisation": curve.wave_quantisation,
        "intervals": _intervals(intervals),
        "provenance": _provenance(curve.provenance),
    }


def _collective(one: OwnCurve) -> dict[str, Any]:
    curve, fitted = one.curve, one.fitted
    root = math.sqrt(REFERENCE_BYTES)
    return {
        "kind": curve.kind,
        "ranks": curve.ranks,
        "domains": curve.domains,
        "latency": seconds_text(curve.alpha_s),
        "sqrt_term_at_1MB": seconds_text(curve.gamma_s * root),
        "rate": rate_text(curve.bytes_per_s),
        "sizes": [f"{curve.low_bytes:.0f} B", f"{curve.high_bytes:.0f} B"],
        **(
            {"corrections": [[f"{size:.0f} B", by] for size, by in curve.corrections]}
            if curve.corrections
            else {}
        ),
        "intervals": {
            "latency": [seconds_text(fitted.alpha_s.low), seconds_text(fitted.alpha_s.high)],
            "sqrt_term_at_1MB": [
                seconds_text(fitted.gamma_s.low * root),
                seconds_text(fitted.gamma_s.high * root),
            ],
            "rate": [rate_text(fitted.bytes_per_s.low), rate_text(fitted.bytes_per_s.high)],
        },
        "provenance": _provenance(curve.provenance),
    }


def _intervals(found: Mapping[str, Interval]) -> dict[str, list[Any]]:
    return {
        name.removesuffix("_s"): [seconds_text(end) if name.endswith("_s") else end for end in ends]
        for name, ends in found.items()
    }


def _provenance(item: Provenance) -> dict[str, Any]:
    document: dict[str, Any] = {"source": item.source, "points": item.points}
    for name in ("median_residual", "p90_residual", "held_out_median", "held_out_p90"):
        if (value := getattr(item, name)) is not None:
            document[name] = value
    if item.ranges:
        document["ranges"] = {name: _range(name, low, high) for name, low, high in item.ranges}
    if item.carried:
        document["carried"] = True
    if item.note:
        document["note"] = item.note
    return document


def _range(name: str, low: float, high: float) -> list[Any]:
    if name in _COUNTS:
        return [math.floor(low), math.ceil(high)]
    unit = "FLOP" if name == "flops" else "B"
    return [f"{math.floor(low)} {unit}", f"{math.ceil(high)} {unit}"]


def seconds_text(value: float) -> str:
    """A duration with a unit.

    >>> seconds_text(1.2346e-5), seconds_text(0.25)
    ('12.35 us', '2.5e+05 us')
    """
    return f"{value * 1e6:.4g} us"


def rate_text(value: float) -> str:
    """A rate with a unit.

    >>> rate_text(3.8123e11)
    '381.2 GB/s'
    """
    return f"{value * 1e-9:.4g} GB/s"


def _digits(value: float) -> str:
    text = f"{value:.4g}"
    if "e" in text:  # YAML 1.1 reads 1e-06 as text
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text if "." in text else text + ".0"
