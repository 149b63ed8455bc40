"""Figures of a machine that its description leaves out: from which relative each comes, and how wide it may
be off."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Moves = Literal["matrix", "memory", "node", "network", "details", "capacity", "energy"]
"""What a figure decides: GEMMs and attention, kernels bound by memory, communication inside a host,
communication between hosts, details of kernels that move little, or no time at all."""

_FEWEST = 3
"""Relatives from which their spread is taken; of fewer, that of the whole catalogue is."""


@dataclass(frozen=True, kw_only=True)
class CarriedFigure:
    """``field`` of a description, whose value is that of ``relative``.

    ``sigma`` is the standard deviation of its natural logarithm among relatives; 0 where the description
    itself says that it is as the relative's (``extends``).
    """

    field: str
    value: str
    relative: str
    moves: Moves
    sigma: float


def spread(values: Iterable[float], of_all: Iterable[float]) -> float:
    """The standard deviation of the natural logarithm of ``values``; of ``of_all`` where they are too few.

    >>> round(spread([1.0, 2.0, 4.0], []), 3)
    0.566
    """
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < _FEWEST:
        logs = [math.log(value) for value in of_all if value > 0]
    mean = math.fsum(logs) / len(logs)
    return round(math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / len(logs)), 3)
