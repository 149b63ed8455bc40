"""Own measurements laid over the shipped profile of a GPU: what they show counts, the rest stays.

Knows the entries of a scenario's ``calibration``: names of shipped profiles and files. A later entry
overrides an earlier one, curve by curve. A profile of another GPU is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..catalogue import unknown_name
from ..collective_curve import CollectiveCurve
from ..gpus import get_gpu
from ..profile import (
    AttentionCurve,
    GemmCurve,
    GpuProfile,
    MemoryCurve,
    Rate,
    Tile,
    load_profile,
    profile_names,
)
from ..provenance import Provenance
from .read import SUFFIXES, read_profile_file

if TYPE_CHECKING:
    from . import models

SHORT_NAMES = {
    "a100-pcie": "A100-PCIe-80GB",
    "a100-sxm": "A100-SXM4-80GB",
    "h100-pcie": "H100-PCIe-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "h200-sxm": "H200-SXM-141GB",
    "h800-sxm": "H800-SXM5-80GB",
    "b200-sxm": "B200-SXM-180GB",
    "b300-sxm": "B300-SXM",
    "gb200": "GB200-NVL72",
    "gb300": "GB300-NVL72",
}
"""Shipped profiles as people call them, besides the catalogue keys of their GPUs."""


def is_file(entry: str) -> bool:
    """Whether an entry of ``calibration`` is a file and not the name of a shipped profile."""
    return entry.endswith(SUFFIXES)


def calibrated_profile(gpu: str, entries: Iterable[str]) -> GpuProfile:
    """The profile of ``gpu`` by the shipped constants and every one of ``entries``, in their order.

    Raises:
        ValueError: an unknown name, a profile of another GPU, a file that is none or no profile.
    """
    profile = load_profile(gpu)
    for entry in entries:
        profile = (
            load_profile(_shipped(entry, gpu)) if not is_file(entry) else laid_over(profile, Path(entry))
        )
    return profile


def laid_over(profile: GpuProfile, path: Path) -> GpuProfile:
    """``profile`` with what the file at ``path`` states in place of its own."""
    own = read_profile_file(path)
    if own.gpu != profile.gpu:
        raise ValueError(f"{path}: is a profile of {own.gpu}, but the cluster's gpu is {profile.gpu}")
    peaks = get_gpu(profile.gpu).peak_flops
    for dtype in own.gemm.rates if own.gemm else ():
        if dtype not in peaks:
            raise ValueError(
                f"{path}: gemm.rates: {profile.gpu} has no {dtype} math; it has {', '.join(peaks)}"
            )
    if own.clock_fraction is not None and own.gemm and own.gemm.rates:
        profile = _at_clock(profile, own.clock_fraction)
    collectives = {_key(curve): curve for curve in profile.collectives}
    collectives |= {_key(curve): curve for curve in collective_curves(own)}
    attention = {curve.implementation: curve for curve in profile.attention}
    attention |= {name: _attention(name, block) for name, block in own.attention.items()}
    return replace(
        profile,
        clock_fraction=profile.clock_fraction if own.clock_fraction is None else own.clock_fraction,
        step_time_fit=profile.step_time_fit if own.clock_fraction is None else f"stated in {path}",
        kernel_latency_s=profile.kernel_latency_s if own.kernel_latency is None else own.kernel_latency,
        memory=_memory(profile.memory, own.memory),
        gemm=_gemm(profile.gemm, own.gemm),
        attention=tuple(attention.values()),
        collectives=tuple(collectives.values()),
    )


def _at_clock(profile: GpuProfile, clock_fraction: float) -> GpuProfile:
    """``profile`` with its rates stated at another clock, so that training sustains what it did.

    The clock of a file that has rates of its own is relative to its own measurements; curves that stay as
    shipped are relative to others.
    """
    factor = profile.clock_fraction / clock_fraction
    rates = tuple(replace(rate, fraction=min(1.0, rate.fraction * factor)) for rate in profile.gemm.rates)
    attention = tuple(
        replace(
            curve,
            forward=tuple((dim, min(1.0, rate * factor)) for dim, rate in curve.forward),
            backward=tuple((dim, min(1.0, rate * factor)) for dim, rate in curve.backward),
        )
        for curve in profile.attention
    )
    return replace(profile, gemm=replace(profile.gemm, rates=rates), attention=attention)


def collective_curves(own: models.ProfileFile) -> tuple[CollectiveCurve, ...]:
    """The measured collectives of a file."""
    from .models import REFERENCE_BYTES

    return tuple(
        CollectiveCurve(
            kind=block.kind,
            ranks=block.ranks,
            domains=block.domains,
            alpha_s=block.latency,
            gamma_s=block.sqrt_term_at_1MB / REFERENCE_BYTES**0.5,
            bytes_per_s=block.rate,
            low_bytes=block.sizes[0],
            high_bytes=block.sizes[1],
            provenance=_provenance(block.provenance),
            corrections=block.corrections,
        )
        for block in own.collectives
    )


def _shipped(entry: str, gpu: str) -> str:
    """The GPU of a shipped profile by that name, which must be the cluster's."""
    by_lower = {name.lower(): name for name in profile_names()} | SHORT_NAMES
    name = by_lower.get(entry.lower())
    if name is None:
        known = (*SHORT_NAMES, *profile_names())
        raise ValueError(f"{unknown_name('shipped profile', entry, known)}, or a file that ends in .yaml")
    if name != gpu:
        raise ValueError(f"{entry}: is the profile of {name}, but the cluster's gpu is {gpu}")
    return name


def _key(curve: CollectiveCurve) -> tuple[str, int, int]:
    return curve.kind, curve.ranks, curve.domains


def _memory(curve: MemoryCurve, block: models.MemoryBlock | None) -> MemoryCurve:
    if block is None:
        return curve
    stated = {
        "stream_efficiency": block.stream_efficiency,
        "pointwise_efficiency": block.pointwise_efficiency,
        "ramp_s": block.ramp,
    }
    given = {name: value for name, value in stated.items() if value is not None}
    return replace(curve, **given, provenance=_provenance(block.provenance))


def _gemm(curve: GemmCurve, block: models.GemmBlock | None) -> GemmCurve:
    if block is None:
        return curve
    record = _provenance(block.provenance)
    rates = {rate.dtype: rate for rate in curve.rates}
    for dtype, one in block.rates.items():
        source = record if one.provenance is None else _provenance(one.provenance)
        rates[dtype] = Rate(dtype=dtype, fraction=one.fraction, provenance=source)
    stated = {
        "tile_overhead_s": block.tile_overhead,
        "store_exposed": block.store_exposed,
        "wave_quantisation": block.wave_quantisation,
        "epilogue_s": block.epilogue,
    }
    given = {name: value for name, value in stated.items() if value is not None}
    tiles = tuple(Tile(m=m, n=n, efficiency=e) for m, n, e in block.tiles) if block.tiles else curve.tiles
    return replace(curve, **given, rates=tuple(rates.values()), tiles=tiles, provenance=record)


def _attention(name: str, block: models.AttentionBlock) -> AttentionCurve:
    return AttentionCurve(
        implementation=name,
        forward=tuple(sorted(block.forward.items())),
        backward=tuple(sorted(block.backward.items())),
        forward_blend=block.forward_blend,
        backward_blend=block.backward_blend,
        diagonal_keys=block.diagonal_keys,
        causal_tail=block.causal_tail,
        wave_quantisation=block.wave_quantisation,
        provenance=_provenance(block.provenance),
    )


def _provenance(block: models.ProvenanceBlock) -> Provenance:
    return Provenance(**{**block.model_dump(exclude={"ranges"}), "ranges": block.flat_ranges()})
