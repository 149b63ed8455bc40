"""Biases of experts' GEMMs where torch adds them, expert by expert, in place of the GEMMs' kernels.

A bias behind the second GEMM is weighted by the probability with which a row was routed. No kernel of a
GEMM does that: frameworks split the rows by expert, multiply the bias by the probabilities, add it, and
join the rows again; autograd runs each of these backwards. Bytes count reads and writes at HBM.

References:
    Megatron-LM transformer/moe/experts.py, TEGroupedMLP: the first bias is the GEMM's own
    (skip_bias_add False), the second goes through _apply_bias. NVIDIA-NeMo/Automodel
    components/moe/layers.py, GroupedExpertsDeepEP: _apply_bias for both, the first without probabilities
    (until pull request 3387).
    PyTorch tools/autograd/derivatives.yaml: split, cat, add, mul.
"""

from __future__ import annotations

from .layer_builder import LayerBuilder
from .strided import STRIDED

_FP32_BYTES = 4


def add_biases(builder: LayerBuilder, *, experts: int, elements: float, weighted: bool) -> None:
    """Append the addition of ``experts`` biases to the ``elements`` of a GEMM's output; ``weighted``:
    times the routing weights."""
    e = builder.local.element_bytes
    if not weighted:
        # addition (r e, w e) for each expert; join (r e, w e)
        builder.memory("expert biases", 4 * e * elements, launches=experts + 1)
        return
    w = _weighted_bytes(builder)
    # bias times probability (w w) for each expert
    issued = STRIDED["product by row"] * elements
    builder.memory("expert biases by weight", w * elements, launches=experts, instructions=issued)
    # addition (r e, r w, w w) for each expert; join (r w, w w)
    size = e + 4 * w
    if w != e:  # cast back
        size += w + e
    builder.memory("expert biases", size * elements, launches=experts + 1 + (w != e))


def add_biases_backward(builder: LayerBuilder, *, experts: int, elements: float, weighted: bool) -> None:
    """Append the gradients of ``experts`` biases, added to ``elements`` outputs of a grouped GEMM, and of the
    routing weights where biases are ``weighted`` by them. Autograd makes the parts of the GEMM's output
    gradient expert by expert, and joins them."""
    e = builder.local.element_bytes
    if not weighted:
        # sum over the rows of each expert (r e); join, which undoes the split (r e, w e)
        builder.memory("expert biases backward", 3 * e * elements, launches=experts + 1)
        return
    w = _weighted_bytes(builder)
    # for each expert, gradients of the bias and of the probabilities: each a product (r w, w w)
    issued = 2 * STRIDED["product by row"] * elements
    builder.memory(
        "expert biases by weight, backward", 4 * w * elements, launches=2 * experts, instructions=issued
    )
    # and a sum (r w); join, which undoes the split (r e, w e)
    size, launches = 2 * w + 2 * e, 2 * experts + 1
    if w != e:  # the gradient cast up, and down again for each expert's rows (r, w each)
        size, launches = size + 2 * (e + w), launches + 1 + experts
    builder.memory("expert biases backward", size * elements, launches=launches)


def _weighted_bytes(builder: LayerBuilder) -> int:
    """Bytes per element of a bias times a routing weight, which has the wider type of the two.

    Routing weights are of the layer's type, but DeepEP's and HybridEP's exchanges carry them in FP32
    (Megatron-LM token_dispatcher.py, _DeepepManager.setup_metadata and dispatch: token_probs.float()).
    """
    e = builder.local.element_bytes
    return e if builder.software.exchange.moe_dispatcher == "alltoall" else max(e, _FP32_BYTES)
