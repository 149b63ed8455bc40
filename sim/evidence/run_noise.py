"""How many standard deviations hold nine in ten, of which none is better known than runs of one configuration
agree.

A standard deviation is itself an estimate, and of many the smallest are too small. So all of them have the
noise of a run added before they are counted, which is the stabiliser of a normalised score (Papadopoulos,
Gammerman and Vovk 2008, Normalized nonconformity measures for regression with conformal prediction).
"""

from __future__ import annotations

NOISE = 0.025
"""Runs of one configuration differ by a standard deviation of 1.8 % (docs/accuracy.md), runs of a kind by
2.8 % (``SourceSpread.run``)."""


def deviations_that_hold(quantile: float, sigma: float) -> float:
    """How many of so large standard deviations reach as far as ``quantile`` of the sum of one and NOISE.

    >>> [round(deviations_that_hold(1.4, sigma), 6) for sigma in (0.05, 0.1)]
    [2.1, 1.75]
    """
    return quantile * (1.0 + NOISE / sigma) if sigma > 0 else quantile
