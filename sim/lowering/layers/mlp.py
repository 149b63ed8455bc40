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
    """The matrices on the input, both branches of a SwiGLU as one matrix or as two, and the one back."""
    h = local.hidden
    branches = local.gate if software.kernels.split_gate else 1
    first = Linear(name="fc1", inputs=h, outputs=local.ffn * local.gate // branches)
    return (first,) * branches, Linear(name="fc2", inputs=local.ffn, outputs=h)


def mlp_forward(builder: LayerBuilder, *, cast: bool = True) -> None:
    """From the normed stream, which ``cast`` has to quantise first, to what is added to the residual."""
    mlp_in_forward(builder, cast=cast)
    mlp_out_forward(builder)


def mlp_in_forward(builder: LayerBuilder, *, cast: bool) -> None:
    """The matrices on the input, and the activation."""
    first, _ = mlp_linears(builder.local, builder.software)
    _quantise_weights(builder, *first)
    column_forward(builder, first, cast=cast)
    activation(builder)


def _quantise_weights(builder: LayerBuilder, *linears: Linear) -> None:
    """The copies of weights in the GEMMs' type, where no first microbatch has kept them."""
    local = builder.local
    if local.recipe and local.weights.made and not builder.software.kernels.caches_mlp_weights:
        weights = sum(linear.inputs * linear.outputs for linear in linears)
        launches, numbers = local.recipe.launches * len(linears), local.recipe.numbers * len(linears)
        builder.memory("quantise weights", weights * local.weights.made, launches=launches, numbers=numbers)


def mlp_out_forward(builder: LayerBuilder) -> None:
    """The matrix back."""
    _, second = mlp_linears(builder.local, builder.software)
    _quantise_weights(builder, second)
    row_forward(builder, second, maker="activation")


def mlp_backward(
    builder: LayerBuilder,
    *,
    recompute: Recompute = NOTHING,
    split: bool = False,
) -> None:
    """Gradients of the input and, unless ``split``, of the matrices.

    Recomputed, it runs again as a checkpoint does: the last GEMM too. The norm before it is run again
    for the first matrix.
    """
    if "mlp" in recompute:
        mlp_forward(builder, cast=not norm_quantises(builder.local))
    mlp_out_backward(builder, split=split)
    mlp_in_backward(builder, recompute=recompute, split=split)


def mlp_out_backward(builder: LayerBuilder, *, split: bool = False) -> None:
    """Gradients of the matrix back and of its input."""
    _, second = mlp_linears(builder.local, builder.software)
    (row_input_grad if split else row_backward)(builder, second)


def mlp_in_backward(builder: LayerBuilder, *, recompute: Recompute = NOTHING, split: bool = False) -> None:
    """Gradients of the activation, of the matrices on the input and of the input."""
    first, _ = mlp_linears(builder.local, builder.software)
    activation_backward(builder)
    if "layernorm" in recompute:
        norm(builder)
    (column_input_grad if split else column_backward)(builder, first, maker="activation")


def mlp_weight_grad(builder: LayerBuilder) -> None:
    """Gradients of the matrices that were put off."""
    local, software = builder.local, builder.software
    first, second = mlp_linears(local, software)
    row_weight_grad(builder, second)
    column_weight_grad(builder, first)
