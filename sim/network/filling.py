"""Progressive filling over arrays: the rates of sharing.py where many activities share links.

One round per level at which a link or a ceiling binds, each linear in the pairs of activity and link. Up
to some sixty activities plain Python is faster, so sharing.py chooses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLACK = 1 + 1e-12
"""Levels that are equal but for rounding bind together."""


def fill(
    ceiling: NDArray[np.float64],
    activity: NDArray[np.int64],
    link: NDArray[np.int64],
    weight: NDArray[np.float64],
    capacity: NDArray[np.float64],
    heaviest: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Payload rates of activities, max-min fair in rate times ``heaviest``.

    ``ceiling`` by activity; ``activity``, ``link`` and ``weight`` (bytes per payload byte) of each pair;
    ``capacity`` (bytes per second) by link; ``heaviest`` is what fairness counts, by activity.
    """
    bound = ceiling * heaviest  # the level at which an activity's own ceiling binds
    rates, left, open_ = np.zeros(len(ceiling)), capacity.astype(float), np.ones(len(ceiling), dtype=bool)
    while open_.any():
        used = open_[activity]
        load = np.bincount(link[used], (weight / heaviest[activity])[used], minlength=len(left))
        with np.errstate(divide="ignore", invalid="ignore"):
            full = np.where(load > 0, left / load, np.inf)
        level = min(full.min(initial=np.inf), bound[open_].min())
        frozen = open_ & (bound <= level * SLACK)
        frozen[activity[used & (full[link] <= level * SLACK)]] = True
        rates[frozen] = np.minimum(level / heaviest[frozen], ceiling[frozen])
        spent = frozen[activity]
        left -= np.bincount(link[spent], (weight * rates[activity])[spent], minlength=len(left))
        left = np.maximum(left, 0.0)
        open_ &= ~frozen
    return rates
