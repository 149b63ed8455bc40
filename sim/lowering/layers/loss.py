"""The loss: passes over the logits, by how the software computes cross entropy over a vocabulary split by TP.

vocab-parallel: every rank keeps its share of the logits and reduces the maximum, the target's logit
and the sum of exponentials of each token (Megatron-LM vocab_parallel_cross_entropy). fused: the same
in one pass each way. compiled: Megatron core's own fused loss (fusions/fused_cross_entropy.py), whose
operators in place torch.compile cannot keep so: what is summed or scattered into as well gets a buffer of
its own and is copied back. compiled-torch: torch's cross_entropy under torch.compile, which keeps 16-bit
logits alone; of a rank's share of the vocabulary it is DTensor's, which torch.compile does not make one
kernel of. gathered: the logits are gathered and every rank computes the whole loss. eager:
torch's cross_entropy on FP32 copies, which keeps the log-softmax; of a rank's share of the vocabulary it is
DTensor's too, kernel by kernel (torch/distributed/tensor/parallel/loss.py). Bytes count reads (r) and
writes (w) at HBM per logit.
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from .layer_builder import LayerBuilder
from .local_shape import LocalShape
from .strided import Cast
from .z_loss import z_loss_backward, z_loss_bytes, z_loss_forward

SCATTERED_BYTES = 4
"""Bytes per logit of what DTensor's backward sets targets in (loss.py, _nll_loss_and_log_softmax_backward:
zeros like the FP32 log-softmax, indexed by targets with a tensor of values). torch.compile makes one kernel
of a scatter of one value into a constant alone (torch/_inductor/fx_passes/joint_graph.py,
scatter_upon_const_tensor), so that this has a buffer."""

_OUTGROWN = 50_000
"""Logits of a token from which on torch's log-softmax reads them three times from HBM: for the maximum, for
the sum, and to subtract both (ATen/native/cuda/SoftMax.cu, cunn_SoftMaxForward). Of fewer the second cache
holds a part: FP32 rows of 16,384, 32,000, 50,304 and 65,536 to 151,936 take an H200 9.5, 12.6, 15.2 and 15.1
to 15.3 bytes a logit at the rate of pointwise kernels (torch 2.11, 8,192 rows; with 4 bytes written)."""


def _log_softmax_passes(vocabulary: float) -> float:
    """Times that torch's log-softmax goes over logits: reads, and a write."""
    return 2 + 2 * min(1.0, vocabulary / _OUTGROWN)


def _cast_up(builder: LayerBuilder, logits: float) -> None:
    """Append the cast of 16-bit logits to FP32, which takes one element at a time (strided.py)."""
    cast = _cast(builder)
    if cast.launches:
        builder.memory("logits to FP32", logits * cast.bytes, instructions=logits * cast.instructions)


def _cast(builder: LayerBuilder) -> Cast:
    """The cast of a logit that the loss reads in FP32."""
    reads_wide = builder.software.kernels.logits_fp32
    return builder.costs.cast_to_fp32(builder.local.element_bytes if reads_wide else 4)


def loss_forward(builder: LayerBuilder) -> Block:
    """Append what computes the loss from the logits; probabilities are kept for backward."""
    software = builder.software
    z_loss_forward(builder)
    _FORWARD[software.kernels.cross_entropy](builder)
    if software.host.extra_launches_per_microbatch:
        builder.memory("small kernels", 0.0, launches=software.host.extra_launches_per_microbatch)
    return builder.block("loss forward")


def loss_backward(builder: LayerBuilder) -> Block:
    """Append the gradient of the logits, from what forward kept, and behind it the losses and metrics that
    the trainer logs."""
    local, software = builder.local, builder.software
    logits, e, wide = _share(local), local.element_bytes, logit_bytes(local, software)
    cast = _cast(builder).bytes
    if software.kernels.cross_entropy == "fused":
        builder.memory("loss backward", logits * (wide + e))  # probabilities r, 16-bit gradient w
    elif software.kernels.cross_entropy == "compiled-torch":
        # logits r, 16-bit gradient w; targets are scattered into zeros of their own: w, r
        scattered = 2 * SCATTERED_BYTES * (local.tp > 1)
        launches = 3 if local.tp > 1 else 1
        builder.memory("loss backward", logits * (wide + e + scattered), launches=launches)
    elif software.kernels.cross_entropy == "compiled":
        # to where targets are scattered into r w; scaled r, w over the probabilities, and in 16 bit w
        builder.memory("loss backward", logits * (4 * wide + e), launches=3)
    elif software.kernels.cross_entropy == "vocab-parallel":
        builder.memory("loss backward", logits * (2 * wide + cast), launches=4)  # scaled in place r w; cast
    elif software.kernels.cross_entropy == "eager":
        # zeros w, exponential r w, sum r r w, scaled r w; else as below, on the own share
        each, launches = (8, 8) if local.tp > 1 else (5, 5)
        builder.memory("loss backward", logits * (each * wide + cast), launches=launches)
    else:
        # zero fill w; log-softmax backward r for the sum, r r w (SoftMax.cu, cunn_SoftMaxBackward); cast; own
        # slice r w
        whole = logits * local.tp
        builder.memory("loss backward", whole * (5 * wide + cast) + logits * 2 * e, launches=6)
    z_loss_backward(builder)
    if copied := _copied_bytes(local, software):
        builder.memory("logits of metrics", 2 * logits * copied)  # r, w
    if software.kernels.logged_losses:
        _logged(builder, software.kernels.logged_losses)
    if passes := software.kernels.metric_passes:
        builder.memory("metrics", passes * logits * wide, launches=passes)
    return builder.block("loss backward")


def _logged(builder: LayerBuilder, times: int) -> None:
    """Append the losses that frameworks compute for their metrics, after the backward so that nothing waits
    for them.

    Under autocast torch's cross_entropy runs in FP32: each call casts the logits anew (torch/csrc
    autocast_mode, fp32 list), and keeps nothing.
    """
    wide, logits = 4, times * _share(builder.local)
    # cast r w; log-softmax; a token's own logit is next to nothing
    if (cast := builder.costs.cast_to_fp32(builder.local.element_bytes)).launches:
        issued = logits * cast.instructions
        builder.memory("logits of metrics to FP32", logits * cast.bytes, launches=times, instructions=issued)
    passes = _log_softmax_passes(builder.local.vocabulary)
    builder.memory("losses for metrics", logits * passes * wide, launches=5 * times)


def logits_bytes(local: LocalShape, software: Software) -> float:
    """Bytes of logits, probabilities and their gradient that one microbatch holds at its peak.

    A loss that takes tokens in chunks holds those of one chunk (linkedin/Liger-Kernel
    ops/fused_linear_cross_entropy.py computes a chunk's gradient before the next chunk, huggingface/trl's
    ``chunked_nll`` computes its logits again for it), and besides them the hidden states as chunks and their
    gradients (torchtitan components/loss.py, ChunkedCELoss: chunks made contiguous, h_chunk_grads).
    """
    chunks = software.kernels.loss_chunks
    cut = 2 * local.tokens * local.hidden * local.element_bytes if chunks > 1 else 0
    return (_whole_logits_bytes(local, software) + z_loss_bytes(local, software)) / chunks + cut


def _whole_logits_bytes(local: LocalShape, software: Software) -> float:
    """Bytes as of ``logits_bytes`` for a loss that takes all tokens of a microbatch at once."""
    e, wide = local.element_bytes, logit_bytes(local, software)
    if software.kernels.cross_entropy == "gathered":
        # gathered, as FP32, log-softmax of it, and the gradient of that
        return _share(local) * local.tp * (e + 3 * wide)
    if software.kernels.cross_entropy == "eager":
        # log-softmax, the gradient of the loss by it, and of what it took; DTensor's has an exponential too
        return _share(local) * (3 + (local.tp > 1) + software.kernels.holds_logits) * wide
    if software.kernels.cross_entropy == "compiled":
        # forward: what the head gave, its copy and the exponentials; backward: probabilities, those with
        # targets scattered into them, and the 16-bit gradient
        return _share(local) * (e + 2 * wide)
    if software.kernels.cross_entropy == "compiled-torch":
        # logits and their gradient, and what targets are scattered into
        return _share(local) * (wide + e + SCATTERED_BYTES * (local.tp > 1))
    if not software.kernels.loss_in_place:
        return _share(local) * 2 * wide  # what the loss was given and its own copy; 16 bit are free by then
    # behind the loss its gradient, what the head gave, and what metrics copy of that
    return _share(local) * (wide + e + _copied_bytes(local, software))


def _copied_bytes(local: LocalShape, software: Software) -> int:
    """Bytes of a logit that a trainer's metrics copy; those of several sequences, each without its last
    token, are in no one piece."""
    return local.element_bytes if software.kernels.metrics_copy_logits and local.batch > 1 else 0


def unusable_share(local: LocalShape, software: Software) -> float:
    """Bytes, per byte of logits, of free allocator blocks that are too small for any tensor at the loss's
    peak.

    16-bit logits leave blocks half as large as FP32 logits need. eager: the head's output, which is freed
    once it is cast (torchtitan train.py, ``del pred``). gathered: the list that torch's all_gather fills and
    the flat buffer behind it (torch ProcessGroupNCCL.cpp, allgather: newLikeFlat; Aleph-Alpha/scaling
    core/nn/linear/utils.py, _all_concat). For a loss in chunks, those of one chunk: the next chunk reuses the
    blocks.
    """
    e, loss = local.element_bytes, software.kernels.cross_entropy
    if logit_bytes(local, software) == e:
        return 0.0
    freed = {"eager": e, "gathered": 2 * e * local.tp * (local.tp > 1)}.get(loss, 0)
    return _share(local) * freed / software.kernels.loss_chunks / logits_bytes(local, software)


def _share(local: LocalShape) -> float:
    """Logits on this rank: its tokens times its part of the vocabulary."""
    return float(local.tokens * local.vocabulary)


def logit_bytes(local: LocalShape, software: Software) -> int:
    """Bytes of a logit in the type in which the loss reads it."""
    return 4 if software.kernels.logits_fp32 else local.element_bytes


def _parallel(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    logits, wide = _share(local), logit_bytes(local, software)
    small = local.tokens * 4.0
    _cast_up(builder, logits)
    builder.memory("logits maximum", logits * wide)
    if local.tp > 1:
        builder.tp("loss maximum all_reduce", "all_reduce", small)
    builder.memory(
        "subtract, gather target, exponentiate, sum", logits * 5 * wide, launches=10
    )  # r w, r w, r
    if local.tp > 1:
        builder.tp("loss target all_reduce", "all_reduce", small)
        builder.tp("loss sum all_reduce", "all_reduce", small)
    builder.memory("normalise", logits * 2 * wide, launches=4)  # r w


def _fused(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    logits, e, wide = _share(local), local.element_bytes, logit_bytes(local, software)
    builder.memory("loss", logits * (e + 2 * wide), launches=3)  # logits r, probabilities w and once more r
    if local.tp > 1:
        builder.tp("loss all_reduce", "all_reduce", 3 * 4.0 * local.tokens)


def _compiled(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    logits, e, wide = _share(local), local.element_bytes, logit_bytes(local, software)
    cast = e + wide if software.kernels.logits_fp32 else wide
    builder.memory("logits cast, maximum", logits * cast)  # r w
    if local.tp > 1:
        builder.tp("loss maximum all_reduce", "all_reduce", local.tokens * 4.0)
    builder.memory("exponentiate, sum", logits * 4 * wide, launches=4)  # r, fresh w; copied back r w
    if local.tp > 1:
        builder.tp("loss target and sum all_reduce", "all_reduce", 2 * local.tokens * 4.0)
    builder.memory("normalise", logits * 2 * wide)  # r w


def _compiled_torch(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    if local.tp == 1:
        _fused(builder)
        return
    # a kernel up to each all-reduce, which casts and subtracts as it reads
    each = _share(local) * logit_bytes(local, software)
    builder.memory("logits maximum", each)
    builder.tp("loss maximum all_reduce", "all_reduce", local.tokens * 4.0)
    builder.memory("logits exponentiate, sum", each)
    builder.tp("loss sum all_reduce", "all_reduce", local.tokens * 4.0)
    builder.memory("targets gather", local.tokens * 4.0)
    builder.tp("loss target all_reduce", "all_reduce", local.tokens * 4.0)


def _gathered(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    whole, e, wide = _share(local) * local.tp, local.element_bytes, logit_bytes(local, software)
    if local.tp > 1:
        builder.tp("logits all_gather", "all_gather", whole * e)
        builder.memory("logits concatenate", whole * 2 * e)
    _cast_up(builder, whole)
    passes = _log_softmax_passes(local.vocabulary * local.tp)
    builder.memory("log-softmax, accuracy", whole * (passes + 1) * wide, launches=11)  # argmax r


def _eager(builder: LayerBuilder) -> None:
    local, software = builder.local, builder.software
    logits, wide = _share(local), logit_bytes(local, software)
    _cast_up(builder, logits)
    if local.tp == 1:
        passes = _log_softmax_passes(local.vocabulary)
        builder.memory("log-softmax", logits * passes * wide, launches=5)
    else:  # DTensor's loss_parallel: maximum r, shifted r w, exponential r w, sum r, shifted r w
        builder.memory("log-softmax", logits * 8 * wide, launches=9)
        for what in ("maximum", "sum", "target"):
            builder.tp(f"loss {what} all_reduce", "all_reduce", local.tokens * 4.0)


_FORWARD = {
    "vocab-parallel": _parallel,
    "fused": _fused,
    "compiled": _compiled,
    "compiled-torch": _compiled_torch,
    "gathered": _gathered,
    "eager": _eager,
}
