"""How long a kernel takes whose math and memory traffic overlap in part: the power mean of both times.

Knows seconds alone: of one kernel, or of many in an array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Seconds = TypeVar("Seconds", float, "NDArray[np.float64]")


def blended_s(math_s: Seconds, memory_s: Seconds, exponent: float) -> Seconds:
    """Seconds of a kernel: (math^p + memory^p)^(1/p), where ``exponent`` p is 1 if one follows the other,
    and large if they overlap perfectly. ``math_s`` must not be 0.

    >>> round(blended_s(3.0, 4.0, 1.0), 9), round(blended_s(3.0, 4.0, 2.0), 9)
    (7.0, 5.0)
    """
    joined_s: Seconds = math_s * (1.0 + (memory_s / math_s) ** exponent) ** (1.0 / exponent)
    return joined_s
