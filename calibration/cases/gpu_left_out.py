"""A measured GPU as one that nobody has measured: its datasheet is its own, its kernels are those of its kin.

Knows which GPUs are one chip and which chip is nearest. Nothing that ran on a chip says anything then of any
GPU that carries it: neither its kernels nor the clock that its steps show. Curves of collectives stay, which
are fitted on logs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...hardware.calibrated.overlay import load_profile, profile_carried_to, profile_names
from ...hardware.gpus import get_gpu
from ...sim.scenario.refusal import NotSupported

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...hardware.profile import GpuProfile


def profile_left_out(name: str) -> GpuProfile:
    """The profile that GPU ``name`` would have, had nobody measured its chip.

    Raises:
        NotSupported: no other chip of that vendor is measured.
    """
    gpu = get_gpu(name)
    return profile_carried_to(replace(gpu, profile_of=kin_of(gpu).name))


def kin_of(gpu: Gpu) -> Gpu:
    """The nearest measured GPU of another chip: of the same architecture, or else with NVLink or without as
    this one, and then by peak and bandwidth.

    >>> kin_of(get_gpu("H100-SXM5-80GB")).name, kin_of(get_gpu("B200-SXM-180GB")).name
    ('A100-SXM4-80GB', 'B300-SXM')
    """
    others = [
        other
        for other in map(get_gpu, profile_names())
        if other.vendor == gpu.vendor and _chip(other) != _chip(gpu) and _is_measured(other)
    ]
    if not others:
        raise NotSupported("cluster.gpu", f"no other chip of {gpu.vendor} is measured")
    joined = gpu.nvlink_domain > 1
    return min(
        others,
        key=lambda other: (
            other.architecture != gpu.architecture,
            (other.nvlink_domain > 1) != joined,
            _distance(gpu, other),
        ),
    )


def _chip(gpu: Gpu) -> tuple[str, int, int]:
    """GPUs of one chip have one architecture and one ratio of narrow to 16-bit math."""
    narrow, wide = (
        round(gpu.peak_flops.get(dtype, 0.0) / gpu.peak_flops["bf16"]) for dtype in ("fp4", "fp8")
    )
    return gpu.architecture, narrow, wide


def _is_measured(gpu: Gpu) -> bool:
    rates = {rate.dtype: rate for rate in load_profile(gpu.name).gemm.rates}
    return "bf16" in rates and not rates["bf16"].provenance.carried


def _distance(gpu: Gpu, other: Gpu) -> float:
    """Distance of two GPUs in the logarithms of their 16-bit peak and memory bandwidth."""
    peak = math.log(gpu.peak_flops["bf16"] / other.peak_flops["bf16"])
    return abs(peak) + abs(math.log(gpu.hbm_bytes_per_s / other.hbm_bytes_per_s))
