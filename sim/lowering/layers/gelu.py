"""GELU by its tanh formula, one operator of torch's after the other, as models write it themselves.

``0.5 * x * (1 + tanh(c * (x + 0.044715 * pow(x, 3))))``. Under autocast pow is of FP32, and all behind it
with it; the last product is cast for the matrix that reads it.

References:
    Transformers activations.py, NewGELUActivation (``gelu_new``, GPT-2's); nanoGPT model.py until February
    2023, new_gelu; PyTorch aten/src/ATen/autocast_mode.cpp, tools/autograd/derivatives.yaml (pow, tanh, mul).
"""

from __future__ import annotations

from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def gelu(builder: LayerBuilder) -> None:
    """Append the formula: pow, times a number, sum with x, times another, tanh, plus one, half of x, both."""
    e, elements = builder.local.element_bytes, _elements(builder.local)
    if builder.local.autocast:
        # x cast r e w 4; pow r 4 w 4; times r 4 w 4; sum r e r 4 w 4; times r 4 w 4; tanh r 4 w 4; plus one
        # r 4 w 4; half r e w e; both r e r 4 w 4; cast r 4 w e
        builder.function("activation", (6 * e + 64) * elements, launches=10)
    else:
        builder.function("activation", 18 * e * elements, launches=8)  # r w, but r r w of the sum and of both


def gelu_backward(builder: LayerBuilder) -> None:
    """Append its gradients: of both factors, of tanh, of two products with numbers, of pow (a power, times
    three, times what comes), of the half, and two sums of what comes to x."""
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
    """Bytes of an element that backward needs beside the formula's input and output: the half of x, the sum
    with one and the tanh; under autocast the latter two, and x, in FP32, the half in place of the input."""
    return 3.0 * (4 if local.autocast else local.element_bytes)


def _elements(local: LocalShape) -> float:
    return float(local.tokens * local.ffn)
