"""What a step takes longer by where GPUs of one type differ, since all of them wait for the slowest.

A prediction takes all GPUs to be as fast as its profile. How much those of a cluster differ nobody knows
before it has run: the medians of ranks that do the same by 0.2 to 0.5 % in two logs of ByteDance (traces of
Lin et al. 2025, arXiv:2505.05713), whole applications by 1.48 % on five supercomputers
(scenario/variation.yaml). So the larger of these is a doubt that only lengthens, and no part of the
prediction. Fits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..result.step import IntervalPart
from ..scenario.variation import presets

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan

SLOWEST = "slowest"
"""The kind of its cause."""

_SPREAD = "sinha-2022"
"""The spread of GPUs in scenario/variation.yaml that is taken. It was measured on whole applications, so it
counts for the whole step."""


def slowest_of_many(plan: StepPlan) -> Iterator[IntervalPart]:
    """The part by which the slowest of all GPUs may hold up the step; none where the scenario says how GPUs
    differ, since it is replayed then."""
    gpus, varies = plan.cluster.gpus, plan.scenario.cluster.variation
    if gpus > 1 and (varies is None or varies.gpu_speed is None):
        spread = presets()[_SPREAD]
        yield IntervalPart(
            name="the slowest of all GPUs",
            share=1.0,
            sigma=spread["law"]["normal"]["cv"] * expected_largest(gpus),
            source=spread["source"],
            kind=SLOWEST,
        )


def expected_largest(count: int) -> float:
    """About the mean of the largest of ``count`` standard normal values (Blom 1958, Statistical Estimates and
    Transformed Beta-Variables).

    >>> [round(expected_largest(count), 2) for count in (1, 8, 512)]
    [0.0, 1.43, 3.03]
    """
    from statistics import NormalDist

    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
