"""How finely states are told apart that are remembered: sums of times that should be equal differ by rounding."""

from __future__ import annotations

import math

TICK_S = 2.0**-45
"""Leads of hosts, arrivals and what is left of kernels are told apart to 3e-14 s: below what a clock of 100 s
resolves."""

TICK_BYTES = 2.0**-12
"""Payloads that are left are told apart to so much, which takes 1e-14 s at 25 GB/s."""


def ticks(seconds: float) -> float:
    """Seconds, to a tick."""
    return round(seconds / TICK_S) * TICK_S if 0.0 < seconds < math.inf else seconds


def byte_ticks(payload: float) -> float:
    """Payload bytes, to a tick."""
    return round(payload / TICK_BYTES) * TICK_BYTES
