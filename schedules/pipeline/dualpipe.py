"""DualPipe: microbatches enter at both ends of the pipeline, and forwards meet backwards on every rank.

Every stage is there twice: on rank s for the first half of the microbatches, on rank p-1-s for the others.
DualPipeV does without the second copy.

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 3.2.1;
deepseek-ai/DualPipe 3da1bbe ``dualpipe.py``.
"""

from __future__ import annotations

from ..orders.action import Order, Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, two_way_placement
from .two_way import Lane, eight_steps

_one_chunk = fixed_chunks("dualpipe", 1)


def check(shape: Shape) -> None:
    """Refuse an odd number of ranks or microbatches, and fewer than two microbatches per rank."""
    _one_chunk(shape)
    p, m = shape.ranks, shape.microbatches
    if p % 2:
        even = f"{p - 1} or {p + 1}" if p > 1 else "2"
        raise ValueError(f"dualpipe has two ranks for each pair of stages, so not {p} ranks; use {even}")
    if m < 2 * p:
        raise ValueError(
            f"dualpipe needs {2 * p} or more microbatches on {p} ranks, not {m}; use more, or 1f1b or zb-v"
        )
    if m % 2:
        raise ValueError(f"dualpipe sends as many microbatches each way, so not {m}; use {m - 1} or {m + 1}")


def orders(shape: Shape) -> Orders:
    """The eight steps on every rank, seen from the end that is nearer to it."""
    check(shape)
    return tuple(_order(rank, shape) for rank in range(shape.ranks))


def in_flight(rank: int, shape: Shape) -> int:
    """p + 1 on every rank."""
    del rank
    return shape.ranks + 1


def _order(rank: int, shape: Shape) -> Order:
    p, each_way = shape.ranks, shape.microbatches // 2
    down, up = Lane(stage=rank, first=0), Lane(stage=p - 1 - rank, first=each_way)
    lanes = (down, up) if rank < p // 2 else (up, down)
    return eight_steps(lanes, length=p // 2, depth=min(rank, p - 1 - rank), microbatches=each_way)


SCHEDULE = Schedule(
    name="dualpipe",
    title="DualPipe (both ways through the ranks)",
    orders=orders,
    check=check,
    rank_of=two_way_placement,
    in_flight=in_flight,
    splits_backward=True,
    ends_meet=True,
    two_way=True,
    overlaps=True,
    paired=2,  # one from each end
    place=150,
)
