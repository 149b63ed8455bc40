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

    ``group`` is Megatron's microbatch group size per virtual stage (None: ranks). Raises ValueError
    when one of them is not positive.
    """

    ranks: int
    microbatches: int
    chunks: int = 1
    group: int | None = None

    def __post_init__(self) -> None:
        for name in ("ranks", "microbatches", "chunks", "group"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"a pipeline needs {name} of at least 1, not {value}")

    @property
    def stages(self) -> int:
        """Virtual stages S = p·v."""
        return self.ranks * self.chunks


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A named schedule.

    ``orders(shape)`` gives each rank's actions, and refuses the shapes that ``check(shape)`` refuses:
    with a ValueError saying which would do. ``rank_of(stage, shape)`` places the stages.
    ``in_flight(rank, shape)`` is the largest number of chunk activations that a rank ever holds.
    """

    name: str
    title: str
    orders: Callable[[Shape], Orders]
    check: Callable[[Shape], None]
    rank_of: Callable[[int, Shape], int]
    in_flight: Callable[[int, Shape], int]


def loop_placement(stage: int, shape: Shape) -> int:
    """Stage s sits on rank s mod p."""
    return stage % shape.ranks


def one_chunk(name: str) -> Callable[[Shape], None]:
    """The check of a schedule whose ranks hold one stage each."""

    def check(shape: Shape) -> None:
        if shape.chunks != 1:
            raise ValueError(
                f"{name} has one chunk per rank, not {shape.chunks}; "
                "use chunks=1, or another schedule, such as interleaved"
            )
        if shape.group is not None:
            raise ValueError(
                f"{name} does not group its microbatches, so group={shape.group} means nothing; leave it out"
            )

    return check
