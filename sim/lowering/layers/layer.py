"""One transformer layer on one rank: every kernel and collective, forward and backward.

Pre-norm blocks as Megatron-LM, Llama and their kin have them: norm, projections, attention core,
projection, residual; norm, MLP or experts, residual. A layer of multi-token prediction first makes its
stream of two.
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from .attention_core import attention_backward, attention_forward
from .latent import latent_backward, latent_forward, latent_weight_grad, up_projections
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
from .mlp import mlp_backward, mlp_forward, mlp_weight_grad
from .moe import moe_backward, moe_forward, moe_weight_grad
from .operators import operators_again
from .pointwise import (
    norm,
    norm_backward,
    norm_quantises,
    rearrange,
    residual,
    residual_backward,
    rope,
    small_kernels,
)
from .prediction import join_backward, join_forward, join_weight_grad
from .recompute import FULL, NOTHING, Recompute, by_operators, title
from .shard import Shard
from .tape import Costs, Tape


def _qkv(shard: Shard) -> Linear:
    return Linear(name="qkv", inputs=shard.hidden, outputs=shard.qkv_width)


def _proj(shard: Shard) -> Linear:
    return Linear(name="proj", inputs=shard.attention_width, outputs=shard.hidden)


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
    tape = Tape(costs)
    (moe_weight_grad if shard.experts else mlp_weight_grad)(tape, shard, software)
    row_weight_grad(tape, _proj(shard), shard, software)
    if shard.latent:
        latent_weight_grad(tape, shard, software)
    else:
        column_weight_grad(tape, (_qkv(shard),), shard, software)
    if shard.prediction:
        join_weight_grad(tape, shard, software)
    return tape.block("layer weight gradient")


def _backward(
    shard: Shard, software: Software, costs: Costs, recompute: Recompute, *, name: str, split: bool
) -> Block:
    tape = Tape(costs)
    if recompute == FULL:
        write_forward(tape, shard, software)
    elif by_operators(recompute):
        operators_again(tape, shard, software, recompute)
    write_backward(tape, shard, software, recompute=recompute, split=split)
    return tape.block(f"layer {name} ({title(recompute)} recompute)")


def write_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """Append the forward pass to ``tape``."""
    attention_part_forward(tape, shard, software)
    if shard.experts:
        moe_forward(tape, shard, software)
    else:
        mlp_forward(tape, shard, software, cast=not norm_quantises(shard))
    end_forward(tape, shard, software)


def write_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute = NOTHING, split: bool = False
) -> None:
    """Append the backward pass, last operator first; ``split`` leaves out the matrices' weight gradients."""
    residual_backward(tape, shard, software)
    backward = moe_backward if shard.experts else mlp_backward
    backward(tape, shard, software, recompute=recompute, split=split)
    attention_part_backward(tape, shard, software, recompute=recompute, split=split)


def attention_part_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """All up to the MLP or the experts, the norm before these included."""
    if shard.prediction:
        join_forward(tape, shard, software)
    norm(tape, shard, software, into_product=not shard.latent)
    if shard.latent:
        latent_forward(tape, shard, software)
    else:
        column_forward(tape, (_qkv(shard),), shard, software, cast=not norm_quantises(shard))
    rearrange(tape, shard, software)
    rope(tape, shard, software)
    attention_forward(tape, shard, software)
    row_forward(tape, _proj(shard), shard, software)
    residual(tape, shard, software)
    norm(tape, shard, software, into_product=not shard.experts)


def attention_part_backward(
    tape: Tape, shard: Shard, software: Software, *, recompute: Recompute, split: bool
) -> None:
    """The same backward."""
    norm_backward(tape, shard, software)
    residual_backward(tape, shard, software)
    (row_input_grad if split else row_backward)(tape, _proj(shard), shard, software)
    if "mla_up_proj" in recompute:
        up_projections(tape, shard, software)
    if "core_attn" in recompute:
        attention_forward(tape, shard, software)
    attention_backward(tape, shard, software)
    rope(tape, shard, software, backward=True)
    rearrange(tape, shard, software)
    if "layernorm" in recompute:
        norm(tape, shard, software)
    if shard.latent:
        latent_backward(tape, shard, software, split=split)
    else:
        (column_input_grad if split else column_backward)(tape, (_qkv(shard),), shard, software)
    norm_backward(tape, shard, software)
    if shard.prediction:
        join_backward(tape, shard, software, split=split)
    small_kernels(tape, software)


def end_forward(tape: Tape, shard: Shard, software: Software) -> None:
    """What follows the MLP or the experts."""
    residual(tape, shard, software)
    small_kernels(tape, software)
