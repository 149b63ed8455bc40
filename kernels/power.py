"""The clock that a GPU sustains under its power limit while a kernel runs.

Knows watts: what an idle GPU draws, what its tensor cores draw at a rate of FLOPs, and the limit. Does not
know how long the kernel has run; a burst shorter than the controller's reaction runs at the boost clock, and
``GpuProfile.power_limited`` says how far the limit acts.

Dynamic power is C V^2 f, and near the top of the range voltage follows frequency, so that power follows the
cube of the clock. The tensor cores are what draws it, by the width of their operands: eight-bit products at
twice the rate draw what 16-bit ones do (an H200 662 W in either, the project's table of power), so that their
gain in energy is their gain in time. Kernels that wait for HBM stay below the limit.
"""

from __future__ import annotations

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
    joules = gpu.joules_per_flop * ELEMENT_BYTES[PEAK_OF.get(dtype, dtype)] / ELEMENT_BYTES["bf16"]
    wanted_w, left_w = flops_per_s * joules, gpu.tdp_w - gpu.idle_w
    if wanted_w <= left_w:
        return 1.0
    clock: float = (left_w / wanted_w) ** (profile.power_limited / 3.0)
    return clock
