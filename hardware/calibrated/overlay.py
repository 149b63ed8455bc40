"""The profile of a GPU: the shipped one, and own measurements laid over it, which count where they show
something.

Knows the entries of a scenario's ``calibration``: names of shipped profiles and files. A later entry
overrides an earlier one, curve by curve. A profile of another GPU is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ..catalogue import unknown_name
from ..collective_curve import CollectiveCurve
from ..gpu import Gpu
from ..gpus import GPUS, get_gpu
from ..limited_clock import clock_carried
from ..profile import (
    AttentionCurve,
    GemmCurve,
    GpuProfile,
    MemoryCurve,
    Rate,
    Tile,
)
from .read import SUFFIXES, read_profile_file

if TYPE_CHECKING:
    from pydantic import BaseModel

    from . import models

T = TypeVar("T")
_Curve = TypeVar("_Curve", MemoryCurve, GemmCurve, AttentionCurve, Rate)

_FOLDER = Path(__file__).parents[1] / "profiles"


def is_file(entry: str) -> bool:
    """Whether an entry of ``calibration`` is a file and not the name of a shipped profile."""
    return entry.endswith(SUFFIXES)


@cache
def profile_names() -> tuple[str, ...]:
    """GPUs that have a profile."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


@cache
def load_profile(gpu_name: str) -> GpuProfile:
    """The shipped profile of a GPU, or of its ``profile_of``: as it is where they are one chip. Raises
    ValueError when there is none."""
    if gpu_name not in profile_names():
        gpu = GPUS.records().get(gpu_name)
        if gpu and gpu.profile_of:
            return profile_for(gpu) if gpu.same_kernels else profile_carried_to(gpu)
        raise unknown_name("profiled GPU", gpu_name, profile_names())
    return shipped_profile(_FOLDER / f"{gpu_name}.yaml")


def profile_carried_to(gpu: Gpu) -> GpuProfile:
    """The profile of a GPU that was never measured: efficiencies of its ``profile_of``, each marked as
    carried; its clock is theirs at its own power limit (limited_clock.py).

    An attention kernel stays only where its instructions exist: FlashAttention-2 needs Ampere (README of
    Dao-AILab/flash-attention), FlashAttention-3 Hopper.
    """
    base = load_profile(gpu.profile_of)
    kept = (one for one in base.attention if gpu.architecture not in _WITHOUT.get(one.implementation, ()))
    return replace(
        base,
        gpu=gpu.name,
        clock_fraction=clock_carried(base.clock_fraction, get_gpu(gpu.profile_of), gpu),
        step_time_fit=f"carried from {gpu.profile_of}: no step of {gpu.name} was measured",
        step_time_residual=None,  # what carrying adds is in the doubt of a GPU that nobody measured
        memory=_carried(base.memory, gpu),
        gemm=replace(_carried(base.gemm, gpu), rates=tuple(_rates(base.gemm, gpu))),
        attention=tuple(_carried(curve, gpu) for curve in kept),
    )


_WITHOUT = {
    "fa2": ("volta",),
    "fa3": ("volta", "ampere", "ada", "blackwell", "blackwell-rtx", "rubin"),
    "cudnn": ("volta",),
    "fa1": ("volta",),
}
"""By implementation of attention, the architectures on which it does not run."""


NARROW_SHARES = {"fp8": 0.958, "fp8_block": 0.913, "nvfp4": 0.901}
"""By data type, the fraction of its peak that GEMMs reach, over the fraction at 16 bit: the median over
the GPUs on which that type was measured."""


def _rates(base: GemmCurve, gpu: Gpu) -> Iterator[Rate]:
    """The rates of a relative, and of narrow types that it lacks and the GPU has what others reach."""
    rates = {rate.dtype: _carried(rate, gpu) for rate in base.rates}
    yield from rates.values()
    for dtype, share in NARROW_SHARES.items():
        if dtype == "nvfp4" and gpu.vendor != "NVIDIA":
            continue  # a format of NVIDIA's alone
        if dtype not in rates and "bf16" in rates and gpu.has_math(dtype):
            yield replace(rates["bf16"], dtype=dtype, fraction=share * rates["bf16"].fraction, harness=None)


def _carried(curve: _Curve, gpu: Gpu) -> _Curve:
    """``curve`` as one that was measured on the GPU from which it is carried."""
    note = f"measured on {gpu.profile_of}, carried to {gpu.name}"
    return replace(curve, provenance=replace(curve.provenance, carried=True, note=note))


def profile_for(gpu: Gpu) -> GpuProfile:
    """The profile of a GPU of the catalogue or of one that a user describes, at its own power limit."""
    if gpu.own and not gpu.same_kernels:
        return profile_carried_to(gpu)
    profile, as_sold = load_profile(gpu.measured_as), get_gpu(gpu.measured_as)
    if gpu.same_kernels:
        profile = replace(profile, gpu=gpu.name)
    if gpu.tdp_w == as_sold.tdp_w:
        return profile
    return replace(profile, clock_fraction=clock_carried(profile.clock_fraction, as_sold, gpu))


def calibrated_profile(gpu: Gpu | str, entries: Iterable[str]) -> GpuProfile:
    """The profile of ``gpu``, by name or itself, by the shipped constants and every one of ``entries``, in
    their order.

    Raises:
        ValueError: an unknown name, a profile of another GPU, a file that is not there or is not a profile.
    """
    gpu = get_gpu(gpu) if isinstance(gpu, str) else gpu
    profile = profile_for(gpu)
    for entry in entries:
        profile = (
            replace(load_profile(_shipped(entry, gpu.measured_as)), gpu=gpu.name)
            if not is_file(entry)
            else laid_over(profile, Path(entry), gpu)
        )
    return profile


def shipped_profile(path: Path) -> GpuProfile:
    """The profile of a file that states everything, as shipped ones do."""
    return _joined(None, read_profile_file(path))


def laid_over(profile: GpuProfile, path: Path, gpu: Gpu | None = None) -> GpuProfile:
    """``profile`` with what the file at ``path`` states in place of its own; ``gpu``: one of no catalogue."""
    own = read_profile_file(path)
    known_as = {profile.gpu, *((gpu.measured_as,) if gpu else ())}
    if own.gpu not in known_as:
        raise ValueError(f"{path}: is a profile of {own.gpu}, but the cluster's gpu is {profile.gpu}")
    gpu = gpu or get_gpu(profile.gpu)
    for dtype in own.gemm.rates if own.gemm else ():
        if not gpu.has_math(dtype):
            raise ValueError(
                f"{path}: gemm.rates: {profile.gpu} has no {dtype} math; it has {', '.join(gpu.peak_flops)}"
            )
    if own.clock_fraction is not None:
        profile = replace(profile, step_time_fit=f"stated in {path}", clock_from_steps=True)
        if own.gemm and own.gemm.rates:
            profile = _at_clock(profile, own.clock_fraction)
    return _joined(profile, own)


def _joined(base: GpuProfile | None, own: models.ProfileFile) -> GpuProfile:
    """What the file states, and of ``base`` what it does not."""
    attention = {curve.implementation: curve for curve in base.attention} if base else {}
    attention |= {name: block.curve(name) for name, block in own.attention.items()}
    collectives = {_key(curve): curve for curve in base.collectives} if base else {}
    collectives |= {_key(curve): curve for curve in collective_curves(own)}
    given = _stated(own, _NOT_OF_CURVES)
    if own.memory:
        record = {"provenance": own.memory.provenance.record}
        given["memory"] = _over(MemoryCurve, base and base.memory, _stated(own.memory) | record)
    if own.gemm:
        given["gemm"] = _gemm(base.gemm if base else None, own.gemm)
    if own.steps:
        given["steps"] = own.steps.record
    curves = {"attention": tuple(attention.values()), "collectives": tuple(collectives.values())}
    return _over(GpuProfile, base, given | curves)


_NOT_OF_CURVES = {"profile", "made", "memory", "gemm", "attention", "collectives", "steps"}


def _stated(block: BaseModel, besides: Iterable[str] = ()) -> dict[str, Any]:
    """Constants that a block states, under the names of its curve."""
    left_out = {"intervals", "provenance", "rates", "tiles", *besides}
    fields = {name: getattr(block, name) for name in type(block).model_fields if name not in left_out}
    return {name: value for name, value in fields.items() if value is not None}


def _over(part: type[T], base: T | None, given: dict[str, Any]) -> T:
    """``base`` with what is given; where there is none, a whole ``part`` of it."""
    return part(**given) if base is None else replace(base, **given)  # type: ignore[type-var]


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
    return tuple(block.curve for block in own.collectives)


def short_names() -> dict[str, str]:
    """GPUs that have a profile, by what the catalogue calls it for short."""
    gpus = GPUS.records()
    return {gpus[name].short_name: name for name in gpus if gpus[name].short_name and name in profile_names()}


def _shipped(entry: str, gpu: str) -> str:
    """The GPU of a shipped profile by that name, which must be the cluster's."""
    short = short_names()
    name = ({name.lower(): name for name in profile_names()} | short).get(entry.lower())
    if name is None:
        refusal = unknown_name("shipped profile", entry, (*short, *profile_names()))
        raise ValueError(f"{refusal}, or a file that ends in .yaml")
    if name != gpu:
        raise ValueError(f"{entry}: is the profile of {name}, but the cluster's gpu is {gpu}")
    return name


def _key(curve: CollectiveCurve) -> tuple[str, int, int]:
    return curve.kind, curve.ranks, curve.domains


def _gemm(base: GemmCurve | None, block: models.GemmBlock) -> GemmCurve:
    record = block.provenance.record
    rates = {rate.dtype: rate for rate in base.rates} if base else {}
    for dtype, one in block.rates.items():
        source = one.provenance.record if one.provenance else record
        harness = one.harness.record if one.harness else None
        shape = one.shape.record if one.shape else None
        if shape is None and block.tiles is None and dtype in rates:
            shape = rates[dtype].shape  # a rate by itself was found with the shape that stays
        timed = one.timed.record if one.timed else None
        rates[dtype] = Rate(
            dtype=dtype, fraction=one.fraction, provenance=source, harness=harness, shape=shape, timed=timed
        )
    given = _stated(block) | {"rates": tuple(rates.values()), "provenance": record}
    if block.tiles:
        given["tiles"] = tuple(Tile(m=m, n=n, efficiency=share) for m, n, share in block.tiles)
    return _over(GemmCurve, base, given)
