"""One microbatch's forward overlapped with another's backward, layer by layer: exchanges run beside kernels.

While tokens of one microbatch travel, kernels of the other run. The compute stream has attention forward, the
experts' backward, the experts' forward, attention backward; the exchanges' stream has combine backward,
dispatch, dispatch backward, combine. The engine says how much of the exchanges stays exposed.

The order is that of Megatron-LM model_chunk_schedule_plan.py (``overlap_moe_expert_parallel_comm``) and, but
for details, of DualPipe (DeepSeek-V3, arXiv:2412.19437 section 3.2.1 and figure 4). The host waits for the
number of rows in the forward as it does without overlap; it has then issued the backward's gradients of rows,
which the GPU runs meanwhile (docs/decisions/0191-hosts-that-wait-in-pairs-and-for-an-offset.md).
"""

from __future__ import annotations

from dataclasses import replace

from ...program.program import Block
from .expert_arrivals import indexed_by_torch
from .expert_work import experts_backward, experts_forward, experts_weight_grad
from .layer import attention_part_backward, attention_part_forward, end_forward, write_forward_again
from .layer_builder import LayerBuilder
from .local_shape import LocalShape
from .mlp import mlp_backward, mlp_forward
from .moe import (
    await_exchange,
    await_rows,
    exchange,
    moe_forward,
    route,
    route_backward,
    shared_forward,
    unpermute,
    unpermute_backward,
)
from .norms import norm
from .operators import operators_again
from .pointwise import residual_add_backward
from .recompute import FULL, Recompute, by_operators, title


def pair_block(
    builder: LayerBuilder,
    forward: LocalShape,
    backward: LocalShape,
    recompute: Recompute,
    *,
    records: bool = True,
) -> Block:
    """One layer's forward and another's backward as one block; the backward first recomputes
    ``recompute``. ``records``: autograd records the forward's experts and their router."""
    if sms := builder.software.exchange.exchange_sms:
        builder = replace(builder, costs=builder.costs.during_exchanges(sms))
    ahead, back = builder.on(forward), builder.on(backward)
    if recompute == FULL:
        write_forward_again(back)
    elif by_operators(recompute):
        operators_again(back, recompute)
    combine_backward = _start_backward(back, recompute)
    sent, sent_back = _both_ways(ahead, back, recompute, combine_backward, records=records)
    combined = _experts_forward(ahead, sent)
    _end_backward(back, recompute, sent_back)
    _end_forward(ahead, combined)
    return builder.block(f"layer forward beside backward ({title(recompute)} recompute)")


def pairs_up(forward: LocalShape, backward: LocalShape) -> bool:
    """Whether the layers of a forward and a backward have an exchange to overlap, which is so where experts
    are on other ranks."""
    return any(one.experts is not None and one.experts.ep > 1 for one in (forward, backward))


def _both_ways(
    ahead: LayerBuilder,
    back: LayerBuilder,
    recompute: Recompute,
    combine_backward: int | None,
    *,
    records: bool,
) -> tuple[int | None, int | None]:
    """Append all up to the forward's dispatch, and the experts' backward. Returns that dispatch, and the
    exchange of gradients."""
    _start_forward(ahead, records=records)
    if indexed_by_torch(back):  # the host waits in the experts' backward, which comes before the dispatch
        _rows_backward(back, recompute, combine_backward)
        sent = _dispatch(ahead)
        return sent, _send_back(back)
    sent = _dispatch(ahead)
    if back.local.experts is None:
        return sent, None
    first = len(back.ops)
    _rows_backward(back, recompute, combine_backward)
    back.issued_ahead(first)  # by its wait for the forward's rows the host has issued gradients of others
    return sent, _send_back(back)


def _start_forward(builder: LayerBuilder, *, records: bool) -> None:
    attention_part_forward(builder)
    if builder.local.experts is None:
        mlp_forward(builder)
    else:
        route(builder, records=records)


def _dispatch(builder: LayerBuilder) -> int | None:
    if builder.local.experts is None:
        return None
    await_rows(builder)
    return exchange(builder, "dispatch")


def _rows_backward(builder: LayerBuilder, recompute: Recompute, combine_backward: int | None) -> None:
    await_exchange(builder, combine_backward)
    experts_backward(builder, recompute=recompute, split=True)


def _send_back(builder: LayerBuilder) -> int | None:
    """Append the exchange of the rows' gradients, and the gradients of matrices, which run meanwhile."""
    sent_back = exchange(builder, "dispatch backward")
    experts_weight_grad(builder)
    return sent_back


def _experts_forward(builder: LayerBuilder, sent: int | None) -> int | None:
    local = builder.local
    if local.experts is None:
        return None
    await_exchange(builder, sent)
    experts_forward(builder)
    return exchange(builder, "combine")


def _end_forward(builder: LayerBuilder, combined: int | None) -> None:
    local = builder.local
    await_exchange(builder, combined)
    if local.experts is not None:
        unpermute(builder)
    end_forward(builder)


def _start_backward(builder: LayerBuilder, recompute: Recompute) -> int | None:
    local = builder.local
    residual_add_backward(builder)
    if local.experts is None:
        mlp_backward(builder, recompute=recompute)
        return None
    if "moe" in recompute:
        moe_forward(builder)
    elif "shared_experts" in recompute:
        shared_forward(builder)
    unpermute_backward(builder)
    return exchange(builder, "combine backward")


def _end_backward(builder: LayerBuilder, recompute: Recompute, sent_back: int | None) -> None:
    local = builder.local
    await_exchange(builder, sent_back)
    if local.experts is not None:
        if "layernorm" in recompute:
            norm(builder)
        route_backward(builder, split=False)
    attention_part_backward(builder, recompute=recompute, split=False)
