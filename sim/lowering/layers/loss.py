"""The loss: passes over the logits, by how the software computes cross entropy over a vocabulary split by TP.

vocab-parallel: every rank keeps its share of the logits and reduces the maximum, the target's logit
and the sum of exponentials of each token (Megatron-LM vocab_parallel_cross_entropy). fused: the same
in one pass each way. gathered: the logits are gathered and every rank computes the whole loss. eager:
torch's cross_entropy on FP32 copies, which keeps the log-softmax, on a rank's share of the vocabulary.
Bytes count reads (r) and writes (w) at HBM per logit.
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from .shard import Shard
from .tape import Costs, Tape


def loss_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """From the logits to the loss; probabilities are kept for backward."""
    tape = Tape(costs)
    {"vocab-parallel": _parallel, "fused": _fused, "gathered": _gathered, "eager": _eager}[
        software.cross_entropy
    ](tape, shard, software)
    if software.extra_launches_per_microbatch:
        tape.memory("small kernels", 0.0, launches=software.extra_launches_per_microbatch)
    return tape.block("loss forward")


def loss_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Gradient of the logits, from the probabilities that forward kept."""
    tape = Tape(costs)
    logits, e, wide = _share(shard), shard.element_bytes, _wide(shard, software)
    cast = wide + e if software.logits_fp32 else 0
    if software.cross_entropy == "fused":
        tape.memory("loss backward", logits * (wide + e))  # probabilities r, 16-bit gradient w
    elif software.cross_entropy == "vocab-parallel":
        tape.memory("loss backward", logits * (2 * wide + cast), launches=4)  # scaled in place r w; cast
    elif software.cross_entropy == "eager":
        tape.memory("loss backward", logits * (4 * wide + cast), launches=5)  # as below, on the own share
    else:
        # zero fill w; log-softmax backward r r w; cast; own slice r w
        whole = logits * shard.tp
        tape.memory("loss backward", whole * (4 * wide + cast) + logits * 2 * e, launches=6)
    return tape.block("loss backward")


def logits_bytes(shard: Shard, software: Software) -> float:
    """Bytes of logits, probabilities and their gradient that one microbatch holds at its peak."""
    e, wide = shard.element_bytes, _wide(shard, software)
    if software.cross_entropy == "gathered":
        # gathered, as FP32, log-softmax of it, and the gradient of that
        return _share(shard) * shard.tp * (e + 3 * wide)
    if software.cross_entropy == "eager":
        return _share(shard) * 3 * wide  # log-softmax, the gradient of the loss by it, and of what it took
    return _share(shard) * (wide + e)


def _share(shard: Shard) -> float:
    """Logits that this rank's part of the vocabulary gives."""
    return float(shard.tokens * shard.vocabulary)


def _wide(shard: Shard, software: Software) -> int:
    return 4 if software.logits_fp32 else shard.element_bytes


def _parallel(tape: Tape, shard: Shard, software: Software) -> None:
    logits, e, wide = _share(shard), shard.element_bytes, _wide(shard, software)
    small = shard.tokens * 4.0
    cast = e + wide if software.logits_fp32 else 0
    tape.memory("logits cast, maximum", logits * (cast + wide), launches=2)
    if shard.tp > 1:
        tape.tp("loss maximum all_reduce", "all_reduce", small)
    tape.memory("subtract, gather target, exponentiate, sum", logits * 5 * wide, launches=10)  # r w, r w, r
    if shard.tp > 1:
        tape.tp("loss target all_reduce", "all_reduce", small)
        tape.tp("loss sum all_reduce", "all_reduce", small)
    tape.memory("normalise", logits * 2 * wide, launches=4)  # r w


def _fused(tape: Tape, shard: Shard, software: Software) -> None:
    logits, e, wide = _share(shard), shard.element_bytes, _wide(shard, software)
    tape.memory("loss", logits * (e + 2 * wide), launches=3)  # logits r, probabilities w and once more r
    if shard.tp > 1:
        tape.tp("loss all_reduce", "all_reduce", 3 * 4.0 * shard.tokens)


def _gathered(tape: Tape, shard: Shard, software: Software) -> None:
    whole, e, wide = _share(shard) * shard.tp, shard.element_bytes, _wide(shard, software)
    if shard.tp > 1:
        tape.tp("logits all_gather", "all_gather", whole * e)
        tape.memory("logits concatenate", whole * 2 * e)
    cast = e + wide if software.logits_fp32 else 0
    tape.memory("logits cast, log-softmax, accuracy", whole * (cast + 3 * wide), launches=12)  # r w; argmax r


def _eager(tape: Tape, shard: Shard, software: Software) -> None:
    logits, e, wide = _share(shard), shard.element_bytes, _wide(shard, software)
    cast = e + wide if software.logits_fp32 else 0
    tape.memory("logits cast, log-softmax", logits * (cast + 2 * wide), launches=6)  # r w
    if shard.tp > 1:  # DTensor's loss_parallel: maximum, sum, target
        for what in ("maximum", "sum", "target"):
            tape.tp(f"loss {what} all_reduce", "all_reduce", shard.tokens * 4.0)
