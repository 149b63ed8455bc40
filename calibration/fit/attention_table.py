"""Fit of a fused-attention curve on a table of prefill kernels; its level by the kernel's own times.

Knows what such a table shows: how time depends on batch, heads, sequence and head dimension, and what its
harness times besides. Its kernels read a paged cache, so that the level of the curve is that of the points
that others measured of the kernel itself, where there are some; the table's own is kept as the harness's
slowdown. Does not know which GPU has a table; that is in plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hardware.gpu import Gpu
from ...hardware.profile import AttentionCurve, GpuProfile, Harness, Provenance
from ...kernels.kernel import Attention
from ..readers.kernel_tables import left_out, sample, shape_of
from ..readers.measurements import Measurement
from .curve_fit import FitParameter, fit, provenance

POINTS = 300
_OWN_WEIGHT = 6.0  # of a point of the kernel itself, beside some ten times as many of the table
_BACKWARD = 0.85  # of the forward rate where nobody measured it (attention.py)

# What a tile computes beyond its mask, and the time that its prologue and epilogue take, in keys: tiles are
# 128 or 256 queries by 128 keys, and a short sequence has few keys to hide both ends of a tile behind.
_SHAPE = (
    FitParameter(name="forward_blend", start=1.4, low=1.0, high=4.0),
    FitParameter(name="diagonal_keys", start=250.0, low=16.0, high=640.0),
    FitParameter(name="causal_tail", start=1.0, low=0.0, high=3.0),
    FitParameter(name="wave_quantisation", start=0.5, low=0.0, high=1.0),
)
_HARNESS = (
    FitParameter(name="beside_s", start=6e-6, low=0.0, high=3e-5),
    FitParameter(name="beside_efficiency", start=0.4, low=0.05, high=1.0),
    # A thread block writes each token's keys and values (vLLM, csrc/cache_kernels.cu,
    # reshape_and_cache_flash_kernel): some 500 run at a time, for a microsecond or less.
    FitParameter(name="row_s", start=1e-9, low=0.0, high=1e-8),
)
_SLOWDOWN = FitParameter(name="slowdown", start=1.15, low=0.7, high=2.0)
_BACKWARD_BLEND = FitParameter(name="backward_blend", start=1.15, low=1.0, high=4.0, spread=0.5)


def fit_attention_table(
    profile: GpuProfile,
    implementation: str,
    table: Sequence[Measurement],
    own: Sequence[Measurement],
    gpu: Gpu,
) -> AttentionCurve:
    """The curve of one implementation: its shape by ``table``, its level by ``own`` points of the kernel.

    Without ``own`` points the level is the table's, and no slowdown is known.
    """
    shown = sample([item for item in table if not left_out(*shape_of(item))], POINTS)
    points = [*shown, *own]
    dims = sorted({k.head_dim for item in points for k in item.kernels if isinstance(k, Attention)})
    backward = {
        k.head_dim
        for item in own
        for k in item.kernels
        if isinstance(k, Attention) and k.direction == "backward"
    }
    parameters = [FitParameter(name=f"forward_{dim}", start=0.6, low=0.05, high=1.0) for dim in dims]
    parameters += [
        FitParameter(name=f"backward_{dim}", start=_BACKWARD, low=0.5, high=1.0, spread=0.1)
        for dim in sorted(backward)
    ]
    parameters += [*_SHAPE, *_HARNESS, *[_BACKWARD_BLEND] * bool(backward), *[_SLOWDOWN] * bool(own)]

    def build(found: dict[str, float]) -> GpuProfile:
        return replace(profile, attention=(_curve(implementation, dims, found),))

    weights = [1.0] * len(shown) + [_OWN_WEIGHT] * len(own)
    found = fit(parameters, build, points, gpu, weights=weights)
    return _with_record(build(found), table, own, gpu)


def with_harness(
    profile: GpuProfile, curve: AttentionCurve, table: Sequence[Measurement], gpu: Gpu
) -> AttentionCurve:
    """``curve``, carried from another GPU, with the harness of this GPU's own ``table``."""
    shown = sample([item for item in table if not left_out(*shape_of(item))], POINTS)

    def build(found: dict[str, float]) -> GpuProfile:
        return replace(profile, attention=(replace(curve, harness=Harness(**found)),))

    harness = build(fit([*_HARNESS, _SLOWDOWN], build, shown, gpu)).attention[0].harness
    return replace(curve, harness=harness)


def _curve(implementation: str, dims: Sequence[int], found: dict[str, float]) -> AttentionCurve:
    forward = {dim: found[f"forward_{dim}"] for dim in dims}
    return AttentionCurve(
        implementation=implementation,
        forward=tuple(forward.items()),
        backward=tuple(
            (dim, rate * found.get(f"backward_{dim}", _BACKWARD)) for dim, rate in forward.items()
        ),
        backward_blend=found.get("backward_blend", _BACKWARD_BLEND.start),
        provenance=Provenance(source="fit"),
        harness=Harness(
            slowdown=found.get("slowdown", 1.0), **{one.name: found[one.name] for one in _HARNESS}
        ),
        **{one.name: found[one.name] for one in _SHAPE},
    )


def _with_record(
    fitted: GpuProfile, table: Sequence[Measurement], own: Sequence[Measurement], gpu: Gpu
) -> AttentionCurve:
    (curve,) = fitted.attention
    held = [item for item in table if left_out(*shape_of(item))]
    source = ", ".join(sorted({item.source for item in (*own, *table)}))
    record, unseen = provenance(source, [*own, *table], gpu, fitted), provenance(source, held, gpu, fitted)
    note = (
        ""
        if any(k.direction == "backward" for item in own for k in item.kernels if isinstance(k, Attention))
        else (f"backward unmeasured: {_BACKWARD} of the forward rate (carried)")
    )
    record = replace(
        record, held_out_median=unseen.median_residual, held_out_p90=unseen.p90_residual, note=note
    )
    return replace(curve, provenance=record)
