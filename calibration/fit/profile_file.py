"""Profiles as files: the writer whose inverse is hardware/profile.py's reader.

Knows the YAML layout and rounds to four digits, so that the same measurements always give the
same bytes. Fits nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import yaml

from ...hardware.files import write_text
from ...hardware.profile import AttentionCurve, GpuProfile, Provenance

_HEADER = """\
# Calibrated constants of {gpu}; hardware/profile.py says what each means. Written by
#   python -m stepsim.calibration.fit.kernels
# clock_fraction, corun_slowdown and step_time_fit are fitted on step times and kept when it runs again.
"""


class _Writer(yaml.SafeDumper):
    """Short lists and mappings on one line, long texts unwrapped."""


_Writer.add_representer(
    float, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", _number(value))
)


def write_profile(profile: GpuProfile, folder: Path) -> None:
    """Write ``profile`` to ``folder/<gpu>.yaml``."""
    body = yaml.dump(
        profile_document(profile), Dumper=_Writer, sort_keys=False, width=110, default_flow_style=None
    )
    write_text(folder / f"{profile.gpu}.yaml", _HEADER.format(gpu=profile.gpu) + body, edits=True)


def profile_document(profile: GpuProfile) -> dict[str, Any]:
    """``profile`` as plain data."""
    memory, gemm = profile.memory, profile.gemm
    return {
        "gpu": profile.gpu,
        "clock_fraction": profile.clock_fraction,
        "corun_slowdown": profile.corun_slowdown,
        "step_time_fit": profile.step_time_fit,
        **({"step_time_residual": profile.step_time_residual} if profile.step_time_residual else {}),
        "measured_clock_fraction": profile.measured_clock_fraction,
        **({"measured_boost": profile.measured_boost} if profile.measured_boost else {}),
        **({"measured_call_s": profile.measured_call_s} if profile.measured_call_s else {}),
        "kernel_latency_s": profile.kernel_latency_s,
        "memory": {
            "stream_efficiency": memory.stream_efficiency,
            "pointwise_efficiency": memory.pointwise_efficiency,
            "ramp_s": memory.ramp_s,
            "provenance": _provenance(memory.provenance),
        },
        "gemm": {
            "rates": {
                rate.dtype: {"fraction": rate.fraction, "provenance": _provenance(rate.provenance)}
                for rate in gemm.rates
            },
            "tiles": [[tile.m, tile.n, tile.efficiency] for tile in gemm.tiles],
            "tile_overhead_s": gemm.tile_overhead_s,
            "store_exposed": gemm.store_exposed,
            "wave_quantisation": gemm.wave_quantisation,
            **({"epilogue_s": gemm.epilogue_s} if gemm.epilogue_s else {}),
            "provenance": _provenance(gemm.provenance),
        },
        "attention": {curve.implementation: _attention(curve) for curve in profile.attention},
    }


def _attention(curve: AttentionCurve) -> dict[str, Any]:
    return {
        "forward": dict(curve.forward),
        "backward": dict(curve.backward),
        "forward_blend": curve.forward_blend,
        "backward_blend": curve.backward_blend,
        "diagonal_keys": curve.diagonal_keys,
        "causal_tail": curve.causal_tail,
        "wave_quantisation": curve.wave_quantisation,
        "provenance": _provenance(curve.provenance),
    }


def _provenance(item: Provenance) -> dict[str, Any]:
    document: dict[str, Any] = {"source": item.source, "points": item.points}
    if item.median_residual is not None:
        document |= {"median_residual": item.median_residual, "p90_residual": item.p90_residual}
    if item.ranges:
        document["ranges"] = {name: [math.floor(low), math.ceil(high)] for name, low, high in item.ranges}
    document["carried"] = item.carried
    if item.note:
        document["note"] = item.note
    return document


def _number(value: float) -> str:
    text = f"{value:.4g}"
    if "e" in text:  # YAML 1.1 reads 1e-06 as a string; 1.0e-06 is a number in every version
        mantissa, exponent = text.split("e")
        return f"{mantissa if '.' in mantissa else mantissa + '.0'}e{exponent}"
    return text if "." in text else text + ".0"
