"""The dense MLP of a layer: one matrix or two on the input, activation, one matrix back.

Knows matrices and activation; norms and residuals around them are in layer.py.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .layer_builder import LayerBuilder
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
from .local_shape import LocalShape
from .norms import norm, norm_quantises
from .pointwise import activation, activation_backward
from .recompute import NOTHING, Recompute


def mlp_linears(local: LocalShape, software: Software) -> tuple[tuple[Linear, ...], Linear]:
    """The matrices of a dense MLP on this rank: those that read the input (both branches of a gate as one
    matrix or as two, by the software), and the second one, back to the width of the residual stream."""
    h = local.hidden
    branches = local.gate if software.kernels.split_gate else 1
    first = Linear(name="fc1", inputs=h, outputs=local.ffn * local.gate // branches)
    return (first,) * branches, Linear(name="fc2", inputs=local.ffn, outputs=h)


def mlp_forward(builder: LayerBuilder, *, cast: bool = True) -> None:
    """Append a dense MLP, from the normed residual stream to what is added to it. ``cast``: its input is in
    16 bit, and is quantised here if the GEMMs take fewer bits."""
    mlp_in_forward(builder, cast=cast)
    mlp_out_forward(builder)


def mlp_in_forward(builder: LayerBuilder, *, cast: bool) -> None:
    """Append the matrices on the input, quantised first where ``cast`` says so, and the activation."""
    first, _ = mlp_linears(builder.local, builder.software)
    _quantise_weights(builder, *first)
    column_forward(builder, first, cast=cast)
    activation(builder)


def _quantise_weights(builder: LayerBuilder, *linears: Linear) -> None:
    """Append the copies of weights in the GEMMs' type, unless those that the first microbatch made are
    kept."""
    local = builder.local
    if local.recipe and local.weights.made and not builder.software.kernels.caches_mlp_weights:
        weights = sum(linear.inputs * linear.outputs for linear in linears)
        launches, numbers = local.recipe.launches * len(linears), local.recipe.numbers * len(linears)
        builder.memory("quantise weights", weights * local.weights.made, launches=launches, numbers=numbers)


def mlp_out_forward(builder: LayerBuilder) -> None:
    """Append the second matrix of the MLP."""
    _, second = mlp_linears(builder.local, builder.software)
    _quantise_weights(builder, second)
    row_forward(builder, second, maker="activation")


def mlp_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Append the gradients of the input and, unless ``split``, of the matrices.

    An MLP that is recomputed as a module is run again as a checkpoint does, its last GEMM included. Where
    norms are recomputed, the norm before it is run again, for the gradient of the first matrix.
    """
    if "mlp" in recompute:
        mlp_forward(builder, cast=not norm_quantises(builder.local))
    mlp_out_backward(builder, split=split)
    mlp_in_backward(builder, recompute=recompute, split=split)


def mlp_out_backward(builder: LayerBuilder, *, split: bool = False) -> None:
    """Append the gradient of the second matrix's input and, unless ``split``, of that matrix."""
    _, second = mlp_linears(builder.local, builder.software)
    (row_input_grad if split else row_backward)(builder, second)


def mlp_in_backward(builder: LayerBuilder, *, recompute: Recompute = NOTHING, split: bool = False) -> None:
    """Append the gradients of the activation and of the input and, unless ``split``, of the matrices on the
    input; ``recompute`` says whether the norm before them is run again."""
    first, _ = mlp_linears(builder.local, builder.software)
    activation_backward(builder)
    if "layernorm" in recompute:
        norm(builder)
    (column_input_grad if split else column_backward)(builder, first, maker="activation")


def mlp_weight_grad(builder: LayerBuilder) -> None:
    """Append the gradients of the matrices, which a split backward left for later."""
    local, software = builder.local, builder.software
    first, second = mlp_linears(local, software)
    row_weight_grad(builder, second)
    column_weight_grad(builder, first)
