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
from .pointwise import norm, residual_backward
from .recompute import FULL, Recompute, by_operators, title
from .shard import Shard
from .tape import Costs, Tape


def pair_block(
    forward: Shard, backward: Shard, software: Software, costs: Costs, recompute: Recompute
) -> Block:
    """One layer forward and one backward, of which ``recompute`` is run again first."""
    tape = Tape(costs.beside_exchanges(software.exchange_sms) if software.exchange_sms else costs)
    if recompute == FULL:
        write_forward(tape, backward, software)
    elif by_operators(recompute):
        operators_again(tape, backward, software, recompute)
    returned = _start_backward(tape, backward, software, recompute)
    sent = _start_forward(tape, forward, software)
    sent_back = _experts_backward(tape, backward, software, recompute, returned)
    combined = _experts_forward(tape, forward, software, sent)
    _end_backward(tape, backward, software, recompute, sent_back)
    _end_forward(tape, forward, software, combined)
    return tape.block(f"layer forward beside backward ({title(recompute)} recompute)")


def pairs_up(forward: Shard, backward: Shard) -> bool:
    """Whether there is anything to overlap: experts on other ranks."""
    return any(one.experts is not None and one.experts.ep > 1 for one in (forward, backward))


def _start_forward(tape: Tape, shard: Shard, software: Software) -> int | None:
    attention_part_forward(tape, shard, software)
    if shard.experts is None:
        mlp_forward(tape, shard, software)
        return None
    route(tape, shard, software)
    return exchange(tape, shard, "dispatch")


def _experts_forward(tape: Tape, shard: Shard, software: Software, sent: int | None) -> int | None:
    if shard.experts is None:
        return None
    arrive(tape, sent)
    work(tape, shard, software)
    return exchange(tape, shard, "combine")


def _end_forward(tape: Tape, shard: Shard, software: Software, combined: int | None) -> None:
    arrive(tape, combined)
    if shard.experts is not None:
        gather(tape, shard, software)
    end_forward(tape, shard, software)


def _start_backward(tape: Tape, shard: Shard, software: Software, recompute: Recompute) -> int | None:
    residual_backward(tape, shard, software)
    if shard.experts is None:
        mlp_backward(tape, shard, software, recompute=recompute)
        return None
    if "moe" in recompute:
        moe_forward(tape, shard, software)
    elif "shared_experts" in recompute:
        shared_forward(tape, shard, software)
    gather_backward(tape, shard, software)
    return exchange(tape, shard, "combine backward")


def _experts_backward(
    tape: Tape, shard: Shard, software: Software, recompute: Recompute, returned: int | None
) -> int | None:
    """The gradient of the rows goes home while those of the matrices are made."""
    if shard.experts is None:
        return None
    arrive(tape, returned)
    work_backward(tape, shard, software, recompute=recompute, split=True)
    sent_back = exchange(tape, shard, "dispatch backward")
    work_weight_grad(tape, shard, software)
    return sent_back


def _end_backward(
    tape: Tape, shard: Shard, software: Software, recompute: Recompute, sent_back: int | None
) -> None:
    arrive(tape, sent_back)
    if shard.experts is not None:
        if "layernorm" in recompute:
            norm(tape, shard, software)
        route_backward(tape, shard, software, split=False)
    attention_part_backward(tape, shard, software, recompute=recompute, split=False)
