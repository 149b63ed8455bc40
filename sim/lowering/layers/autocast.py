"""What torch.autocast casts around matrix products whose weights and residual stream are FP32.

Products run in 16 bit, of weights and rows that are cast for them; norms are among the operators that run in
FP32, and what a product gives is added to a stream of FP32. A weight is cast once in each region that
autocast is on in: once in a forward, whoever reads it, and once more in what a checkpoint runs again. Rows
are cast by each product that reads them. Gradients go back through the same casts, and autograd casts those
of a sum to the type of each summand.

References:
    PyTorch aten/src/ATen/autocast_mode.cpp (cached_cast keeps casts of FP32 leaves alone; clear_cache at the
    end of a region), autocast_mode.h (AT_FORALL_FP32: layer_norm, softmax, pow and their like);
    torch/csrc/autograd/engine.cpp (validate_outputs casts a gradient to its input's type);
    torch/utils/checkpoint.py (what is run again is within autocast anew).
"""

from __future__ import annotations

from .layer_builder import LayerBuilder
from .local_shape import LocalShape


def cast_weights(builder: LayerBuilder, weights: float, matrices: int) -> None:
    """The ``weights`` of so many matrices to 16 bit: read, write."""
    if builder.local.autocast:
        builder.memory("cast weights", weights * _both(builder.local), launches=matrices)


def cast_rows(builder: LayerBuilder, readers: int) -> None:
    """What a norm wrote to 16 bit, for each matrix that reads it: read, write. Compiled, the norm writes 16
    bit itself."""
    local = builder.local
    if local.autocast and not builder.software.kernels.torch_compile:
        size = readers * local.norm_tokens * local.hidden * _both(local)
        builder.memory("cast rows", size, launches=readers)


def cast_row_gradients(builder: LayerBuilder, readers: int, sums: int) -> None:
    """Gradients of these rows to FP32: read, write; and their sums there, of which so many are told of 16 bit
    elsewhere: read both, write one. Compiled, the norm's backward reads 16 bit."""
    local = builder.local
    if not local.autocast or builder.software.kernels.torch_compile:
        return
    elements = float(local.norm_tokens * local.hidden)
    builder.memory("row gradients to FP32", readers * elements * _both(local), launches=readers)
    added = 3 * ((readers - 1) * local.stream_bytes - sums * local.element_bytes)
    if added > 0:
        builder.memory("row gradients add", elements * added, launches=readers - 1 - sums)


def cast_branch_gradient(builder: LayerBuilder) -> None:
    """The residual's gradient to 16 bit, for what was added to it: read, write. Compiled, it is no kernel."""
    local = builder.local
    if local.autocast and not builder.software.kernels.torch_compile:
        builder.memory("branch gradient to 16 bit", local.norm_tokens * local.hidden * _both(local))


def cast_weight_gradient(builder: LayerBuilder, parameters: float, fresh_bytes: int) -> None:
    """A ``fresh`` gradient to FP32, where it is sharded next and not added to a whole one: read, write. That
    of a look-up, which autocast leaves alone, is FP32 as it comes."""
    local = builder.local
    if local.autocast and not local.accumulates and fresh_bytes != local.stream_bytes:
        builder.memory("gradient cast", parameters * _both(local))


def _both(local: LocalShape) -> int:
    return local.element_bytes + local.stream_bytes
