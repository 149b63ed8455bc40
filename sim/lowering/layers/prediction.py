"""Multi-token prediction: what a layer has before it that predicts a further token.

The stream of the layer before and the embedding of the next token are normed, set side by side, and
projected to one stream again (DeepSeek-AI 2024, arXiv:2412.19437 section 2.2; Megatron-LM
multi_token_prediction.py, ``eh_proj``: column-parallel, its output gathered).
"""

from __future__ import annotations

from dataclasses import replace

from ...scenario.software.software import Software
from .linear import Linear, column_backward, column_forward, column_input_grad, column_weight_grad
from .pointwise import norm, norm_backward
from .shard import Shard
from .tape import Tape


def join_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """Look the next tokens up, norm both streams, and project."""
    tape.memory("embedding", 2 * shard.hidden_bytes, launches=3)  # read rows, write
    norm(tape, shard, software)
    norm(tape, shard, software)
    tape.memory("concatenate streams", 4 * shard.norm_bytes)  # read both, write both
    column_forward(tape, (_joint(shard),), _wide(shard), software)
    if shard.tp > 1:
        tape.tp("joined stream all_gather", "all_gather", shard.hidden_bytes)


def join_backward(tape: Tape, shard: Shard, software: Software, *, split: bool) -> None:
    """The same backward, and the rows of the embedding's gradient."""
    if shard.tp > 1:
        tape.tp("joined stream reduce_scatter", "reduce_scatter", shard.hidden_bytes)
    (column_input_grad if split else column_backward)(tape, (_joint(shard),), _wide(shard), software)
    norm_backward(tape, shard, software)
    norm_backward(tape, shard, software)
    table = float(shard.vocabulary * shard.hidden)
    # As at the embedding itself: the table is filled with zeros, rows are added, all goes to the gradient.
    tape.memory("embedding gradient", table * shard.element_bytes + 3 * shard.hidden_bytes, launches=4)
    tape.memory("accumulate gradient", table * (shard.element_bytes + 2 * shard.grad_bytes))


def join_weight_grad(tape: Tape, shard: Shard, software: Software) -> None:
    """The projection's gradient that was put off."""
    column_weight_grad(tape, (_joint(shard),), _wide(shard), software)


def _joint(shard: Shard) -> Linear:
    return Linear(name="joint", inputs=2 * shard.hidden, outputs=shard.hidden // shard.tp)


def _wide(shard: Shard) -> Shard:
    return replace(shard, hidden=2 * shard.hidden)
