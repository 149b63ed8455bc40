"""The clock that a GPU sustains under its power limit while a kernel runs, and what it draws meanwhile.

Knows watts: what an idle GPU draws, what its tensor cores draw at a rate of FLOPs, and the limit. Does not
know how long the kernel has run; a burst shorter than the controller's reaction runs at the boost clock, and
``GpuProfile.power_limited`` says how far the limit acts.

Dynamic power is C V^2 f, and near the top of the range voltage follows frequency, so that power follows the
cube of the clock. The tensor cores are what draws it, a FLOP by the width of its operands: eight-bit GEMMs
at twice the rate draw what 16-bit ones do (an H200 662 W in either, the project's table of power), and
four-bit ones, Blackwell Ultra's included, by a quarter (docs/decisions/0158-four-bit-products-by-cublas.md).
What a FLOP takes is each type's own, of boards that were timed long enough: those of Blackwell with higher
limits showed less (docs/decisions/0193-watts-of-each-blackwell.md).
Kernels that wait for HBM stay below the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ..hardware.gpu import PEAK_OF, Gpu
from ..hardware.profile import GpuProfile
from .kernel import ELEMENT_BYTES


def sustained_clock(flops_per_s: float, dtype: str, gpu: Gpu, profile: GpuProfile) -> float:
    """Fraction of the boost clock at which tensor cores that would reach ``flops_per_s`` at that clock draw
    no more than the power limit leaves them; 1 where nobody measured their energy.

    >>> from ..hardware.calibrated.overlay import load_profile
    >>> from ..hardware.gpus import get_gpu
    >>> gpu, profile = get_gpu("H100-SXM5-80GB"), load_profile("H100-SXM5-80GB")
    >>> [round(sustained_clock(rate, "bf16", gpu, profile), 2) for rate in (3e14, 6e14, 9e14)]
    [1.0, 0.92, 0.81]
    """
    if gpu.joules_per_flop is None:
        return 1.0
    wanted_w, left_w = flops_per_s * joules_per_flop(dtype, gpu), gpu.tdp_w - gpu.idle_w
    if wanted_w <= left_w:
        return 1.0
    clock: float = (left_w / wanted_w) ** (profile.power_limited / 3.0)
    return clock


Activity = Literal["tensor", "memory", "communication", "waiting"]
"""What a GPU does: GEMMs, kernels bound by its memory, messages alone, nothing."""

DRAWN: Mapping[Activity, float] = {"tensor": 0.95, "memory": 0.65, "communication": 0.40, "waiting": 0.05}
"""Of what lies between idle and the limit, by what a GPU does. Tensor: diffusion models on one H100 draw
94 to 97 % of the limit (ml.energy leaderboard, 2026-02). Memory: an L40 streams at 199 of 300 W. Messages
alone: the same diffusion models on 8 GPUs that wait for their links, 55 to 60 % of the limit in all. Each is
read off other loads than training, which is why an energy is stated with an interval."""

_TENSOR_OF = {"blackwell": 0.82}
"""Architectures that stay further below their limit: 80 to 84 % on B200 (the same leaderboard)."""

_IDLE_SHARE = 0.15
"""Share of its limit that an idle GPU is taken to draw where nobody measured it: 10 % (H100) to 17 %
(GB200)."""


def drawn_w(activity: Activity, gpu: Gpu, *, flops_per_s: float = 0.0, dtype: str = "bf16") -> float:
    """Watts of ``gpu`` while it does ``activity``; of GEMMs by their rate, where it is known
    what a FLOP of this GPU takes.

    >>> from ..hardware.gpus import get_gpu
    >>> gpu = get_gpu("H100-SXM5-80GB")
    >>> [round(drawn_w("tensor", gpu, flops_per_s=rate)) for rate in (1e14, 3e14, 6e14)]
    [496, 496, 671]
    >>> [round(drawn_w(activity, gpu)) for activity in ("memory", "communication", "waiting")]
    [496, 350, 146]
    """
    idle_w = gpu.idle_w or _IDLE_SHARE * gpu.tdp_w
    left_w = gpu.tdp_w - idle_w
    if activity != "tensor":
        return idle_w + DRAWN[activity] * left_w
    most_w = idle_w + _TENSOR_OF.get(gpu.architecture, DRAWN["tensor"]) * left_w
    if gpu.joules_per_flop is None:
        return most_w
    # GEMMs that are slow for their size wait for memory, and draw what kernels do that wait for it.
    least_w = min(most_w, idle_w + DRAWN["memory"] * left_w)
    return min(most_w, max(least_w, idle_w + flops_per_s * joules_per_flop(dtype, gpu)))


def joules_per_flop(dtype: str, gpu: Gpu) -> float:
    """Joules of a FLOP at the boost clock, by the width of its operands.

    >>> from ..hardware.gpus import get_gpu
    >>> gpu = get_gpu("GB300-NVL72")
    >>> [round(1e12 * joules_per_flop(dtype, gpu), 2) for dtype in ("bf16", "fp8", "nvfp4")]
    [0.9, 0.45, 0.23]
    """
    assert gpu.joules_per_flop is not None
    return gpu.draws * gpu.joules_per_flop * ELEMENT_BYTES[PEAK_OF.get(dtype, dtype)] / ELEMENT_BYTES["bf16"]
