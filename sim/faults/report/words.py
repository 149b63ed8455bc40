"""How durations of minutes to months are written."""

from __future__ import annotations

import math


def lasting(seconds: float) -> str:
    """Three digits with the unit that suits.

    >>> lasting(0.007), lasting(42), lasting(600), lasting(9000), lasting(54 * 86400), lasting(float("inf"))
    ('7 ms', '42.0 s', '10.0 min', '2.50 h', '54.0 d', 'never')
    """
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if abs(seconds) >= size:
            value = seconds / size
            return f"{value:,.{max(0, 2 - int(math.log10(abs(value))))}f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 1 or seconds == 0 else f"{seconds * 1e3:.3g} ms"
