"""The two ends of the model: embedding on the first stage; head (final norm, logits) and loss on the last.

The vocabulary is split over the TP group (Megatron's vocabulary-parallel embedding and cross
entropy): the embedding's output is reduced over the group, and so are the maximum, the sum of
exponentials and the target's logit of every token.
"""

from __future__ import annotations

from ..software.software import Software
from .layer import norm, norm_backward
from .linear import Linear, column_backward, column_forward
from .program import Block
from .shard import Shard
from .tape import Costs, Tape


def embedding_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Look the tokens up, reduce over TP, add positions, drop out."""
    tape = Tape(costs)
    tape.memory("embedding", 2 * shard.hidden_bytes, launches=3)  # read rows, write
    if shard.tp > 1:
        tape.tp(f"embedding {_reduction(shard)}", _reduction(shard), shard.hidden_bytes)
    if not shard.rope:
        tape.memory("position add", 3 * shard.norm_bytes)
    if shard.dropout:
        tape.memory("embedding dropout", 2 * shard.norm_bytes + shard.norm_tokens * shard.hidden)
    return tape.block("embedding forward")


def embedding_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Scatter the gradients into a dense table gradient and add that to the main gradient."""
    tape = Tape(costs)
    if shard.dropout:
        tape.memory("embedding dropout backward", 2 * shard.norm_bytes + shard.norm_tokens * shard.hidden)
    if shard.sequence_parallel:
        tape.tp("embedding all_gather", "all_gather", shard.hidden_bytes)
    table = float(shard.vocabulary * shard.hidden)
    # torch's embedding_dense_backward fills the whole table with zeros, then adds the tokens' rows.
    tape.memory("embedding gradient", table * shard.element_bytes + 3 * shard.hidden_bytes, launches=4)
    # It is no GEMM: its gradient is always added by a kernel of its own.
    tape.memory("accumulate gradient", table * (shard.element_bytes + 2 * software.main_grad_bytes))
    return tape.block("embedding backward")


def head_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Final norm and logits."""
    tape = Tape(costs)
    norm(tape, shard, software)
    column_forward(tape, (_head(shard),), shard, software)
    return tape.block("head forward")


def head_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Gradients of the head and of the final norm."""
    tape = Tape(costs)
    column_backward(tape, (_head(shard),), shard, software)
    norm_backward(tape, shard, software)
    return tape.block("head backward")


def loss_forward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Vocabulary-parallel cross entropy."""
    tape = Tape(costs)
    _loss(tape, shard, software)
    return tape.block("loss forward")


def loss_backward(shard: Shard, software: Software, costs: Costs) -> Block:
    """Gradient of the logits, from the probabilities that forward kept."""
    tape = Tape(costs)
    logits, e = float(shard.tokens * shard.vocabulary), shard.element_bytes
    wide = 4 if software.logits_fp32 else e
    if software.fused_cross_entropy:
        tape.memory("loss backward", logits * (wide + e))  # read probabilities, write the 16-bit gradient
    else:
        # multiply in place by the incoming gradient (r, w); cast back (r, w e)
        tape.memory(
            "loss backward", logits * (2 * wide + (wide + e if software.logits_fp32 else 0)), launches=4
        )
    return tape.block("loss backward")


def _reduction(shard: Shard) -> str:
    return "reduce_scatter" if shard.sequence_parallel else "all_reduce"


def _head(shard: Shard) -> Linear:
    return Linear(name="logits", inputs=shard.hidden, outputs=shard.vocabulary)


def _loss(tape: Tape, shard: Shard, software: Software) -> None:
    """Passes over the logits of the sharded cross entropy, and its three small all-reduces."""
    logits, e = float(shard.tokens * shard.vocabulary), shard.element_bytes
    wide = 4 if software.logits_fp32 else e
    small = shard.tokens * 4.0
    if software.fused_cross_entropy:
        tape.memory("loss", logits * (e + 2 * wide), launches=3)  # read, write probabilities, one reread
        if shard.tp > 1:
            tape.tp("loss all_reduce", "all_reduce", 3 * small)
        return
    cast = e + wide if software.logits_fp32 else 0
    tape.memory("logits cast, maximum", logits * (cast + wide), launches=2)
    if shard.tp > 1:
        tape.tp("loss maximum all_reduce", "all_reduce", small)
    tape.memory("subtract, gather target, exponentiate, sum", logits * 5 * wide, launches=10)  # r w, r w, r
    if shard.tp > 1:
        tape.tp("loss target all_reduce", "all_reduce", small)
        tape.tp("loss sum all_reduce", "all_reduce", small)
    tape.memory("normalise", logits * 2 * wide, launches=4)  # r w, kept for backward
    if software.extra_launches_per_microbatch:
        tape.memory("small kernels", 0.0, launches=software.extra_launches_per_microbatch)
