"""What torch.autocast casts around GEMMs whose weights and residual stream are FP32.

GEMMs run in 16 bit, of weights and rows that are cast for them; norms are among the operators that run in
FP32, and what a GEMM gives is added to a stream of FP32. A weight is cast once in each region that
autocast is on in: once in a forward, whoever reads it, and once more in what a checkpoint runs again. Rows
are cast by each GEMM that reads them. Gradients go back through the same casts, and autograd casts those
of a sum to the type of each summand.

References:
    PyTorch aten/src/ATen/autocast_mode.cpp (cached_cast keeps casts of FP32 leaves alone; clear_cache at the
    end of a region), autocast_mode.h (AT_FORALL_FP32: layer_norm, softmax, pow and their like);
    torch/csrc/autograd/engine.cpp (validate_outputs casts a gradient to its input's type);
    torch/utils/checkpoint.py (what is run again is within autocast anew).
"""

from __future__ import annotations

from .issued import NOTHING, Issued
from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def cast_weights(builder: LayerBuilder, weights: float, matrices: int) -> None:
    """Append the casts of so many ``matrices`` with ``weights`` elements to 16 bit: read, write."""
    if builder.local.autocast:
        builder.memory("cast weights", weights * _both(builder.local), launches=matrices)


def cast_rows(builder: LayerBuilder, readers: int) -> None:
    """Append the cast of a norm's output to 16 bit, once for each matrix that reads it: read, write.
    Compiled, the norm itself writes 16 bit."""
    local = builder.local
    if local.autocast and not builder.software.kernels.torch_compile:
        size = readers * local.norm_tokens * local.hidden * _both(local)
        builder.memory("cast rows", size, launches=readers)


def cast_row_gradients(builder: LayerBuilder, readers: int, sums: int) -> None:
    """Append what torch.autocast does with the gradients of a norm's output, which ``readers`` GEMMs read:
    each gradient is cast to FP32 (read, write), and they are added up (both read, one written).

    ``sums`` of these additions are counted elsewhere as if they were in 16 bit; their bytes are taken off
    here. Under torch.compile nothing is appended: the norm's backward reads 16 bit itself.
    """
    local = builder.local
    if not local.autocast or builder.software.kernels.torch_compile:
        return
    elements = float(local.norm_tokens * local.hidden)
    issued = builder.costs.issued("cast to FP32", readers * elements)
    builder.memory(
        "row gradients to FP32", readers * elements * _both(local), launches=readers, instructions=issued
    )
    added = 3 * ((readers - 1) * local.stream_bytes - sums * local.element_bytes)
    if added > 0:
        builder.memory("row gradients add", elements * added, launches=readers - 1 - sums)


def cast_branch_gradient(builder: LayerBuilder) -> None:
    """Append the cast of the residual stream's gradient to 16 bit, for the branch that was added: read,
    write. Compiled, this is no kernel of its own."""
    local = builder.local
    if local.autocast and not builder.software.kernels.torch_compile:
        builder.memory("branch gradient to 16 bit", local.norm_tokens * local.hidden * _both(local))


def cast_weight_gradient(builder: LayerBuilder, parameters: float, fresh_bytes: int) -> None:
    """Append the cast of a fresh gradient to FP32 if it is sharded next, instead of added to a whole one:
    read, write. The gradient of an embedding, which autocast does not touch, is FP32 already."""
    local = builder.local
    if local.autocast and not local.accumulates and fresh_bytes != local.stream_bytes:
        issued = issued_by_gradient_cast(builder, parameters)
        builder.memory("gradient cast", parameters * _both(local), instructions=issued)


def issued_by_gradient_cast(builder: LayerBuilder, parameters: float) -> Issued:
    """Instructions of torch's casts of so many gradients to FP32. Under autocast a compiled backward has a
    kernel of its own for them, whose bytes take longer."""
    compiled = builder.local.autocast and builder.software.kernels.torch_compile
    return NOTHING if compiled else builder.costs.issued("cast to FP32", parameters)


def _both(local: LocalShape) -> int:
    return local.element_bytes + local.stream_bytes
