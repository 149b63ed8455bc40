"""A communication in progress."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..network.sharing import Demand, Link
from .signal import Done


@dataclass(slots=True)
class Flow:
    """``left``: payload bytes at ``since``, from when on they move at ``rate``."""

    demand: Demand
    left: float
    done: Done
    value: Any
    since: float
    rate: float = 0.0
    version: int = 0
    bound: Link | None = None  # what holds it below its ceiling
    held: Link | None = None  # the same where several do, as of the latest solution

    @property
    def ends(self) -> float:
        """When it ends at its present rate."""
        return self.since + self.left / self.rate if self.rate else math.inf
