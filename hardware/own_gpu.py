"""A GPU that a user describes: what its datasheet states, and what is taken from a relative where it does
not.

Knows the fields and how each figure is carried. A relative is the GPU that the description ``extends``, else
that of its architecture whose stated figures are nearest. Kernels run at the relative's efficiencies, marked
as carried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from .carried import CarriedFigure, Moves, spread
from .fields import Count, Flag, OneOf, Power, Rate, Size, Text, quantity
from .gpu import Gpu
from .gpus import GPUS, get_gpu, gpu_called, gpu_names, same_kernels
from .quantities import Dimension, shown_quantity

ComputeRate = Annotated[float, *quantity("flops_per_s", 1e9, 1e18), Field(examples=["181 TFLOP/s"])]
Clock = Annotated[float, *quantity("hertz", 1e8, 1e10), Field(examples=["1.98 GHz"])]

_NCCL_SHARE = 0.824
"""What NCCL counts as usable of an NVLink: 20.6 of 25 GB/s (NVIDIA/nccl v2.28.9 src/graph/topo.h, SM90)."""

_MIRRORED = ("fp32", "tf32", "bf16", "fp16", "fp8", "fp4")


def architectures() -> tuple[str, ...]:
    """Architectures of the catalogue, in its order."""
    return tuple(dict.fromkeys(gpu.architecture for gpu in GPUS.records().values()))


def _relative_key(value: Any) -> Any:
    return gpu_called(value) if isinstance(value, str) else value


class OwnGpu(BaseModel):
    """A GPU that the catalogue does not have. Peaks are dense; rates of links are of a GPU, in one direction.

    It says which GPU it `extends`, or of which `architecture` it is. What it leaves out is taken from that
    GPU, or from the nearest of that architecture; predictions say so, and are wider.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, revalidate_instances="always", defer_build=True)

    name: Text = Field(default="", description="how results call it", examples=["my-gpu"])
    extends: Annotated[Text, BeforeValidator(_relative_key, json_schema_input_type=str)] | None = Field(
        default=None, description="GPU of the catalogue that it is like", examples=["L40S"]
    )
    architecture: Annotated[str, OneOf(architectures)] | None = Field(
        default=None, description="whose relatives give what is left out; default: that of `extends`"
    )
    sms: Count | None = Field(default=None, description="streaming multiprocessors, or compute units")
    clock: Clock | None = Field(
        default=None, description="boost clock, or a lower one that is set; peaks left out follow it"
    )
    fp32_flops: ComputeRate | None = Field(default=None, description="peak without tensor cores")
    tf32_flops: ComputeRate | None = Field(default=None, description="peak; default: follows bf16_flops")
    bf16_flops: ComputeRate | None = Field(
        default=None,
        description="with FP32 accumulation (GeForce: half the FP16 rate); other types follow it",
    )
    fp16_flops: ComputeRate | None = Field(default=None, description="default: that of bf16")
    fp8_flops: ComputeRate | None = Field(default=None, description="peak; default: follows bf16_flops")
    fp4_flops: ComputeRate | None = Field(default=None, description="peak; default: follows bf16_flops")
    memory: Size | None = Field(default=None, description="what a program can allocate", examples=["48 GB"])
    memory_bandwidth: Rate | None = Field(
        default=None, description="rate of its memory, as stated", examples=["864 GB/s"]
    )
    l2: Size | None = Field(default=None, description="the last cache before memory", examples=["96 MiB"])
    l2_bandwidth: Rate | None = Field(default=None, description="rate of that cache")
    shared_memory_per_sm: Size | None = Field(
        default=None, description="shared memory of one multiprocessor", examples=["100 KiB"]
    )
    nvlink: Rate | None = Field(
        default=None, description="all NVLinks (or xGMI links) of a GPU", examples=["450 GB/s"]
    )
    nvlink_domain: Count | None = Field(default=None, description="GPUs that NVLink joins; 1: PCIe alone")
    pcie: Rate | None = Field(default=None, description="its slot", examples=["31.5 GB/s"])
    peer_access: Flag | None = Field(
        default=None, description="false: messages pass through the host's memory"
    )
    power: Power | None = Field(default=None, description="its limit", examples=["350 W"])

    @field_validator("name")
    @classmethod
    def _is_new(cls, name: str) -> str:
        if name in gpu_names():
            raise ValueError(
                f"{name} is a GPU of the catalogue; give yours another name, and extends: {name}"
            )
        return name

    @model_validator(mode="after")
    def _has_a_relative(self) -> OwnGpu:
        if self.extends is None and self.architecture is None:
            raise ValueError(
                "say which GPU it extends, as in extends: L40S, or its architecture, one of "
                + ", ".join(architectures())
            )
        return self

    @property
    def called(self) -> str:
        """The name by which results call it."""
        return self.name or f"{self.extends or self.architecture} (changed)"


@dataclass(frozen=True)
class _Figure:
    """A field of the description: the attribute of ``Gpu`` that it gives, and what it decides."""

    field: str
    attribute: str
    dimension: Dimension | None
    moves: Moves


_FIGURES = (
    _Figure("sms", "sms", None, "details"),
    _Figure("clock", "boost_hz", "hertz", "details"),
    _Figure("memory", "hbm_bytes", "bytes", "capacity"),
    _Figure("memory_bandwidth", "hbm_bytes_per_s", "bytes_per_s", "memory"),
    _Figure("l2", "l2_bytes", "bytes", "details"),
    _Figure("l2_bandwidth", "l2_bytes_per_s", "bytes_per_s", "details"),
    _Figure("shared_memory_per_sm", "sram_bytes_per_sm", "bytes", "details"),
    _Figure("nvlink", "nvlink_bytes_per_s", "bytes_per_s", "node"),
    _Figure("nvlink_domain", "nvlink_domain", None, "node"),
    _Figure("pcie", "pcie_bytes_per_s", "bytes_per_s", "node"),
    _Figure("peer_access", "peer_access", None, "node"),
    _Figure("power", "tdp_w", "watts", "energy"),
)


@lru_cache(maxsize=256)
def gpu_from(own: OwnGpu) -> Gpu:
    """The GPU of a description, complete, with what it carries from its relative."""
    relative = _relative_of(own)
    values = {one.attribute: getattr(own, one.field) for one in _FIGURES}
    given = {name: value for name, value in values.items() if value is not None}
    taken = {name: getattr(relative, name) for name in values if name not in given}
    figures = given | taken
    nvlink = figures["nvlink_bytes_per_s"] if figures["nvlink_domain"] > 1 else 0.0
    counted = (
        relative.nccl_nvlink_bytes_per_s / relative.nvlink_bytes_per_s if relative.nvlink_bytes_per_s else 0
    )
    gpu = Gpu(
        name=own.called,
        vendor=relative.vendor,
        architecture=own.architecture or relative.architecture,
        peak_flops=_peaks(own, relative),
        nccl_nvlink_bytes_per_s=nvlink * (counted or _NCCL_SHARE),
        nvls=relative.nvls and figures["nvlink_domain"] >= relative.nvlink_domain,
        host=relative.host if figures["nvlink_domain"] == relative.nvlink_domain else "",
        sources=dict.fromkeys(("stated",), "the scenario") | {"carried": f"as {relative.name}"},
        profile_of=relative.name,
        carried=tuple(_carried(own, relative)),
        own=True,
        idle_w=relative.idle_w * figures["tdp_w"] / relative.tdp_w,
        joules_per_flop=relative.joules_per_flop,
        **figures | {"nvlink_bytes_per_s": nvlink},
    )
    if not same_kernels(gpu, relative):
        return gpu
    return replace(gpu, same_kernels=True, idle_w=relative.idle_w)  # that very chip, whatever its limit


def _relative_of(own: OwnGpu) -> Gpu:
    """The GPU that it extends, else that of its architecture with the nearest stated figures."""
    if own.extends is not None:
        return get_gpu(own.extends)
    known = [gpu for gpu in GPUS.records().values() if gpu.architecture == own.architecture]
    return min(known, key=lambda gpu: _distance(own, gpu))


def _distance(own: OwnGpu, gpu: Gpu) -> float:
    """How far a GPU's figures are from those that the description states, in logarithms."""
    pairs = [(getattr(own, f"{dtype}_flops"), gpu.peak_flops.get(dtype)) for dtype in _MIRRORED]
    pairs += [(getattr(own, one.field), getattr(gpu, one.attribute)) for one in _FIGURES if one.dimension]
    return math.fsum(abs(math.log(mine / its)) for mine, its in pairs if mine and its)


def _peaks(own: OwnGpu, relative: Gpu) -> dict[str, float]:
    """The stated peaks, and for other types the relative's peaks in proportion to the 16-bit one.

    If the 16-bit peak is not stated, in proportion to multiprocessors and clock.
    """
    stated = {dtype: getattr(own, f"{dtype}_flops") for dtype in _MIRRORED}
    given = {dtype: peak for dtype, peak in stated.items() if peak is not None}
    if "bf16" in given:
        given.setdefault("fp16", given["bf16"])
    by_16_bit = (given[one] / relative.peak_flops[one] for one in ("bf16", "fp16") if one in given)
    scale = next(by_16_bit, _units(own, relative))
    both = (given.get(dtype) or scale * relative.peak_flops.get(dtype, 0.0) for dtype in _MIRRORED)
    return {dtype: peak for dtype, peak in zip(_MIRRORED, both, strict=True) if peak}


def _units(own: OwnGpu, relative: Gpu) -> float:
    """Multiprocessors times clock over the relative's: what one does in a cycle is its generation's."""
    sms, clock = own.sms or relative.sms, own.clock or relative.boost_hz
    return sms / relative.sms * clock / relative.boost_hz


def _carried(own: OwnGpu, relative: Gpu) -> Iterator[CarriedFigure]:
    """Every figure that the description leaves out and a prediction reads."""
    everyone = tuple(GPUS.records().values())
    kin = [gpu for gpu in everyone if gpu.architecture == (own.architecture or relative.architecture)]

    def figure(
        field: str, value: str, moves: Moves, values: list[float], of_all: list[float]
    ) -> CarriedFigure:
        sigma = 0.0 if own.extends else spread(values, of_all)
        return CarriedFigure(field=field, value=value, relative=relative.name, moves=moves, sigma=sigma)

    domain = relative.nvlink_domain if own.nvlink_domain is None else own.nvlink_domain
    beside = "nvlink" if domain < 2 else "pcie"  # what decides no time where the other carries everything
    if own.bf16_flops is None and own.fp16_flops is None:
        peaks = [max(gpu.peak_flops.get("bf16", 0), gpu.peak_flops["fp16"]) for gpu in everyone]
        value = shown_quantity(_units(own, relative) * relative.peak_flops["fp16"], "flops_per_s")
        of_kin = [gpu.peak_flops["fp16"] for gpu in kin]
        yield figure("bf16_flops", value, "matrix", of_kin, peaks)
    for one in _FIGURES:
        if getattr(own, one.field) is not None or one.field == beside:
            continue
        value = getattr(relative, one.attribute)
        text = shown_quantity(value, one.dimension) if one.dimension else str(value)
        numbers = [[float(getattr(gpu, one.attribute)) for gpu in group] for group in (kin, everyone)]
        yield figure(one.field, text, one.moves, *numbers)
