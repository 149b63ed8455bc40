"""Exact expectations that campaigns are held against, and the optimal interval. Pure formulas, times in any
unit.

Notation of docs/faults.md: M mean time between interruptions while exposed, tau compute between checkpoints,
C the blocking checkpoint, D downtime without exposure, R restore, L = tau + C.
"""

from __future__ import annotations

import math


def ettr_blocking(*, tau: float, c: float, m: float, d: float, r: float, exposed: bool) -> float:
    """ETTR with blocking checkpoints and exponential failures; ``exposed``: also while restoring.

    >>> round(ettr_blocking(tau=15, c=1/3, m=167, d=2, r=8, exposed=False), 5)
    0.88127
    """
    k = math.expm1((tau + c) / m)
    return tau / ((math.exp(r / m) * (m + d) if exposed else m + d + r) * k)


def ettr_async(*, tau: float, s: float, p: float, m: float, d: float, r: float) -> float:
    """ETTR with asynchronous checkpoints: a stall ``s``, durable ``p`` later, p at most tau + s.

    >>> round(ettr_async(tau=30, s=0.1, p=3, m=167, d=2, r=5), 5)
    0.85742
    """
    return tau / (math.exp(p / m) * (m + d + r) * math.expm1((tau + s) / m))


def waterfall(*, tau: float, c: float, m: float, d: float, r: float) -> dict[str, float]:
    """Time per segment by category, restore exposed, and the number of failures."""
    length = tau + c
    k, g = math.expm1(length / m), math.exp(r / m)
    return {
        "useful": tau,
        "checkpoint": c,
        "recompute": k * m - length,
        "detection": d * k * g,
        "restart": r * k,
        "failed_restart": k * (m * (g - 1) - r),
        "failures": k * g,
    }


def segment_variance(*, tau: float, c: float, m: float, d: float, r: float) -> float:
    """Variance of the time of a segment, restore not exposed."""
    length = tau + c
    p, k = -math.expm1(-length / m), math.expm1(length / m)
    mean = m - length / k
    square = 2 * m * m - (length * length + 2 * m * length) / k
    return k * (square - mean * mean) + p / (1 - p) ** 2 * (mean + d + r) ** 2


def erlang_b(servers: int, load: float) -> float:
    """Share of arrivals that find all ``servers`` busy; blocked share of a job is ``erlang_b(spares + 1, N
    lam T)``.

    >>> round(erlang_b(9, 7.76), 3)
    0.161
    """
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = load * blocked / (number + load * blocked)
    return blocked


def optimal_interval(c: float, m: float) -> float:
    """The interval that costs least: tau / M = 1 - exp(-(tau + C) / M), by Newton's way (Lambert's W in
    closed form).

    Independent of downtime and restore; with asynchronous checkpoints C is the snapshot's stall.

    >>> [round(optimal_interval(5, m), 2) for m in (1440, 360, 15)]
    [116.69, 56.71, 9.17]
    """
    if c <= 0:
        return 0.0
    x = min(1.0, math.sqrt(2 * c / m))
    for _ in range(100):
        fading = math.exp(-x - c / m)
        step = (x - 1 + fading) / (1 - fading)
        x -= step
        if abs(step) < 1e-14 * x:
            break
    return m * x


def slow_episodes(rho: float, factor: float) -> float:
    """Throughput when episodes of ``factor`` come and go, ``rho`` of them at a time on average."""
    return math.exp(-rho) - math.expm1(-rho) / factor


def peer_survival(nodes: int, group: int, lost: int) -> float:
    """Chance that groups of ``group`` hosts survive ``lost`` simultaneous losses; exact for lost < 2 group.

    >>> round(peer_survival(16, 2, 2), 3), round(peer_survival(16, 2, 3), 3)
    (0.933, 0.8)
    """
    if lost < group:
        return 1.0
    return 1 - nodes // group * math.comb(nodes - group, lost - group) / math.comb(nodes, lost)


def meta_ettr(*, nodes: int, daily: float, u0: float, dt: float, w: float) -> float:
    """Meta's expected ETTR (arXiv:2410.21680), first order in losses; times in days."""
    return (1 - nodes * daily * (u0 + dt / 2)) / (1 + w / dt)
