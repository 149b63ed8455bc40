"""How likely the errors of measured steps are, where each has a standard deviation below and one above.

Errors of runs have heavy tails, so they are of Student's t with four degrees of freedom; and waits only
lengthen a step, so the piece above the prediction has a scale of its own (a two-piece distribution with one
mode). A standard deviation is stated as that of a normal distribution which holds nine in ten within as much.
Knows errors and variances; does not know what the variances are made of.

Sources: Lange, Little and Taylor 1989, J. Am. Stat. Assoc. 84 (errors of Student's t); Wallis 2014,
Statistical Science 29 (two pieces with one mode).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ....sim.evidence.own_steps import FREEDOM
from ..growth import NORMAL_NINTH

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOOSENESS = math.log(2.0)
"""Standard deviation of the prior of every term, in logarithms: a factor of two either way, worth one family.
With three, the one step of 262,144 tokens would make every doubling of the sequence 21 % by itself."""

_SCALE = NORMAL_NINTH / 2.1318
"""The scale at which Student's t holds nine in ten within as much as a normal distribution does."""


def _scores(
    errors: NDArray[np.float64], below: NDArray[np.float64], above: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Squared errors over the variance of their side: ``above`` is that of steps longer than predicted."""
    found: NDArray[np.float64] = errors**2 / (_SCALE**2 * np.where(errors > 0, above, below))
    return found


def unlikely(
    errors: NDArray[np.float64], below: NDArray[np.float64], above: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Minus the logarithm of the likelihood of each error, but for a constant, by the variances of both
    pieces."""
    tails = (FREEDOM + 1) / 2 * np.log1p(_scores(errors, below, above) / FREEDOM)
    found: NDArray[np.float64] = np.log(np.sqrt(below) + np.sqrt(above)) + tails
    return found


def slope(
    errors: NDArray[np.float64], below: NDArray[np.float64], above: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The gradient of ``unlikely`` in both variances."""
    late = errors > 0
    found = _scores(errors, below, above)
    both = np.sqrt(below) + np.sqrt(above)
    tails = -(FREEDOM + 1) / 2 * found / (FREEDOM + found) / np.where(late, above, below)
    of_below = 0.5 / (both * np.sqrt(below)) + np.where(late, 0.0, tails)
    of_above = 0.5 / (both * np.sqrt(above)) + np.where(late, tails, 0.0)
    return of_below, of_above
