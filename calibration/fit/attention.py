"""Fit of a fused-attention curve: rates by head dimension, blending, causal imbalance.

Knows which constants a table of times by sequence length can show. Does not know which GPU has
one; that is in plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...hardware.gpu import Gpu
from ...hardware.profile import AttentionCurve, GpuProfile, Provenance
from ...kernels.kernel import Attention
from ..readers.measurements import Measurement
from .curve_fit import FitParameter, fit, provenance

# Backward rate over forward rate, where only the forward or their sum was measured: FlashAttention-2
# on A100-PCIe runs 156.8 against 185.2 TFLOP/s at head dimension 128 (points simumax-a100p-attn).
_BACKWARD_OVER_FORWARD = FitParameter(name="backward", start=0.85, low=0.5, high=1.25, spread=0.10)
# Rate at head dimension 64 over that at 128, H100: half the math for as many exponentials.
_SMALL_HEAD = 64
_SMALL_HEAD_RATE = {"fa2": 0.86, "fa3": 0.70}
_SHARED = (
    FitParameter(name="forward_blend", start=1.6, low=1.0, high=4.0, spread=0.5),
    # Backward's row sums and dQ cast are kernels of their own, so its traffic hardly overlaps.
    FitParameter(name="backward_blend", start=1.15, low=1.0, high=4.0, spread=0.5),
    FitParameter(name="diagonal_keys", start=128.0, low=16.0, high=256.0, spread=0.3),
    FitParameter(name="causal_tail", start=1.0, low=0.0, high=2.0, spread=0.5),
    FitParameter(name="wave_quantisation", start=0.5, low=0.0, high=1.0, spread=0.5),
)


def fit_attention(
    profile: GpuProfile, implementation: str, measurements: Sequence[Measurement], gpu: Gpu, source: str
) -> AttentionCurve:
    """The curve of one implementation on one GPU, from its ``measurements``."""
    kernels = [kernel for item in measurements for kernel in item.kernels if isinstance(kernel, Attention)]
    dims = sorted({kernel.head_dim for kernel in kernels})
    parameters = [FitParameter(name=f"forward_{dim}", start=0.5, low=0.05, high=1.0) for dim in dims]
    parameters += [replace(_BACKWARD_OVER_FORWARD, name=f"backward_{dim}") for dim in dims]

    def build(constants: dict[str, float]) -> GpuProfile:
        return replace(profile, attention=(_curve(implementation, dims, constants),))

    constants = fit([*parameters, *_SHARED], build, measurements, gpu)
    backward = any(kernel.direction == "backward" for kernel in kernels)
    note = "" if backward else "backward unmeasured: 0.85 of the forward rate (carried)"
    record = provenance(source, measurements, gpu, build(constants), note)
    return _with_small_heads(replace(_curve(implementation, dims, constants), provenance=record))


def _with_small_heads(curve: AttentionCurve) -> AttentionCurve:
    """``curve`` with head dimension 64, carried from H100 where only larger ones were measured."""
    smallest = curve.forward[0][0]
    if smallest <= _SMALL_HEAD:
        return curve
    factor = _SMALL_HEAD_RATE.get(curve.implementation, _SMALL_HEAD_RATE["fa3"])
    note = f"head dimension {_SMALL_HEAD} at {factor} of {smallest} (carried)"
    return replace(
        curve,
        forward=((_SMALL_HEAD, curve.forward[0][1] * factor), *curve.forward),
        backward=((_SMALL_HEAD, curve.backward[0][1] * factor), *curve.backward),
        provenance=replace(curve.provenance, note=_joined(curve.provenance.note, note)),
    )


def _curve(implementation: str, dims: Sequence[int], constants: dict[str, float]) -> AttentionCurve:
    forward = {dim: constants[f"forward_{dim}"] for dim in dims}
    shared: dict[str, Any] = {parameter.name: constants[parameter.name] for parameter in _SHARED}
    return AttentionCurve(
        implementation=implementation,
        forward=tuple(forward.items()),
        backward=tuple((dim, min(1.0, rate * constants[f"backward_{dim}"])) for dim, rate in forward.items()),
        provenance=Provenance(source="fit"),
        **shared,
    )


def scaled(
    curve: AttentionCurve, *, implementation: str, factor: float, backward: float, source: str, note: str
) -> AttentionCurve:
    """``curve`` carried to another GPU or implementation, its forward times ``factor``."""
    record = replace(
        curve.provenance,
        source=source,
        points=0,
        median_residual=None,
        p90_residual=None,
        carried=True,
        note=_joined(note, curve.provenance.note),
    )
    return replace(
        curve,
        implementation=implementation,
        forward=tuple((dim, rate * factor) for dim, rate in curve.forward),
        backward=tuple((dim, rate * backward) for dim, rate in curve.backward),
        provenance=record,
        harness=None,
    )


def _joined(*notes: str) -> str:
    return "; ".join(note for note in notes if note)
