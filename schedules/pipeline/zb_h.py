"""What ZB-H1 and ZB-H2 share: one stage per rank, split backwards, a warm-up of q forwards per rank below.

ZB-H1 is q = 1, ZB-H2 is q = 2. Not a schedule itself.

Sources: Qi et al. 2023, "Zero Bubble Pipeline Parallelism" (arXiv 2401.10241), section 2; the authors'
``get_hand_schedule`` (sail-sg/zero-bubble-pipeline-parallelism, branch arxiv).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..orders.action import Action, ActionKind, Orders
from ..orders.counted import counted
from ..orders.schedule import Shape, fixed_chunks


def handcrafted_check(name: str, q: int) -> Callable[[Shape], None]:
    """The check of shapes for the handcrafted schedule ``name``, whose warm-up has ``q`` more forwards for
    each rank below. It raises ValueError for more than one chunk per rank, and for fewer microbatches than
    the q(p-1) + 1 that rank 0 holds at its peak."""
    one_chunk = fixed_chunks(name, 1)

    def check(shape: Shape) -> None:
        one_chunk(shape)
        if shape.microbatches < held(shape, q):
            raise ValueError(
                f"{name} needs {held(shape, q)} or more microbatches on {shape.ranks} ranks, not "
                f"{shape.microbatches}; use more, or 1f1b or zb"
            )

    return check


def held(shape: Shape, q: int) -> int:
    """q(p-1) + 1: the activations that every rank holds at its peak."""
    return q * (shape.ranks - 1) + 1


def handcrafted_orders(shape: Shape, q: int) -> Orders:
    """q(p-1-r) forwards, then F, I and W in turn; on rank r every W comes q·r input gradients late."""
    return tuple(tuple(_order(rank, shape, q)) for rank in range(shape.ranks))


def _order(rank: int, shape: Shape, q: int) -> Iterator[Action]:
    m, longest = shape.microbatches, q * (shape.ranks - 1)
    warm_up = q * (shape.ranks - 1 - rank)

    def kinds() -> Iterator[ActionKind]:
        yield from [ActionKind.FORWARD] * warm_up
        for i in range(m):
            if warm_up + i < m:
                yield ActionKind.FORWARD
            yield ActionKind.INPUT_GRAD
            if warm_up + i >= longest:
                yield ActionKind.WEIGHT_GRAD
        yield from [ActionKind.WEIGHT_GRAD] * (longest - warm_up)

    return counted((rank, kind) for kind in kinds())
