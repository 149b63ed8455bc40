"""How many standard deviations hold nine in ten runs, where no prediction is surer than repeated runs agree.

A standard deviation is itself an estimate, and the smallest of many estimates are too small. So the noise of
a run is added to each of them before they are counted: the stabiliser of a normalised score (Papadopoulos,
Gammerman and Vovk 2008, Normalized nonconformity measures for regression with conformal prediction).
"""

from __future__ import annotations

NOISE = 0.025
"""Noise of a run, as a standard deviation of the logarithm of its step time. Runs of one configuration differ
by 1.8 % (docs/accuracy.md), runs of one kind by 2.8 % (``SourceSpread.run``)."""


def deviations_that_hold(quantile: float, sigma: float) -> float:
    """How many standard deviations ``sigma`` reach as far as ``quantile`` times the sum of ``sigma`` and
    NOISE.

    >>> [round(deviations_that_hold(1.4, sigma), 6) for sigma in (0.05, 0.1)]
    [2.1, 1.75]
    """
    return quantile * (1.0 + NOISE / sigma) if sigma > 0 else quantile
