"""What is at work at a moment of a block that runs alone: a flow that moves, a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..network.sharing import Demand, Link


@dataclass(slots=True)
class RunningFlow:
    """A flow that moves at ``rate``: ``left`` bytes at time ``since``; ``held`` is the link that slows it."""

    demand: Demand
    left: float
    rates: list[tuple[float, float]]
    since: float = 0.0
    rate: float = 0.0
    held: Link | None = None


@dataclass(slots=True)
class RunningKernel:
    """The kernel at work, if any (op ``i``, the last of its ``row``; else -1), with its seconds ``left`` at
    full speed.
    """

    row: list[int]
    i: int = -1
    left: float = 0.0
    ends: float = math.inf
