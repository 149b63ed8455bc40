"""How figures are written for people: times, bytes, shares, counts.

Knows no result and no table; every view writes its numbers through here, so that they look alike.
"""

from __future__ import annotations

import math

from ..hardware.quantities import DAY_S, HOUR_S

GB = 1e9
TIMES = "\N{MULTIPLICATION SIGN}"


def seconds(value_s: float) -> str:
    """Three to four digits with the unit that suits.

    >>> seconds(5.2314), seconds(0.01234), seconds(4.2e-6), seconds(0.0)
    ('5.231 s', '12.34 ms', '4.20 us', '0 s')
    """
    size = abs(value_s)
    if size == 0:
        return "0 s"
    if size >= 100:
        return f"{value_s:,.1f} s"
    if size >= 1:
        return f"{value_s:.3f} s"
    if size >= 1e-3:
        return f"{value_s * 1e3:.{2 if size < 0.1 else 1}f} ms"
    return f"{value_s * 1e6:.2f} us"


def gigabytes(value_bytes: float) -> str:
    """Decimal gigabytes, one decimal.

    >>> gigabytes(61_234_000_000.0)
    '61.2 GB'
    """
    return f"{value_bytes / GB:,.1f} GB"


def percent(share: float, digits: int = 1) -> str:
    """A fraction as a percentage.

    >>> percent(0.4123)
    '41.2 %'
    """
    return f"{share * 100:.{digits}f} %"


def chance(probability: float) -> str:
    """A probability in hundredths, rounded down: one just short of what was asked for does not reach it.

    >>> chance(0.8979), chance(0.9), chance(1.0)
    ('0.89', '0.90', '1.00')
    """
    return f"{math.floor(100 * probability + 1e-9) / 100:.2f}"


def finite(value: float) -> float | None:
    """``value`` as JSON can have it: None for nan and infinity, as of a step that never ends."""
    return float(value) if math.isfinite(value) else None


def significant(value: float) -> float:
    """``value`` rounded to three significant digits, as fitted constants are written.

    >>> significant(0.012345)
    0.0123
    """
    return float(f"{value:.3g}")


def signed_percent(share: float) -> str:
    """A difference as a percentage with its sign.

    >>> signed_percent(0.0213), signed_percent(-0.0004)
    ('+2.1 %', '-0.0 %')
    """
    return f"{share * 100:+.1f} %"


def count(value: float) -> str:
    """A whole number with thousands apart.

    >>> count(16384)
    '16,384'
    """
    return f"{value:,.0f}"


def large(value: float) -> str:
    """A count in thousands, millions, billions or trillions.

    >>> large(24_310_000), large(15.6e12), large(812)
    ('24.3 million', '15.6 trillion', '812')
    """
    for size, word in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if abs(value) >= size:
            return f"{value / size:,.1f} {word}"
    return f"{value:,.0f}"


def lasting(seconds: float) -> str:
    """Three digits with the unit that suits.

    >>> lasting(0.007), lasting(42), lasting(600), lasting(9000), lasting(54 * 86400), lasting(float("inf"))
    ('7 ms', '42.0 s', '10.0 min', '2.50 h', '54.0 d', 'never')
    """
    if math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    for unit, size in (("d", DAY_S), ("h", HOUR_S), ("min", 60.0)):
        if abs(seconds) >= size:
            value = seconds / size
            return f"{value:,.{max(0, 2 - int(math.log10(abs(value))))}f} {unit}"
    return f"{seconds:.1f} s" if abs(seconds) >= 1 or seconds == 0 else f"{seconds * 1e3:.3g} ms"
