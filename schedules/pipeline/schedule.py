"""What every pipeline schedule is: a pure function from a shape to each rank's order.

One file per schedule beside this one; each ends in ``SCHEDULE = Schedule(...)`` and is found by
its name (``schedules.pipeline.get("1f1b")``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .action import Orders


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a schedule is asked for: ``ranks`` p, ``microbatches`` m, ``chunks`` v per rank.

    ``group`` is Megatron's microbatch group size per virtual stage (None: ranks).
    """

    ranks: int
    microbatches: int
    chunks: int = 1
    group: int | None = None

    @property
    def stages(self) -> int:
        return self.ranks * self.chunks


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A named schedule.

    ``orders(shape)`` gives each rank's actions; ``check(shape)`` raises ValueError, saying which
    shapes would do; ``rank_of(stage, shape)`` places the stages.
    """

    name: str
    title: str
    orders: Callable[[Shape], Orders]
    check: Callable[[Shape], None]
    rank_of: Callable[[int, Shape], int]


def loop_placement(stage: int, shape: Shape) -> int:
    """Stage s sits on rank s mod p."""
    return stage % shape.ranks
