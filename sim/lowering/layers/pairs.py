"""A forward of one microbatch and a backward of another, layer by layer, exchanges beside computation.

While tokens of one of them travel, kernels of the other run: on the compute stream attention forward,
the experts' backward, the experts' forward, attention backward; on the exchanges' stream combine backward,
dispatch, dispatch backward, combine. What is left exposed is the engine's to say.

The order is that of Megatron-LM model_chunk_schedule_plan.py (``overlap_moe_expert_parallel_comm``) and,
but for details, of DualPipe (DeepSeek-V3, arXiv:2412.19437 section 3.2.1 and figure 4).
"""

from __future__ import annotations

from ...program.program import Block
from ...scenario.software.software import Software
from .layer import attention_part_backward, attention_part_forward, end_forward, write_forward
from .layer_builder import KernelPricing, LayerBuilder
from .local_shape import LocalShape
from .mlp import mlp_backward, mlp_forward
from .moe import (
    arrive,
    exchange,
    gather,
    gather_backward,
    moe_forward,
    route,
    route_backward,
    shared_forward,
    work,
    work_backward,
    work_weight_grad,
)
from .operators import operators_again
from .pointwise import norm, residual_add_backward
from .recompute import FULL, Recompute, by_operators, title


def pair_block(
    forward: LocalShape, backward: LocalShape, software: Software, costs: KernelPricing, recompute: Recompute
) -> Block:
    """One layer forward and one backward, of which ``recompute`` is run again first."""
    builder = LayerBuilder(costs.during_exchanges(software.exchange_sms) if software.exchange_sms else costs)
    if recompute == FULL:
        write_forward(builder, backward, software)
    elif by_operators(recompute):
        operators_again(builder, backward, software, recompute)
    combine_backward = _start_backward(builder, backward, software, recompute)
    sent = _start_forward(builder, forward, software)
    sent_back = _experts_backward(builder, backward, software, recompute, combine_backward)
    combined = _experts_forward(builder, forward, software, sent)
    _end_backward(builder, backward, software, recompute, sent_back)
    _end_forward(builder, forward, software, combined)
    return builder.block(f"layer forward beside backward ({title(recompute)} recompute)")


def pairs_up(forward: LocalShape, backward: LocalShape) -> bool:
    """Whether there is anything to overlap: experts on other ranks."""
    return any(one.experts is not None and one.experts.ep > 1 for one in (forward, backward))


def _start_forward(builder: LayerBuilder, local: LocalShape, software: Software) -> int | None:
    attention_part_forward(builder, local, software)
    if local.experts is None:
        mlp_forward(builder, local, software)
        return None
    route(builder, local, software)
    return exchange(builder, local, "dispatch")


def _experts_forward(
    builder: LayerBuilder, local: LocalShape, software: Software, sent: int | None
) -> int | None:
    if local.experts is None:
        return None
    arrive(builder, sent)
    work(builder, local, software)
    return exchange(builder, local, "combine")


def _end_forward(builder: LayerBuilder, local: LocalShape, software: Software, combined: int | None) -> None:
    arrive(builder, combined)
    if local.experts is not None:
        gather(builder, local, software)
    end_forward(builder, local, software)


def _start_backward(
    builder: LayerBuilder, local: LocalShape, software: Software, recompute: Recompute
) -> int | None:
    residual_add_backward(builder, local, software)
    if local.experts is None:
        mlp_backward(builder, local, software, recompute=recompute)
        return None
    if "moe" in recompute:
        moe_forward(builder, local, software)
    elif "shared_experts" in recompute:
        shared_forward(builder, local, software)
    gather_backward(builder, local, software)
    return exchange(builder, local, "combine backward")


def _experts_backward(
    builder: LayerBuilder,
    local: LocalShape,
    software: Software,
    recompute: Recompute,
    combine_backward: int | None,
) -> int | None:
    """The gradient of the rows goes home while those of the matrices are made."""
    if local.experts is None:
        return None
    arrive(builder, combine_backward)
    work_backward(builder, local, software, recompute=recompute, split=True)
    sent_back = exchange(builder, local, "dispatch backward")
    work_weight_grad(builder, local, software)
    return sent_back


def _end_backward(
    builder: LayerBuilder, local: LocalShape, software: Software, recompute: Recompute, sent_back: int | None
) -> None:
    arrive(builder, sent_back)
    if local.experts is not None:
        if "layernorm" in recompute:
            norm(builder, local, software)
        route_backward(builder, local, software, split=False)
    attention_part_backward(builder, local, software, recompute=recompute, split=False)
