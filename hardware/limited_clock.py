"""The sustained clock of a GPU at another power limit than the one at which its steps were measured.

Knows watts above idle alone; what kernels draw is ``kernels/power.py``'s.

A step's clock is a fraction of the clock that GEMMs alone reach under the limit. The missing watts are drawn
by parts that do not follow the clock of the multiprocessors: memory, links, leakage. Under a lower limit the
same watts are a larger part. Where it was measured, they are at most the power of a GPU that only reads its
memory (``MEMORY_BUSY_W``); the rest of the fraction does not depend on power, and stays. The clock never
falls faster than the remaining watts: below a transition the voltage stays, and power is linear in the clock
(A100: 0.57 of the top clock, AyeshaAfzal91/PerfPerTCO, Inputs/DVFS_PARAMS.js at 52b7d69d, arXiv:2607.00819;
RTX 4000 Ada: 0.90, tanish111/Adaptive-GPU-Power-Capping,
Dataset/results_powertest_single_0.csv at 1f38e622, HPDC 2025).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .gpu import Gpu

MEMORY_BUSY_W = {"hopper": 300.0}
"""The most that a GPU was seen to draw whose memory is saturated while its tensor cores wait, by
architecture: an H200 that decodes, 137 to 300 W with four kinds of attention (arXiv:2605.11999, abstract).
It has the fastest memory of its architecture, and runs its multiprocessors beside."""


def clock_carried(fraction: float, measured: Gpu, gpu: Gpu) -> float:
    """What the steps of ``gpu`` sustain of the clock that its limit leaves GEMMs, where those of
    ``measured`` sustain ``fraction``; the same where they are not one chip, or nobody knows what it draws.

    >>> from .gpus import get_gpu
    >>> h100, capped = get_gpu("H100-SXM5-80GB"), get_gpu("H100-SXM-HBM2e-96GB-500W")
    >>> round(clock_carried(0.86, h100, capped), 3), clock_carried(0.86, h100, get_gpu("A100-SXM4-80GB"))
    (0.785, 0.86)
    """
    if not _one_chip(measured, gpu):
        return fraction
    left_w = measured.tdp_w - measured.idle_w
    busy_w = MEMORY_BUSY_W.get(measured.architecture)
    most = 1.0 if busy_w is None else max(0.0, busy_w - measured.idle_w) / left_w
    return clock_at(fraction, (gpu.tdp_w - gpu.idle_w) / left_w, most)


def clock_at(fraction: float, share: float, most: float = 1.0) -> float:
    """The ``fraction`` of the clock of GEMMs alone, at a ``share`` of the watts above idle, where at most
    ``most`` of those watts do not follow the clock.

    >>> [round(clock_at(0.86, share), 3) for share in (1.0, 0.8, 0.6, 0.4, 0.2)]
    [0.86, 0.817, 0.733, 0.564, 0.355]
    >>> [round(clock_at(0.86, share, 0.2), 3) for share in (1.0, 0.8, 0.6, 0.4, 0.2)]
    [0.86, 0.842, 0.809, 0.735, 0.49]
    >>> [clock_at(1.0, share) for share in (1.0, 0.5)]
    [1.0, 1.0]
    """
    other = min(1.0 - fraction**3, most)
    at_all = (1.0 - other) ** (1.0 / 3.0)
    # Where the cube root of what is left falls as fast as the watts: a tangent from there on.
    transition = min(1.0, 1.5 * other)
    clock: float = (max(share, transition) - other) ** (1.0 / 3.0)
    if share < transition:
        clock *= share / transition
    clock = min(clock, at_all * share) if share > 1.0 else clock  # nor does it rise faster
    kept: float = fraction / at_all * clock / share ** (1.0 / 3.0)
    return kept


def _one_chip(measured: Gpu, gpu: Gpu) -> bool:
    return (
        measured.joules_per_flop is not None
        and measured.joules_per_flop == gpu.joules_per_flop
        and measured.peak_flops.get("bf16") == gpu.peak_flops.get("bf16")
    )
