"""Rows of experts that torch's own operators multiply by the router's weights (``kernels.weighted_rows``).

Two ways of torchtitan where scores come behind the experts. Rows that NCCL has brought home are cast to
FP32, weighted, and cast back. Rows that DeepEP is to bring home are weighted where their experts are, before
they are added up, in 16 bits. Either way the gradient of the weights reads the rows. Bytes count reads (r)
and writes (w) at HBM.

References:
    torchtitan models/moe/moe.py at 003edbe, MoE.forward; distributed/deepep/deepep.py at 06c9b44c,
    combine_tokens (permuted_scores).
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .expert_operators import uses_torch_operators
from .layer_builder import LayerBuilder
from .local_shape import LocalShape, local_experts
from .strided import STRIDED


def weights_rows(software: Software) -> bool:
    """Whether torch's operators weight rows, so that a backward reads these as experts gave them."""
    return weights_rows_at_home(software) or weights_rows_of_experts(software)


def weights_rows_at_home(software: Software) -> bool:
    """Whether torch weights rows after exchanges have brought them home."""
    return _by_dispatcher(software, "alltoall")


def weights_rows_of_experts(software: Software) -> bool:
    """Whether rows are weighted where their experts are, in the type of the GEMMs."""
    return _by_dispatcher(software, "deepep")


def kept_weighted_rows(local: LocalShape, software: Software) -> float:
    """Bytes of the rows that the gradient of the weights reads: in FP32 where they are cast for it."""
    if local.experts is None or not weights_rows(software):
        return 0.0
    if weights_rows_at_home(software):
        return 4.0 * local.experts.sent(local.norm_tokens) * local.hidden
    return float(local.element_bytes * local.experts.rows(local.norm_tokens) * local.hidden)


def weight_rows_at_home(builder: LayerBuilder) -> None:
    """Append the product of rows that exchanges have brought home with their routing weights, in FP32, and
    the casts of rows before and after it."""
    if not weights_rows_at_home(builder.software):
        return
    _weight_in_fp32(builder, "weight rows")
    elements, cast = _elements_sent(builder.local), builder.costs.cast_to_fp32(builder.local.element_bytes)
    if cast.launches:
        builder.memory("weight rows, cast back", elements * cast.bytes)  # r w


def weight_rows_at_home_again(builder: LayerBuilder) -> None:
    """Append the recomputation of what the gradient of routing weights reads: the rows in FP32."""
    elements, cast = _elements_sent(builder.local), builder.costs.cast_to_fp32(builder.local.element_bytes)
    if cast.launches:
        builder.memory("rows in FP32 again", elements * cast.bytes, instructions=cast.instructions * elements)


def weight_rows_at_home_backward(builder: LayerBuilder) -> None:
    """Append the backward of ``weight_rows_at_home``: casts, and the gradients of rows and of routing
    weights."""
    if not weights_rows_at_home(builder.software):
        return
    _weight_in_fp32(builder, "weight rows backward")
    elements, cast = _elements_sent(builder.local), builder.costs.cast_to_fp32(builder.local.element_bytes)
    # of weights: product r r w, summed r; back r w
    builder.memory("row weights' gradient", elements * (16 + cast.bytes), launches=2 + cast.launches)


def _weight_in_fp32(builder: LayerBuilder, name: str) -> None:
    """Append the cast of rows, or of their gradients, to FP32 (r w), and their product with weights (r w)."""
    elements, cast = _elements_sent(builder.local), builder.costs.cast_to_fp32(builder.local.element_bytes)
    issued = (cast.instructions + STRIDED["FP32 product by row"]) * elements
    builder.memory(name, elements * (cast.bytes + 8), launches=1 + cast.launches, instructions=issued)


def weight_rows_of_experts(builder: LayerBuilder) -> None:
    """Append the product of what experts gave with the weights, which are cast before it."""
    if not weights_rows_of_experts(builder.software):
        return
    elements = _elements_received(builder.local)
    issued = STRIDED["product by row"] * elements
    # r w
    size = 2.0 * elements * builder.local.element_bytes
    builder.memory("weight rows", size, launches=2, instructions=issued)


def weight_rows_of_experts_backward(builder: LayerBuilder) -> None:
    """Append the gradients of the experts' output rows and of the routing weights."""
    if not weights_rows_of_experts(builder.software):
        return
    elements, e = _elements_received(builder.local), builder.local.element_bytes
    issued = STRIDED["product by row"] * elements
    builder.memory("weight rows backward", 2.0 * elements * e, instructions=issued)  # r w
    # product r r w, summed r; a cast
    builder.memory("row weights' gradient", 4.0 * elements * e, launches=3)


def _by_dispatcher(software: Software, dispatcher: str) -> bool:
    kernels, exchange = software.kernels, software.exchange
    return (
        kernels.weighted_rows and not uses_torch_operators(software) and exchange.moe_dispatcher == dispatcher
    )


def _elements_sent(local: LocalShape) -> float:
    return float(local_experts(local).sent(local.norm_tokens) * local.hidden)


def _elements_received(local: LocalShape) -> float:
    return float(local_experts(local).rows(local.norm_tokens) * local.hidden)
