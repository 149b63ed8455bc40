"""What one pipeline action runs on one rank: the blocks of its virtual stage, forward or backward.

A whole backward computes the gradients of inputs and weights block by block; a split one puts the weight
gradients of matrices off to an action of their own. Knows which blocks in which order, not what is in
them (layer.py, ends.py, loss.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, Kind
from ..program.program import Block
from .layers import layer, loss
from .layers.stages import Stage
from .state.parameters import StageParameters
from .updates import ends

if TYPE_CHECKING:
    from ..software.software import Software
    from .layers.shard import Shard
    from .layers.tape import Costs


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """The distinct blocks of a model on this machine, each built when it is first asked for.

    ``recompute`` of the layers that are not recomputed in full: none or selective.
    """

    shard: Shard
    software: Software
    costs: Costs
    recompute: str

    @cached_property
    def embedding_forward(self) -> Block:
        return ends.embedding_forward(self.shard, self.software, self.costs)

    @cached_property
    def embedding_backward(self) -> Block:
        return ends.embedding_backward(self.shard, self.software, self.costs)

    @cached_property
    def layer_forward(self) -> Block:
        return layer.forward_block(self.shard, self.software, self.costs)

    @cached_property
    def layer_backward(self) -> Block:
        return layer.backward_block(self.shard, self.software, self.costs, self.recompute)

    @cached_property
    def layer_backward_recomputed(self) -> Block:
        return layer.backward_block(self.shard, self.software, self.costs, "full")

    @cached_property
    def layer_input_grad(self) -> Block:
        return layer.input_grad_block(self.shard, self.software, self.costs, self.recompute)

    @cached_property
    def layer_input_grad_recomputed(self) -> Block:
        return layer.input_grad_block(self.shard, self.software, self.costs, "full")

    @cached_property
    def layer_weight_grad(self) -> Block:
        return layer.weight_grad_block(self.shard, self.software, self.costs)

    @cached_property
    def head_forward(self) -> Block:
        return ends.head_forward(self.shard, self.software, self.costs)

    @cached_property
    def head_backward(self) -> Block:
        return ends.head_backward(self.shard, self.software, self.costs)

    @cached_property
    def head_input_grad(self) -> Block:
        return ends.head_input_grad(self.shard, self.software, self.costs)

    @cached_property
    def head_weight_grad(self) -> Block:
        return ends.head_weight_grad(self.shard, self.software, self.costs)

    @cached_property
    def loss_forward(self) -> Block:
        return loss.loss_forward(self.shard, self.software, self.costs)

    @cached_property
    def loss_backward(self) -> Block:
        return loss.loss_backward(self.shard, self.software, self.costs)


# The layers recomputed in full are a stage's first, so backward reaches them last. The table's gradient
# comes with the input gradient: autograd does not put it off.
_PARTS = {
    Kind.FORWARD: (
        ("embedding_forward", "embedding", ""),
        ("layer_forward", "layers", ""),
        ("head_forward", "head", ""),
        ("loss_forward", "loss", ""),
    ),
    Kind.BACKWARD: (
        ("loss_backward", "loss", ""),
        ("head_backward", "head", "head"),
        ("layer_backward", "plain", "layer"),
        ("layer_backward_recomputed", "recomputed", "layer"),
        ("embedding_backward", "embedding", "embedding"),
    ),
    Kind.INPUT_GRAD: (
        ("loss_backward", "loss", ""),
        ("head_input_grad", "head", ""),
        ("layer_input_grad", "plain", ""),
        ("layer_input_grad_recomputed", "recomputed", ""),
        ("embedding_backward", "embedding", ""),
    ),
    Kind.WEIGHT_GRAD: (
        ("head_weight_grad", "head", "head"),
        ("layer_weight_grad", "layers", "layer"),
    ),
}
"""By kind of action, what runs: the block, how often a stage runs it, whose gradients are ready then."""


def action_blocks(action: Action, stage: Stage, blocks: Blocks) -> tuple[tuple[Block, int], ...]:
    """Blocks of ``action`` in the order in which they run, each with its count."""
    return tuple(
        (getattr(blocks, block), count)
        for block, part, _ in _PARTS[action.kind]
        if (count := int(getattr(stage, part)))
    )


def gradients_ready(action: Action, stage: Stage, parameters: StageParameters) -> Iterator[float]:
    """Parameters whose gradients each block of ``action_blocks`` completes, where the action is the last."""
    for _, part, gives in _PARTS[action.kind]:
        if getattr(stage, part):
            yield getattr(parameters, gives) if gives else 0.0
