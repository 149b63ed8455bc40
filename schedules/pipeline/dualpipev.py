"""DualPipeV: DualPipe cut in half, each rank holding two stages of a V in place of two copies.

Sources: Sea AI Lab 2025, "Cut-in-half" (DualPipeV); deepseek-ai/DualPipe 3da1bbe ``dualpipev.py``;
torch.distributed.pipelining 2.13 ``ScheduleDualPipeV``, which lists the same orders.
"""

from __future__ import annotations

from ..orders.action import Order, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .two_way import Lane, eight_steps

_two_chunks = fixed_chunks("dualpipev", 2)


def check(shape: Shape) -> None:
    """Refuse all but two chunks per rank, and fewer than two microbatches per rank."""
    _two_chunks(shape)
    p, m = shape.ranks, shape.microbatches
    if m < 2 * p:
        raise ValueError(
            f"dualpipev needs {2 * p} or more microbatches on {p} ranks, not {m}; use more, or zb-v"
        )


def orders(shape: Shape) -> Orders:
    """The eight steps on every rank; the turn is the last rank, whose two stages follow each other."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """2p + 1 on every rank."""
    del rank
    return 2 * shape.ranks + 1


def _order(rank: int, shape: Shape) -> Order:
    p, m = shape.ranks, shape.microbatches
    lanes = Lane(stage=rank, first=0), Lane(stage=2 * p - 1 - rank, first=0)
    return eight_steps(lanes, length=p, depth=rank, microbatches=m)


SCHEDULE = Schedule(
    name="dualpipev",
    title="DualPipeV (two ways, in a V)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    in_flight=in_flight,
    chunks=2,
    splits_backward=True,
    ends_meet=True,
    overlaps=True,
    paired=1,
    place=160,
)
