"""GELU by its tanh formula, operator by operator in torch, as some models write it out.

``0.5 * x * (1 + tanh(c * (x + 0.044715 * pow(x, 3))))``. Under autocast pow and all operators behind it run
in FP32, and the result is cast for the matrix that reads it. Comments count bytes at HBM: ``r e w 4`` reads
elements of the model's type and writes FP32.

References:
    Transformers activations.py, NewGELUActivation (``gelu_new``, GPT-2's); nanoGPT model.py until February
    2023, new_gelu; PyTorch aten/src/ATen/autocast_mode.cpp, tools/autograd/derivatives.yaml (pow, tanh, mul).
"""

from __future__ import annotations

from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def gelu(builder: LayerBuilder) -> None:
    """Append the formula's operators: pow, scale, add x, scale, tanh, add 1, half of x, and the product of
    the last two."""
    e, elements = builder.local.element_bytes, _elements(builder.local)
    if builder.local.autocast:
        # x cast r e w 4; pow r 4 w 4; times r 4 w 4; sum r e r 4 w 4; times r 4 w 4; tanh r 4 w 4; plus one
        # r 4 w 4; half r e w e; both r e r 4 w 4; cast r 4 w e
        builder.function("activation", (6 * e + 64) * elements, launches=10)
    else:
        builder.function("activation", 18 * e * elements, launches=8)  # r w, but r r w of the sum and of both


def gelu_backward(builder: LayerBuilder) -> None:
    """Append the gradients of these operators, last first: of both factors, of tanh, of the two scales, of
    pow (power, times three, times the incoming gradient), of half of x, and the two sums of gradients of
    x."""
    e, elements = builder.local.element_bytes, _elements(builder.local)
    if builder.local.autocast:
        # dY cast r e w 4; half's r 4 r 4 w 4, cast r 4 w e; the other's r 4 r e w 4; tanh r 4 r 4 w 4; times
        # r 4 w 4; x's cast r 4 w e; times r 4 w 4; power r 4 w 4, r 4 w 4, r 4 r 4 w 4; cast r 4 w e; half
        # r e w e; sums 2 (r e r e w e)
        builder.memory("activation backward", (13 * e + 92) * elements, launches=15)
    else:
        # r r w twice; tanh r r w; r w; r w; power r w, r w, r r w; half r w; sums 2 (r r w)
        builder.memory("activation backward", 28 * e * elements, launches=11)


def kept_bytes(local: LocalShape) -> float:
    """Bytes per element that backward needs besides the formula's input and output: half of x, tanh, and
    tanh + 1. Under autocast these are tanh, tanh + 1 and x in FP32, and the half takes the place of the
    input."""
    return 3.0 * (4 if local.autocast else local.element_bytes)


def _elements(local: LocalShape) -> float:
    return float(local.tokens * local.ffn)
