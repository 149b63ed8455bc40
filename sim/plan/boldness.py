"""Whether a layout that may not fit is worth trying before one that is known to.

A job that does not fit ends within its first steps, and starts again in another layout: minutes, where a
faster layout saves a share of weeks. So what counts is the pace that a job can be expected to have: that of
the bold layout with the probability that it fits, else that of the layout behind it. The rule is as good as
fit probabilities are calibrated; what choices lose hardly hangs on its two limits
(docs/decisions/0054-bold-choices.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_BOLD = 0.1
"""Fit probability from which on a layout is tried: nine of ten starts in vain are no plan, and smaller
probabilities are not known well (docs/accuracy.md, fit probabilities)."""

WORTH = 0.01
"""Share of the expected pace that a try has to promise beyond the layout behind it."""


def tried_first(value: float, fits: float, behind: float) -> float:
    """What a job costs for each step, by the pace to be expected, that tries a layout of this ``value`` which
    ``fits`` with a probability, and falls back on one that costs ``behind``; inf where there is none.

    >>> tried_first(1.0, 0.5, 2.0), tried_first(1.0, 0.5, float("inf")), tried_first(2.0, 0.9, 2.0)
    (1.3333333333333333, 2.0, 2.0)
    """
    return 1.0 / (fits / value + (1.0 - fits) / behind)


def is_bold(fits: NDArray[np.float64], wanted: float) -> NDArray[np.bool_]:
    """Which layouts are less likely to fit than ``wanted``, but may be tried."""
    return (fits >= LEAST_BOLD) & (fits < wanted)


def promised(tried: float, behind: float) -> float:
    """By which share the expected pace is higher with the try; inf where there is no layout to fall back
    on."""
    return behind / tried - 1.0


def worth_a_try(tried: float, behind: float) -> bool:
    """Whether a try of a bold layout promises enough: ``tried`` is what a job costs that begins with it,
    ``behind`` what it costs without."""
    return promised(tried, behind) >= WORTH
