"""The two ends of the model: the embedding on the first stage, the head (final norm and logits) on the last.

The vocabulary is split over the TP group, so that the embedding's output is reduced over it. The
loss is in loss.py.
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from ..layers.linear import (
    Linear,
    accumulate_gradient,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
)
from ..layers.pointwise import norm, norm_backward
from ..layers.shard import Shard
from ..layers.tape import Costs, Tape


def embedding_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Look the tokens up, reduce over TP, add positions, drop out."""
    tape = Tape(costs)
    tape.memory("embedding", 2 * shard.hidden_bytes, launches=3)  # read rows, write
    if shard.tp > 1:
        tape.tp(f"embedding {_reduction(shard)}", _reduction(shard), shard.hidden_bytes)
    if not shard.rope:
        tape.memory("position add", 3 * shard.norm_bytes)
    if shard.dropout:
        tape.memory("embedding dropout", 2 * shard.norm_bytes + shard.norm_tokens * shard.hidden)
    return tape.block("embedding forward")


def embedding_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Scatter the gradients into a dense table gradient and add that to the main gradient."""
    tape = Tape(costs)
    if shard.dropout:
        tape.memory("embedding dropout backward", 2 * shard.norm_bytes + shard.norm_tokens * shard.hidden)
    if shard.sequence_parallel:
        tape.tp("embedding all_gather", "all_gather", shard.hidden_bytes)
    table = float(shard.vocabulary * shard.hidden)
    # torch's embedding_dense_backward fills the whole table with zeros, then adds the tokens' rows.
    tape.memory("embedding gradient", table * shard.element_bytes + 3 * shard.hidden_bytes, launches=4)
    # It is no GEMM: its gradient is always added by a kernel of its own.
    accumulate_gradient(tape, table, shard, software, fused=False)
    return tape.block("embedding backward")


def head_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Final norm and logits."""
    tape = Tape(costs)
    norm(tape, shard, software)
    column_forward(tape, (_head(shard),), shard, software)
    return tape.block("head forward")


def head_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Gradients of the head and of the final norm."""
    tape = Tape(costs)
    column_backward(tape, (_head(shard),), shard, software)
    norm_backward(tape, shard, software)
    return tape.block("head backward")


def head_input_grad(shard: Shard, software: Software, costs: Costs) -> Block:
    """Gradients of the head's input and of the final norm; the head's own is put off."""
    tape = Tape(costs)
    column_input_grad(tape, (_head(shard),), shard, software)
    norm_backward(tape, shard, software)
    return tape.block("head input gradient")


def head_weight_grad(shard: Shard, software: Software, costs: Costs) -> Block:
    """The head's own gradient."""
    tape = Tape(costs)
    column_weight_grad(tape, (_head(shard),), shard, software)
    return tape.block("head weight gradient")


def _reduction(shard: Shard) -> str:
    return "reduce_scatter" if shard.sequence_parallel else "all_reduce"


def _head(shard: Shard) -> Linear:
    return Linear(name="logits", inputs=shard.hidden, outputs=shard.vocabulary)
