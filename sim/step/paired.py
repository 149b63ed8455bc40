"""Forwards and backwards that run as one: which of an order, and what such a pair runs on a rank.

DualPipe's orders have pairs of their own. Megatron pairs what 1F1B lets follow one another (a backward and
the forward after it) where exchanges of experts are overlapped: each rank has one more microbatch in flight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...schedules.orders.action import Kind, Orders, Overlap, Step
from ..program.program import Block
from .actions import around_layers
from .layers.kinds import LayerRun
from .layers.pairs import pairs_up

if TYPE_CHECKING:
    from .actions import Blocks
    from .layers.stages import Stage


def paired(orders: Orders) -> Orders:
    """``orders`` with every whole backward and the forward right after it made one."""
    return tuple(tuple(_paired(order)) for order in orders)


def _paired(order: tuple[Step, ...]) -> Iterator[Step]:
    waiting: Step | None = None
    for step in order:
        if waiting is not None:
            follows = not isinstance(step, Overlap) and step.kind is Kind.FORWARD
            assert not isinstance(waiting, Overlap)
            if follows and not isinstance(step, Overlap):
                yield Overlap(step, waiting)
                waiting = None
                continue
            yield waiting
            waiting = None
        if not isinstance(step, Overlap) and step.kind is Kind.BACKWARD:
            waiting = step
        else:
            yield step
    if waiting is not None:
        yield waiting


Owner = str | LayerRun | None

Paired = tuple[tuple[Block, Owner, Owner, int], ...]
"""Blocks of a pair, each with what of the model its forward runs, what its backward, and its count."""


def pair_blocks(forward: Stage, backward: Stage, blocks: Blocks) -> Paired | None:
    """Blocks of a pair in the order in which they run; None where nothing is to be overlapped.

    Layers pair up first with last; what is left of the backward comes next, then of the forward.
    """
    ahead = [run for run in forward.runs for _ in range(run.count)]
    back = [run for run in reversed(backward.runs) for _ in range(run.count)]
    shards = [blocks.shard.of(run.kind) for run in ahead]
    both = list(zip(shards, back, strict=False))
    if not any(pairs_up(shard, blocks.shard.of(run.kind)) for shard, run in both):
        return None

    def end(kind: Kind, *, first: bool) -> list[tuple[Block, Owner, Owner, int]]:
        stage = forward if kind is Kind.FORWARD else backward
        owned = around_layers(kind, stage, blocks, first=first)
        if kind is Kind.FORWARD:
            return [(block, owner, None, count) for block, owner, count in owned]
        return [(block, None, owner, count) for block, owner, count in owned]

    row = end(Kind.BACKWARD, first=True) + end(Kind.FORWARD, first=True)
    row += [(blocks.pair(mine, other), mine, other, 1) for mine, other in zip(ahead, back, strict=False)]
    row += [(blocks.layer_of(Kind.BACKWARD, run), None, run, 1) for run in back[len(ahead) :]]
    row += [(blocks.layer_of(Kind.FORWARD, run), run, None, 1) for run in ahead[len(back) :]]
    return tuple(row + end(Kind.FORWARD, first=False) + end(Kind.BACKWARD, first=False))
