"""The z-loss: the square of each token's log-sum-exp over the vocabulary, which keeps logits small.

within: a loss that has the sum of exponentials anyway. Kernels written for it, and what a compiler makes of
the whole loss, scale the probabilities in the pass that writes the gradient, so that it costs nothing there.
Operators as Megatron core's multiply the probabilities once more, and add that to the gradient (nanotron's
copy them besides). apart: operators
of its own beside a loss that keeps its sums to itself. Bytes count reads (r) and writes (w) at HBM per logit.

References:
    Dao-AILab/flash-attention ops/triton/cross_entropy.py and linkedin/Liger-Kernel ops/cross_entropy.py:
    lse_square_scale; AI-Hypercomputer/maxtext max_utils.py, cross_entropy_with_logits. OpenEuroLLM/
    NVIDIA-Megatron-LM core/tensor_parallel/cross_entropy.py at b809e074: return_logsumexp of
    _VocabParallelCrossEntropy, and _VocabParallelLogsumexp beside TransformerEngine's loss
    (language_module.py at 19238a24, compute_language_model_loss); huggingface/nanotron parallel/
    tensor_parallel/functional.py at 00708b80, _ShardedCrossEntropyWithZLoss. allenai/OLMo-core at 011113e5
    nn/functional/cross_entropy_loss.py: logsumexp of FP32 logits beside torch's cross_entropy; PyTorch
    ATen/native/ReduceOps.cpp, logsumexp_out_impl, and FunctionsManual.cpp, logsumexp_backward.
"""

from __future__ import annotations

from ...scenario.software.software import Software
from .layer_builder import LayerBuilder
from .local_shape import LocalShape

_WIDE = 4
"""Bytes of a logit in FP32, which all of these operators take."""

_MULTIPLIED = ("vocab-parallel", "compiled")
"""Losses of Megatron core, whose probabilities are multiplied by a kernel of its own."""


def z_loss_forward(builder: LayerBuilder) -> None:
    """Append the log-sum-exp of a z-loss apart from the loss."""
    local = builder.local
    if builder.software.kernels.z_loss != "apart":
        return
    logits = float(local.tokens * local.vocabulary)
    rows = builder.costs.issued("FP32 product by row", logits)
    if _casts(builder.software) and (cast := builder.costs.cast_to_fp32(local.element_bytes)).launches:
        builder.memory("z-loss to FP32", logits * cast.bytes, instructions=logits * cast.instructions)
    builder.memory("z-loss maximum", logits * _WIDE)
    if local.tp > 1:
        builder.tp("z-loss maximum all_reduce", "all_reduce", local.tokens * 4.0)
    builder.memory("z-loss subtract", 2 * logits * _WIDE, instructions=rows)  # r w
    builder.memory("z-loss exponentiate, sum", 3 * logits * _WIDE, launches=2)  # r w, r
    if local.tp > 1:
        builder.tp("z-loss sum all_reduce", "all_reduce", local.tokens * 4.0)
    if _casts(builder.software):  # probabilities, which backward reads
        builder.memory("z-loss normalise", 2 * logits * _WIDE, instructions=rows)  # r w


def z_loss_backward(builder: LayerBuilder) -> None:
    """Append the gradient of a z-loss, and its sum with that of the loss."""
    local, kernels = builder.local, builder.software.kernels
    logits = float(local.tokens * local.vocabulary)
    multiplied = kernels.z_loss == "within" and kernels.cross_entropy in _MULTIPLIED
    if kernels.z_loss != "apart" and not multiplied:
        return
    rows = builder.costs.issued("FP32 product by row", logits)
    added = 3 * logits * _WIDE  # r r w
    if kernels.z_loss == "apart" and not _casts(builder.software):
        # logits less their logarithm, by row; exponentiated
        builder.memory("z-loss backward, subtract", 2 * logits * _WIDE, instructions=rows)  # r w
        builder.memory("z-loss backward, exponentiate", 2 * logits * _WIDE)  # r w
    builder.memory("z-loss backward", 2 * logits * _WIDE, instructions=rows)  # r w
    if kernels.z_loss == "apart" and _casts(builder.software):
        # back to the logits' own type, r w, in which gradients are added
        if (cast := builder.costs.cast_to_fp32(local.element_bytes)).launches:
            builder.memory("z-loss backward, cast", logits * cast.bytes)
        added = 3 * logits * local.element_bytes
    builder.memory("z-loss gradient add", added)


def z_loss_bytes(local: LocalShape, software: Software) -> float:
    """Bytes that a z-loss holds at the loss's peak: beside a loss, three FP32 tensors (what is exponentiated,
    its exponentials and what these become); within one of Megatron core, its gradient and the sum."""
    kernels = software.kernels
    logits = float(local.tokens * local.vocabulary)
    if kernels.z_loss == "apart":
        return 3 * logits * _WIDE
    multiplied = kernels.z_loss == "within" and kernels.cross_entropy in _MULTIPLIED
    return 2 * logits * _WIDE if multiplied else 0.0


def _casts(software: Software) -> bool:
    """Whether the loss reads logits in the model's type, so that a z-loss apart casts them for itself unless
    they are of FP32."""
    return not software.kernels.logits_fp32
