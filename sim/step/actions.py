"""What one pipeline action runs on one rank: the blocks of its virtual stage, forward or backward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, Kind
from .ends import (
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
)
from .layer import backward_block, forward_block
from .loss import loss_backward, loss_forward
from .parameters import StageParameters
from .program import Block, Segment
from .refusal import NotSupported
from .stages import Stage

if TYPE_CHECKING:
    from ..software.software import Software
    from .shard import Shard
    from .tape import Costs


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The distinct blocks of a model on this machine; every stage is made of them."""

    embedding_forward: Block
    embedding_backward: Block
    layer_forward: Block
    layer_backward: Block
    layer_backward_recomputed: Block
    head_forward: Block
    head_backward: Block
    loss_forward: Block
    loss_backward: Block


def build_blocks(shard: Shard, software: Software, costs: Costs, recompute: str) -> Blocks:
    """``recompute`` of the layers that are not recomputed in full: none or selective."""
    return Blocks(
        embedding_forward=embedding_forward(shard, software, costs),
        embedding_backward=embedding_backward(shard, software, costs),
        layer_forward=forward_block(shard, software, costs),
        layer_backward=backward_block(shard, software, costs, recompute),
        layer_backward_recomputed=backward_block(shard, software, costs, "full"),
        head_forward=head_forward(shard, software, costs),
        head_backward=head_backward(shard, software, costs),
        loss_forward=loss_forward(shard, software, costs),
        loss_backward=loss_backward(shard, software, costs),
    )


def action_blocks(action: Action, stage: Stage, blocks: Blocks) -> tuple[tuple[Block, int], ...]:
    """Blocks of ``action`` in the order in which they run, each with its count."""
    if action.kind is Kind.FORWARD:
        parts = [
            (blocks.embedding_forward, int(stage.embedding)),
            (blocks.layer_forward, stage.layers),
            (blocks.head_forward, int(stage.head)),
            (blocks.loss_forward, int(stage.loss)),
        ]
    elif action.kind is Kind.BACKWARD:
        # The layers recomputed in full are the stage's first, so backward reaches them last.
        parts = [
            (blocks.loss_backward, int(stage.loss)),
            (blocks.head_backward, int(stage.head)),
            (blocks.layer_backward, stage.layers - stage.recomputed),
            (blocks.layer_backward_recomputed, stage.recomputed),
            (blocks.embedding_backward, int(stage.embedding)),
        ]
    else:
        raise NotSupported(
            "schedule", "split backward (I and W) is not modelled yet; known: none, gpipe, 1f1b, interleaved"
        )
    return tuple((block, count) for block, count in parts if count)


def action_segment(action: Action, stage: Stage, blocks: Blocks) -> Segment:
    return Segment(action_blocks(action, stage, blocks))


def ready_elements(block: Block, blocks: Blocks, parameters: StageParameters) -> float:
    """Parameters whose gradients are ready once ``block`` of the last microbatch's backward has run."""
    if block is blocks.loss_backward:
        return 0.0
    if block is blocks.head_backward:
        return parameters.head
    if block is blocks.embedding_backward:
        return parameters.embedding
    return parameters.layer
