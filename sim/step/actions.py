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
    head_input_grad,
    head_weight_grad,
)
from .layer import backward_block, forward_block, input_grad_block, weight_grad_block
from .loss import loss_backward, loss_forward
from .parameters import StageParameters
from .program import Block, Segment
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
    layer_input_grad: Block
    layer_input_grad_recomputed: Block
    layer_weight_grad: Block
    head_forward: Block
    head_backward: Block
    head_input_grad: Block
    head_weight_grad: Block
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
        layer_input_grad=input_grad_block(shard, software, costs, recompute),
        layer_input_grad_recomputed=input_grad_block(shard, software, costs, "full"),
        layer_weight_grad=weight_grad_block(shard, software, costs),
        head_forward=head_forward(shard, software, costs),
        head_backward=head_backward(shard, software, costs),
        head_input_grad=head_input_grad(shard, software, costs),
        head_weight_grad=head_weight_grad(shard, software, costs),
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
    elif action.kind is Kind.INPUT_GRAD:
        # The table's gradient comes with the last input gradient: autograd does not put it off.
        parts = [
            (blocks.loss_backward, int(stage.loss)),
            (blocks.head_input_grad, int(stage.head)),
            (blocks.layer_input_grad, stage.layers - stage.recomputed),
            (blocks.layer_input_grad_recomputed, stage.recomputed),
            (blocks.embedding_backward, int(stage.embedding)),
        ]
    else:
        parts = [
            (blocks.head_weight_grad, int(stage.head)),
            (blocks.layer_weight_grad, stage.layers),
        ]
    return tuple((block, count) for block, count in parts if count)


def action_segment(action: Action, stage: Stage, blocks: Blocks) -> Segment:
    return Segment(action_blocks(action, stage, blocks))


def ready_elements(block: Block, blocks: Blocks, parameters: StageParameters) -> float:
    """Parameters whose gradients are ready once ``block`` of the last backward of a stage has run.

    Where the weight gradients come apart, all of the stage's but the table's are ready with them.
    """
    if block in (blocks.loss_backward, blocks.head_input_grad):
        return 0.0
    if block in (blocks.layer_input_grad, blocks.layer_input_grad_recomputed):
        return 0.0
    if block in (blocks.head_backward, blocks.head_weight_grad):
        return parameters.head
    if block is blocks.embedding_backward:
        return parameters.embedding
    return parameters.layer
