"""Writes out the communication of an order: which messages a rank posts and awaits, and when.

Three rules, those of the frameworks (``RULES``). Knows neither seconds nor bytes.

Sources: torch.distributed.pipelining 2.13 runtime lowering (async); Megatron-LM d98e8a6 ``schedules.py``
without ``overlap_p2p_comm`` (blocking), with it (prefetch), and with ``overlap_p2p_comm_warmup_flush``
too (prefetch-full).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import interleaved
from .action import Action, Kind, Orders
from .dependencies import consumer_stage, producer_stage
from .instructions import Compute, Exchange, Instruction, Part, Recv, Send, Wait
from .interleaved_messages import interleaved_messages
from .schedule import Shape

__all__ = ["RULES", "Compute", "Exchange", "Instruction", "Part", "Recv", "Send", "Wait", "point_to_point"]

RULES = ("async", "blocking", "prefetch", "prefetch-full")
"""How messages are posted and awaited.

async: sent when made, awaited just before use; no rank waits to send. blocking: each call is one group,
and the rank goes on when all its parts are done. prefetch: with several chunks per rank, the next
message is asked for before it is needed while F and B alternate; prefetch-full: all the time. With one
chunk per rank Megatron never prefetches: there the last two are blocking.
"""


def point_to_point(
    orders: Orders, shape: Shape, rank_of: Callable[[int, Shape], int], rule: str
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank, rank 0 first, in program order.

    Raises ValueError for an unknown rule and for orders that the rule is not defined for.
    """
    if rule not in RULES:
        raise ValueError(f"no point-to-point rule is called {rule!r}; known: {', '.join(RULES)}")
    ranks = [rank_of(stage, shape) for stage in range(shape.stages)]
    if rule == "async":
        return _asynchronous(orders, shape, ranks)
    _refuse_split_backward(orders, rule)
    if shape.chunks == 1:
        return tuple(_blocking(orders, rank, shape, ranks) for rank in range(len(orders)))
    if orders != interleaved.SCHEDULE.orders(shape):
        raise ValueError(
            f"point-to-point rule {rule!r} with {shape.chunks} chunks per rank is defined for the schedule "
            "interleaved only; use async for another order"
        )
    if shape.microbatches < shape.ranks:
        raise ValueError(
            f"point-to-point rule {rule!r} is Megatron's, which never interleaves fewer microbatches "
            f"than ranks, so not {shape.microbatches} on {shape.ranks}; use async"
        )
    return interleaved_messages(orders, shape, rule)


def _refuse_split_backward(orders: Orders, rule: str) -> None:
    for rank, order in enumerate(orders):
        for position, action in enumerate(order):
            if action.kind in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
                raise ValueError(
                    f"point-to-point rule {rule!r} knows whole backwards only, but action {position} of rank "
                    f"{rank} is {action}; use async"
                )


def _asynchronous(orders: Orders, shape: Shape, ranks: Sequence[int]) -> tuple[tuple[Instruction, ...], ...]:
    activations = _results(orders, Kind.FORWARD)
    gradients = _results(orders, Kind.BACKWARD, Kind.INPUT_GRAD)

    def received(action: Action) -> Recv | None:
        stage = producer_stage(action, shape)
        if stage is None or ranks[stage] == ranks[action.stage]:
            return None
        results = activations if action.kind is Kind.FORWARD else gradients
        return Recv(results[stage, action.microbatch], ranks[stage])

    def written(order: Sequence[Action]) -> tuple[Instruction, ...]:
        instructions: list[Instruction] = []
        for action in order:
            if recv := received(action):
                instructions += Exchange((recv,), blocking=False), Wait(recv)
            instructions.append(Compute(action))
            if send := _sent(action, shape, ranks):
                instructions.append(Exchange((send,), blocking=False))
        return tuple(instructions)

    return tuple(written(order) for order in orders)


def _results(orders: Orders, *kinds: Kind) -> dict[tuple[int, int], Action]:
    """Actions of these kinds by stage and microbatch."""
    return {
        (action.stage, action.microbatch): action
        for order in orders
        for action in order
        if action.kind in kinds
    }


def _blocking(orders: Orders, rank: int, shape: Shape, ranks: Sequence[int]) -> tuple[Instruction, ...]:
    """One chunk per rank: a send and the receive after it are one call between F and B, else two.

    Separate calls there would have rank r sending up and rank r + 1 sending down wait for each other.
    """
    order, fuses = orders[rank], _alternates(orders, rank)
    instructions: list[Instruction] = []
    before: Action | None = None
    for action in order:
        send = _sent(before, shape, ranks) if before else None
        recv = _received(action, shape, ranks)
        if fuses and before and before.kind is not action.kind:
            _exchange(instructions, send, recv)
        else:
            _exchange(instructions, send)
            _exchange(instructions, recv)
        instructions.append(Compute(action))
        before = action
    if before:
        _exchange(instructions, _sent(before, shape, ranks))
    return tuple(instructions)


def _alternates(orders: Orders, rank: int) -> bool:
    """Whether the rank has a steady phase, in which F and B take turns.

    One that runs all forwards first has none (GPipe; 1F1B with few microbatches), unless they take a
    single turn at its end: then the next rank takes turns before.
    """

    def turns_early(order: Sequence[Action]) -> bool:
        kinds = [action.kind for action in order]
        return Kind.FORWARD in kinds[kinds.index(Kind.BACKWARD) :]

    return any(turns_early(order) for order in orders[rank : rank + 2])


def _exchange(instructions: list[Instruction], *parts: Part | None) -> None:
    """Append one blocking call; a call without parts is none."""
    if present := tuple(part for part in parts if part):
        instructions.append(Exchange(present, blocking=True))


def _sent(action: Action, shape: Shape, ranks: Sequence[int]) -> Send | None:
    stage = consumer_stage(action, shape)
    return None if stage is None or ranks[stage] == ranks[action.stage] else Send(action, ranks[stage])


def _received(action: Action, shape: Shape, ranks: Sequence[int]) -> Recv | None:
    """What a forward or a whole backward awaits."""
    stage = producer_stage(action, shape)
    if stage is None or ranks[stage] == ranks[action.stage]:
        return None
    return Recv(Action(stage, action.kind, action.microbatch), ranks[stage])
