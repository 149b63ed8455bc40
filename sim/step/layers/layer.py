"""One transformer layer on one rank: every kernel and collective, forward and backward.

Pre-norm blocks as Megatron-LM, Llama and their kin have them: norm, QKV, attention core,
projection, residual; norm, first MLP matrix, activation, second, residual. Bytes count reads and
writes at HBM; a comment beside a figure says which.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...program.program import Block
from ...software.software import Software
from .attention_core import attention_backward, attention_forward
from .linear import (
    Linear,
    column_backward,
    column_forward,
    column_input_grad,
    column_weight_grad,
    row_backward,
    row_forward,
    row_input_grad,
    row_weight_grad,
)
from .recompute import FULL, NOTHING, OPERATORS, Recompute, title
from .shard import Shard
from .tape import Costs, Tape


@dataclass(frozen=True, kw_only=True)
class Linears:
    """The weight matrices of a layer. ``first`` holds both branches of a SwiGLU, as one matrix or as two."""

    qkv: Linear
    proj: Linear
    first: tuple[Linear, ...]
    second: Linear


def linears(shard: Shard, software: Software) -> Linears:
    """QKV, projection, first and second MLP matrix, as this rank holds them."""
    h = shard.hidden
    branches = shard.gate if software.split_gate else 1
    return Linears(
        qkv=Linear(name="qkv", inputs=h, outputs=shard.qkv_width),
        proj=Linear(name="proj", inputs=shard.attention_width, outputs=h),
        first=(Linear(name="fc1", inputs=h, outputs=shard.ffn * shard.gate // branches),) * branches,
        second=Linear(name="fc2", inputs=shard.ffn, outputs=h),
    )


def forward_block(shard: Shard, software: Software, costs: Costs, recompute: Recompute) -> Block:
    """The layer's forward pass: the same whatever of it ``recompute`` runs again later."""
    tape = Tape(costs)
    write_forward(tape, shard, software)
    return tape.block("layer forward")


def backward_block(shard: Shard, software: Software, costs: Costs, recompute: Recompute) -> Block:
    """The layer's backward pass, with what of the forward pass it runs again."""
    return _backward(shard, software, costs, recompute, name="backward", split=False)


def input_grad_block(shard: Shard, software: Software, costs: Costs, recompute: Recompute) -> Block:
    """The layer's backward pass without the weight gradients, which are put off."""
    return _backward(shard, software, costs, recompute, name="input gradient", split=True)


def weight_grad_block(shard: Shard, software: Software, costs: Costs, recompute: Recompute) -> Block:
    """The weight gradients of the layer's matrices. Attention has none; norms and biases have theirs in I."""
    tape, weights = Tape(costs), linears(shard, software)
    row_weight_grad(tape, weights.second, shard, software)
    column_weight_grad(tape, weights.first, shard, software)
    row_weight_grad(tape, weights.proj, shard, software)
    column_weight_grad(tape, (weights.qkv,), shard, software)
    return tape.block("layer weight gradient")


def _backward(
    shard: Shard, software: Software, costs: Costs, recompute: Recompute, *, name: str, split: bool
) -> Block:
    tape = Tape(costs)
    if recompute == FULL:
        write_forward(tape, shard, software)
    elif recompute == OPERATORS:
        _operators_again(tape, shard, software)
    write_backward(tape, shard, software, recompute=recompute, split=split)
    return tape.block(f"layer {name} ({title(recompute)} recompute)")


def write_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """Append the forward pass to ``tape``."""
    weights = linears(shard, software)
    norm(tape, shard, software)
    column_forward(tape, (weights.qkv,), shard, software)
    _rearrange(tape, shard, software)
    _rope(tape, shard, software)
    attention_forward(tape, shard, software)
    row_forward(tape, weights.proj, shard, software)
    _residual(tape, shard, software)
    norm(tape, shard, software)
    column_forward(tape, weights.first, shard, software)
    _activation(tape, shard, software)
    row_forward(tape, weights.second, shard, software)
    _residual(tape, shard, software)
    _small_kernels(tape, software)


def _operators_again(tape: Tape, shard: Shard, software: Software) -> None:
    """torchtitan's rule: K, the projection and the second branch are multiplied again.

    Reduced outputs are kept, gathered inputs are not.
    """
    weights, h, branch = linears(shard, software), shard.hidden, shard.ffn
    keys = Linear(name="k again", inputs=h, outputs=shard.kv_heads * shard.head_dim)
    norm(tape, shard, software)
    column_forward(tape, (keys,), shard, software)
    _rope(tape, shard, software)
    tape.kernel("proj again", weights.proj.forward(shard))
    _residual(tape, shard, software)
    norm(tape, shard, software)
    if shard.gate == 2:
        column_forward(tape, (Linear(name="fc1 again", inputs=h, outputs=branch),), shard, software)
    _activation(tape, shard, software)


def write_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Append the backward pass, last operator first; ``split`` leaves out the matrices' weight gradients."""
    weights = linears(shard, software)
    row, column = (row_input_grad, column_input_grad) if split else (row_backward, column_backward)
    _residual_backward(tape, shard, software)
    if "mlp" in recompute:  # all of it, as a checkpoint does: the last product too
        column_forward(tape, weights.first, shard, software)
        _activation(tape, shard, software)
        row_forward(tape, weights.second, shard, software)
    row(tape, weights.second, shard, software)
    _activation_backward(tape, shard, software)
    if "layernorm" in recompute:
        norm(tape, shard, software)
    column(tape, weights.first, shard, software)
    norm_backward(tape, shard, software)
    _residual_backward(tape, shard, software)
    row(tape, weights.proj, shard, software)
    if "core_attn" in recompute:
        attention_forward(tape, shard, software)
    attention_backward(tape, shard, software)
    _rope(tape, shard, software)
    _rearrange(tape, shard, software)
    if "layernorm" in recompute:
        norm(tape, shard, software)
    column(tape, (weights.qkv,), shard, software)
    norm_backward(tape, shard, software)
    _small_kernels(tape, software)


def _rearrange(tape: Tape, shard: Shard, software: Software) -> None:
    """Copies that put Q, K and V into the layout that the attention kernel wants (and back)."""
    if software.qkv_copies:
        size = float(shard.tokens * shard.qkv_width * shard.element_bytes)
        tape.memory("rearrange QKV", software.qkv_copies * size, launches=(software.qkv_copies + 1) // 2)


def norm(tape: Tape, shard: Shard, software: Software) -> None:
    """LayerNorm or RMSNorm over the residual stream."""
    if software.fused_norm or software.torch_compile:
        tape.memory("norm", 2 * shard.norm_bytes)  # read, write
    else:
        # Eager: cast to FP32, square, mean, rsqrt-multiply, cast back, weight; 4-byte intermediates
        # (r e w 4, r 4 w 4, r 4, r 4 w 4, r 4 w e, r e w e).
        elements = shard.norm_tokens * shard.hidden
        tape.memory("norm", elements * (4 * shard.element_bytes + 28), launches=6)


def norm_backward(tape: Tape, shard: Shard, software: Software) -> None:
    """Gradient of the norm, and the add that joins it with the residual's gradient."""
    if software.fused_norm or software.torch_compile:
        tape.memory("norm backward", 3 * shard.norm_bytes)  # read dY and X, write dX
    else:
        elements = shard.norm_tokens * shard.hidden
        tape.memory("norm backward", elements * (6 * shard.element_bytes + 52), launches=10)
    tape.memory("residual gradient add", 3 * shard.norm_bytes)  # read both, write one


def _rope(tape: Tape, shard: Shard, software: Software) -> None:
    """Rotary embedding of Q and K (the same traffic backward)."""
    if not shard.rope:
        return
    size = shard.tokens * (shard.heads + shard.kv_heads) * shard.head_dim * shard.element_bytes
    if software.fused_rope or software.torch_compile:
        tape.memory("rope", 2.0 * size)  # read, write
    else:
        # rotate_half (negate, concatenate), two multiplications, one addition: 2 + 2 + 2 + 2 + 3 passes
        tape.memory("rope", 11.0 * size, launches=10)


def _activation(tape: Tape, shard: Shard, software: Software) -> None:
    wide = float(shard.tokens * shard.ffn * shard.element_bytes)
    if software.fused_activation or software.torch_compile:
        tape.memory("activation", (shard.gate + 1) * wide)  # read every branch, write one
    elif shard.gate == 2:
        tape.memory("activation", 5 * wide, launches=2)  # SiLU: r 1 w 1; multiply: r 2 w 1
    else:
        tape.memory("activation", (4 if shard.biases else 2) * wide, launches=2 if shard.biases else 1)


def _activation_backward(tape: Tape, shard: Shard, software: Software) -> None:
    wide = float(shard.tokens * shard.ffn * shard.element_bytes)
    if software.fused_activation or software.torch_compile:
        tape.memory("activation backward", (2 * shard.gate + 1) * wide)  # read inputs and dY, write dX
    elif shard.gate == 2:
        # multiply: r 3 w 2; SiLU: r 2 w 1; joining the two branches: r 2 w 2
        tape.memory("activation backward", 12 * wide, launches=5)
    else:
        tape.memory("activation backward", 3 * wide, launches=1)
    if shard.biases and not software.fused_activation:
        tape.memory("bias gradient", wide)


def _residual(tape: Tape, shard: Shard, software: Software) -> None:
    """Bias, dropout and residual addition after a row-parallel layer."""
    mask = shard.norm_tokens * shard.hidden if shard.dropout else 0
    if software.fused_residual or software.torch_compile:
        tape.memory("bias, dropout, add", 3 * shard.norm_bytes + mask)  # read both, write one
        return
    passes = 3 + (2 if shard.biases else 0) + (2 if shard.dropout else 0)
    tape.memory(
        "bias, dropout, add", passes * shard.norm_bytes + mask, launches=1 + shard.biases + shard.dropout
    )


def _residual_backward(tape: Tape, shard: Shard, software: Software) -> None:
    """Dropout's gradient and the bias gradient; a plain residual passes the gradient through."""
    if shard.dropout:
        tape.memory("dropout backward", 2 * shard.norm_bytes + shard.norm_tokens * shard.hidden)
    if shard.biases:
        tape.memory("bias gradient", shard.norm_bytes)


def _small_kernels(tape: Tape, software: Software) -> None:
    """Kernels that move next to nothing but are launched all the same (views, offsets, masks, hooks)."""
    if software.extra_launches_per_layer:
        tape.memory("small kernels", 0.0, launches=software.extra_launches_per_layer)
