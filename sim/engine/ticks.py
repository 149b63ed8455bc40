"""How finely states that are remembered are told apart: times that should be equal differ by rounding."""

from __future__ import annotations

import math

TICK_S = 2.0**-45
"""Leads of hosts, arrivals and what is left of an op are told apart to 3e-14 s: below what a clock of 100 s
resolves."""


def ticks(seconds: float) -> float:
    """``seconds``, rounded to a whole number of TICK_S; as they are where they are not above 0, or
    infinite."""
    return round(seconds / TICK_S) * TICK_S if 0.0 < seconds < math.inf else seconds


def payload_ticks(payload: float, bytes_per_s: float) -> float:
    """Payload bytes that move at most at ``bytes_per_s``, rounded to whole numbers of what moves in
    TICK_S."""
    return ticks(payload / bytes_per_s) * bytes_per_s if bytes_per_s < math.inf else payload
