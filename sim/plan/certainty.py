"""How sure a planner may be: whether a layout fits, by how far predictions of memory have been off.

Knows residuals; does not know layouts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..scenario.models import Scenario

MEMORY_SIGMA = 0.040 / 0.6745
"""Of the logarithm of measured over predicted peak memory: the median absolute error of all measured runs of
high and medium trust (docs/accuracy.md) over that of a normal distribution of sigma 1."""


def fit_probability(
    scenario: Scenario, peak_bytes: NDArray[np.float64], capacity_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The probability that each peak as predicted is at most the capacity when the job runs."""
    from scipy.special import ndtr

    room = np.log(capacity_bytes / np.maximum(peak_bytes, 1.0))
    return np.asarray(ndtr(room / MEMORY_SIGMA), dtype=np.float64)
