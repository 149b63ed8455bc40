"""The dense MLP of a layer: one matrix or two on the input, activation, one matrix back.

Knows matrices and activation; norms and residuals around them are in layer.py.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .linear import (
    Linear,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
    row_backward,
    row_forward,
    row_input_grad,
    row_weight_grad,
)
from .pointwise import activation, activation_backward, norm, norm_quantises
from .recompute import NOTHING, Recompute
from .shard import Shard
from .tape import Tape


def mlp_linears(shard: Shard, software: Software) -> tuple[tuple[Linear, ...], Linear]:
    """The matrices on the input, both branches of a SwiGLU as one matrix or as two, and the one back."""
    h = shard.hidden
    branches = shard.gate if software.split_gate else 1
    first = Linear(name="fc1", inputs=h, outputs=shard.ffn * shard.gate // branches)
    return (first,) * branches, Linear(name="fc2", inputs=shard.ffn, outputs=h)


def mlp_forward(tape: Tape, shard: Shard, software: Software, *, cast: bool = True) -> None:
    """From the normed stream, which ``cast`` has to quantise first, to what is added to the residual."""
    first, second = mlp_linears(shard, software)
    column_forward(tape, first, shard, software, cast=cast)
    activation(tape, shard, software)
    row_forward(tape, second, shard, software)


def mlp_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Gradients of the input and, unless ``split``, of the matrices.

    Recomputed, it runs again as a checkpoint does: the last product too. The norm before it is run again
    for the first matrix.
    """
    first, second = mlp_linears(shard, software)
    row, column = (row_input_grad, column_input_grad) if split else (row_backward, column_backward)
    if "mlp" in recompute:
        mlp_forward(tape, shard, software, cast=not norm_quantises(shard))
    row(tape, second, shard, software)
    activation_backward(tape, shard, software)
    if "layernorm" in recompute:
        norm(tape, shard, software)
    column(tape, first, shard, software)


def mlp_weight_grad(tape: Tape, shard: Shard, software: Software) -> None:
    """Gradients of the matrices that were put off."""
    first, second = mlp_linears(shard, software)
    row_weight_grad(tape, second, shard, software)
    column_weight_grad(tape, first, shard, software)
