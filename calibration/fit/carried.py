"""The profile that a GPU would have if nothing of one operation had been measured on it.

Knows each GPU's nearest relative. What is carried: shape constants and the fraction of peak of a
relative's GEMMs, a relative's attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hardware.calibrated.overlay import load_profile
from ...hardware.gpus import get_gpu
from ...hardware.profile import AttentionCurve, GpuProfile, Provenance, Rate
from ..measure.plan import PLANS
from ..readers.measurements import Measurement, is_gemm
from .attention import fit_attention
from .gemm import fraction_of_best, with_fraction

RELATIVES = {
    "A100-PCIe-80GB": ("A100-SXM4-80GB",),
    "A100-SXM4-80GB": ("A100-PCIe-80GB",),
    "A100-SXM4-40GB": ("A100-SXM4-80GB", "A100-PCIe-80GB"),
    "H100-SXM5-80GB": ("H800-SXM5-80GB",),
    "H800-SXM5-80GB": ("H100-SXM5-80GB",),
    "H200-SXM-141GB": ("H100-SXM5-80GB", "H800-SXM5-80GB"),
    "B200-SXM-180GB": ("GB200-NVL72", "B300-SXM"),
    "B300-SXM": ("B200-SXM-180GB", "GB200-NVL72"),
    "GB200-NVL72": ("B200-SXM-180GB", "B300-SXM"),
    "GB300-NVL72": ("GB200-NVL72", "B300-SXM", "B200-SXM-180GB"),
}
"""GPUs of the same generation, the likest first."""

_OTHER_TYPE = {"fp8": ("bf16", 0.9), "bf16": ("fp8", 1 / 0.9)}
"""Where no relative has a best shape of a type: another type's fraction of peak times this (fit_kernels)."""


def carried_profile(gpu: str, operation: str, known: Sequence[Measurement]) -> GpuProfile:
    """The shipped profile of ``gpu`` without what its own points of ``operation`` among ``known`` gave it."""
    profile = load_profile(gpu)
    others = [m for m in known if not (m.gpu == gpu and m.operation == operation)]
    if operation == "attention":
        return replace(profile, attention=_attention(profile, others))
    if operation == "grouped_gemm":
        return profile  # grouped GEMMs have no constant of their own but one, which B200 gave
    return _gemm(profile, others)


def _gemm(profile: GpuProfile, known: Sequence[Measurement]) -> GpuProfile:
    relatives = [load_profile(name) for name in RELATIVES.get(profile.gpu, ())]
    plan = next(plan for plan in PLANS if plan.gpu == profile.gpu)
    shape = load_profile(plan.shape_from).gemm if plan.shape_from else relatives[0].gemm
    carried = replace(
        profile, gemm=shape, measured_clock_fraction=1.0, measured_boost=0.0, measured_call_s=0.0
    )
    for rate in profile.gemm.rates:
        fraction, source = _fraction(profile, rate, known)
        carried = with_fraction(carried, rate.dtype, fraction, Provenance(source=source, carried=True))
    return carried


def _fraction(profile: GpuProfile, rate: Rate, known: Sequence[Measurement]) -> tuple[float, str]:
    """Fraction of peak of a type by the nearest relative whose best shape is known."""
    dtypes = [(rate.dtype, 1.0), *([_OTHER_TYPE[rate.dtype]] if rate.dtype in _OTHER_TYPE else [])]
    for dtype, factor in dtypes:
        for name in (*RELATIVES.get(profile.gpu, ()), profile.gpu):
            best = next((m for m in known if m.gpu == name and m.best_of_search and is_gemm(m, dtype)), None)
            if best is not None:
                return factor * fraction_of_best(best, get_gpu(name)), best.id
    return rate.fraction, rate.provenance.source


def _attention(profile: GpuProfile, known: Sequence[Measurement]) -> tuple[AttentionCurve, ...]:
    """Each implementation's curve from the nearest relative that has points of it; else as shipped."""
    found = []
    for curve in profile.attention:
        for name in RELATIVES.get(profile.gpu, ()):
            points = [
                m
                for m in known
                if m.gpu == name
                and any(getattr(k, "implementation", "") == curve.implementation for k in m.kernels)
            ]
            if points:
                relative = replace(load_profile(name), clock_fraction=1.0)
                curve = fit_attention(relative, curve.implementation, points, get_gpu(name), f"on {name}")
                curve = replace(curve, provenance=replace(curve.provenance, carried=True))
                break
        found.append(curve)
    return tuple(found)
