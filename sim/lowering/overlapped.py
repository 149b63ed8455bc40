"""What a forward and a backward that run as one run on a rank, block by block.

DualPipe's orders have such pairs of their own; those of others are made by schedules/orders/overlapped.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...schedules.orders.action import ActionKind
from ..program.program import Block
from .actions import around_layers
from .layers.kinds import LayerRun
from .layers.pairs import pairs_up

if TYPE_CHECKING:
    from .actions import Blocks
    from .layers.local_shape import LocalShape
    from .layers.stages import Stage


Owner = str | LayerRun | None

OverlappedBlocks = tuple[tuple[Block, Owner, Owner, int], ...]
"""Blocks of a pair, each with what of the model its forward runs, what its backward, and its count."""


def pair_blocks(forward: Stage, backward: Stage, blocks: Blocks) -> OverlappedBlocks | None:
    """Blocks of an overlapped forward and backward in their order; None where there is no exchange to
    overlap.

    The forward's first layer is paired with the backward's last, and so on; then comes the rest of the
    backward, then the rest of the forward.
    """
    if not runs_as_one(forward, backward, blocks.local):
        return None
    ahead, back = _layers(forward, backward)

    def end(kind: ActionKind, *, first: bool) -> list[tuple[Block, Owner, Owner, int]]:
        stage = forward if kind is ActionKind.FORWARD else backward
        owned = around_layers(kind, stage, blocks, first=first)
        if kind is ActionKind.FORWARD:
            return [(block, owner, None, count) for block, owner, count in owned]
        return [(block, None, owner, count) for block, owner, count in owned]

    row = end(ActionKind.BACKWARD, first=True) + end(ActionKind.FORWARD, first=True)
    row += [(blocks.pair(mine, other), mine, other, 1) for mine, other in zip(ahead, back, strict=False)]
    row += [(blocks.layer_of(ActionKind.BACKWARD, run), None, run, 1) for run in back[len(ahead) :]]
    row += [(blocks.layer_of(ActionKind.FORWARD, run), run, None, 1) for run in ahead[len(back) :]]
    return tuple(row + end(ActionKind.FORWARD, first=False) + end(ActionKind.BACKWARD, first=False))


def runs_as_one(forward: Stage, backward: Stage, local: LocalShape) -> bool:
    """Whether a forward and a backward on these stages have exchanges to overlap; otherwise they run in
    turn."""
    both = zip(*_layers(forward, backward), strict=False)
    return any(pairs_up(local.of(mine.kind), local.of(other.kind)) for mine, other in both)


def _layers(forward: Stage, backward: Stage) -> tuple[list[LayerRun], list[LayerRun]]:
    """The layers of a forward, and those of a backward, in the order in which they run."""
    ahead = [run for run in forward.runs for _ in range(run.count)]
    return ahead, [run for run in reversed(backward.runs) for _ in range(run.count)]
