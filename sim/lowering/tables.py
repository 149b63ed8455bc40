"""What layouts of one search have in common, computed once: an object that is passed in, never a global."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...schedules.orders.action import Orders
    from ...schedules.p2p.point_to_point import Instruction


@dataclass(kw_only=True)
class Tables:
    """Orders and instructions of pipelines by what they follow from. ``kernels`` are seconds by GPU and kernel."""

    _orders: dict[Hashable, Orders] = field(default_factory=dict)
    _instructions: dict[Hashable, tuple[tuple[Instruction, ...], ...]] = field(default_factory=dict)
