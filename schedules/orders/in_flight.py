"""How many activations a rank holds while it works through its order.

Counts chunk activations (one microbatch through one chunk): a forward keeps one, the backward that
ends its use lets it go (B, or W where the backward is split). Knows the order only: no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from .action import ActionKind, Orders, Step, actions_of

_HELD = {ActionKind.FORWARD: 1, ActionKind.BACKWARD: -1, ActionKind.INPUT_GRAD: 0, ActionKind.WEIGHT_GRAD: -1}


def activations_held(order: Iterable[Step]) -> Iterator[int]:
    """Activations held once each action has begun (a forward) or ended (a backward)."""
    return accumulate(_HELD[action.kind] for action in actions_of(order))


def peak_activations(orders: Orders) -> tuple[int, ...]:
    """The most that each rank ever holds, rank 0 first."""
    return tuple(max(activations_held(order), default=0) for order in orders)
