"""Writes out the communication of an order: which messages a rank posts and awaits, and when.

Three rules, those of the frameworks (``RULES``). Knows neither seconds nor bytes.

Sources: torch.distributed.pipelining 2.13 runtime lowering (async); Megatron-LM d98e8a6 ``schedules.py``
without ``overlap_p2p_comm`` (blocking), with it (prefetch), and with ``overlap_p2p_comm_warmup_flush``
too (prefetch-full).
"""

from __future__ import annotations

from ..orders.action import Action, Kind, Order, Orders, Overlap, actions_of, parts
from ..orders.dependencies import consumer_stage, producer_stage
from ..orders.schedule import Placement, Shape
from ..pipeline import interleaved
from .instructions import Compute, Exchange, Instruction, Part, Recv, Send, Wait
from .interleaved import interleaved_messages

__all__ = ["RULES", "Compute", "Exchange", "Instruction", "Part", "Recv", "Send", "Wait", "point_to_point"]

RULES = ("async", "blocking", "prefetch", "prefetch-full")
"""How messages are posted and awaited.

async: sent when made, awaited just before use; no rank waits to send. blocking: each call is one group,
and the rank goes on when all its parts are done. prefetch: with several chunks per rank, the next
message is asked for before it is needed while F and B alternate; prefetch-full: all the time. With one
chunk per rank Megatron never prefetches: there the last two are blocking.
"""


def point_to_point(
    orders: Orders, shape: Shape, rank_of: Placement, rule: str
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank, rank 0 first, in program order.

    Raises ValueError for an unknown rule and for orders that the rule is not defined for.
    """
    if rule not in RULES:
        raise ValueError(f"no point-to-point rule is called {rule!r}; known: {', '.join(RULES)}")
    if rule == "async":
        return _asynchronous(orders, shape, rank_of)
    _refuse_split_backward(orders, rule)
    if shape.chunks == 1:
        return tuple(_blocking(orders, rank, shape, rank_of) for rank in range(len(orders)))
    if not _are_interleaved(orders, shape):
        raise ValueError(
            f"point-to-point rule {rule!r} with {shape.chunks} chunks per rank is defined for the schedule "
            "interleaved only; use async for another order"
        )
    if shape.microbatches < shape.ranks:
        raise ValueError(
            f"point-to-point rule {rule!r} is Megatron's, which never interleaves fewer microbatches "
            f"than ranks, so not {shape.microbatches} on {shape.ranks}; use async"
        )
    last = shape.microbatches % interleaved.group_size(shape)
    if 0 < last < shape.ranks:
        raise ValueError(
            f"point-to-point rule {rule!r} is Megatron's, which refuses a last group of {last} microbatches "
            f"on {shape.ranks} ranks; use async"
        )
    return interleaved_messages(orders, shape, rule)


def _are_interleaved(orders: Orders, shape: Shape) -> bool:
    """Whether the orders are those of the schedule interleaved, which some shapes do not have."""
    try:
        return orders == interleaved.SCHEDULE.orders(shape)
    except ValueError:
        return False


def _refuse_split_backward(orders: Orders, rule: str) -> None:
    for rank, order in enumerate(orders):
        for position, action in enumerate(order):
            if isinstance(action, Overlap) or action.kind in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
                raise ValueError(
                    f"point-to-point rule {rule!r} knows whole backwards only, but action {position} of rank "
                    f"{rank} is {action}; use async"
                )


def _asynchronous(orders: Orders, shape: Shape, rank_of: Placement) -> tuple[tuple[Instruction, ...], ...]:
    activations = _results(orders, Kind.FORWARD)
    gradients = _results(orders, Kind.BACKWARD, Kind.INPUT_GRAD)

    def received(action: Action) -> Recv | None:
        stage = producer_stage(action, shape)
        peer = _peer(stage, action, shape, rank_of)
        if stage is None or peer is None:
            return None
        results = activations if action.kind is Kind.FORWARD else gradients
        return Recv(results[stage, action.microbatch], peer)

    def written(order: Order) -> tuple[Instruction, ...]:
        instructions: list[Instruction] = []
        for step in order:
            for recv in filter(None, map(received, parts(step))):
                instructions += Exchange((recv,), blocking=False), Wait(recv)
            instructions.append(Compute(step))
            for send in filter(None, (_sent(action, shape, rank_of) for action in parts(step))):
                instructions.append(Exchange((send,), blocking=False))
        return tuple(instructions)

    return tuple(written(order) for order in orders)


def _results(orders: Orders, *kinds: Kind) -> dict[tuple[int, int], Action]:
    """Actions of these kinds by stage and microbatch."""
    return {
        (action.stage, action.microbatch): action
        for order in orders
        for action in actions_of(order)
        if action.kind in kinds
    }


def _blocking(orders: Orders, rank: int, shape: Shape, rank_of: Placement) -> tuple[Instruction, ...]:
    """One chunk per rank: a send and the receive after it are one call between F and B, else two.

    Separate calls there would have rank r sending up and rank r + 1 sending down wait for each other.
    """
    order, fuses = tuple(actions_of(orders[rank])), _alternates(orders, rank)
    instructions: list[Instruction] = []
    before: Action | None = None
    for action in order:
        send = _sent(before, shape, rank_of) if before else None
        recv = _received(action, shape, rank_of)
        if fuses and before and before.kind is not action.kind:
            _exchange(instructions, send, recv)
        else:
            _exchange(instructions, send)
            _exchange(instructions, recv)
        instructions.append(Compute(action))
        before = action
    if before:
        _exchange(instructions, _sent(before, shape, rank_of))
    return tuple(instructions)


def _alternates(orders: Orders, rank: int) -> bool:
    """Whether the rank has a steady phase, in which F and B take turns.

    One that runs all forwards first has none (GPipe; 1F1B with few microbatches), unless they take a
    single turn at its end: then the next rank takes turns before.
    """

    def turns_early(order: Order) -> bool:
        kinds = [action.kind for action in actions_of(order)]
        return Kind.FORWARD in kinds[kinds.index(Kind.BACKWARD) :]

    return any(turns_early(order) for order in orders[rank : rank + 2])


def _exchange(instructions: list[Instruction], *parts: Part | None) -> None:
    """Append one blocking call; a call without parts is none."""
    if present := tuple(part for part in parts if part):
        instructions.append(Exchange(present, blocking=True))


def _sent(action: Action, shape: Shape, rank_of: Placement) -> Send | None:
    peer = _peer(consumer_stage(action, shape), action, shape, rank_of)
    return None if peer is None else Send(action, peer)


def _received(action: Action, shape: Shape, rank_of: Placement) -> Recv | None:
    """What a forward or a whole backward awaits."""
    stage = producer_stage(action, shape)
    peer = _peer(stage, action, shape, rank_of)
    if stage is None or peer is None:
        return None
    return Recv(Action(stage, action.kind, action.microbatch), peer)


def _peer(stage: int | None, action: Action, shape: Shape, rank_of: Placement) -> int | None:
    """The rank that has ``stage`` of the action's microbatch; None where that is the action's own."""
    if stage is None:
        return None
    peer = rank_of(stage, action.microbatch, shape)
    return None if peer == rank_of(action.stage, action.microbatch, shape) else peer
