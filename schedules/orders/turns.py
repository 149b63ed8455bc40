"""The order that 1F1B and its interleaved form share.

Warm-up, one forward and one backward in turn, cool-down. Does not know which stage an action is of.
"""

from __future__ import annotations

from collections.abc import Sequence

from .action import Action


def one_forward_one_backward(
    forwards: Sequence[Action], backwards: Sequence[Action], *, warm_up: int
) -> tuple[Action, ...]:
    """``warm_up`` forwards (all, if there are fewer), then F and B in turn, then the backwards left over."""
    order = list(forwards[:warm_up])
    for forward, backward in zip(forwards[warm_up:], backwards, strict=False):
        order += forward, backward
    return (*order, *backwards[len(forwards[warm_up:]) :])
