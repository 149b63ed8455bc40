"""Writes out the communication of an order: which messages a rank posts and awaits, and when.

Six rules, those of the frameworks (``RULES``). Knows neither seconds nor bytes.

Sources: torch.distributed.pipelining 2.13 (torch; async is its lowering without an order between
messages); Megatron-LM d98e8a6 ``schedules.py`` without ``overlap_p2p_comm`` (blocking), with it
(prefetch), and with ``overlap_p2p_comm_warmup_flush`` too (prefetch-full); deepseek-ai/DualPipe 3da1bbe
(batched).
"""

from __future__ import annotations

from ..orders.action import Action, ActionKind, Order, Orders, Overlap, actions_of, parts
from ..orders.schedule import Placement, Shape, stage_to_rank
from .ends import Ends
from .instructions import Instruction, MessageGroup, MessagePart, Recv, RunAction, Send, Wait

__all__ = [
    "RULES",
    "Instruction",
    "MessageGroup",
    "MessagePart",
    "Recv",
    "RunAction",
    "Send",
    "Wait",
    "check_messages",
    "point_to_point",
]

RULES = ("async", "blocking", "prefetch", "prefetch-full", "torch", "batched")
"""How messages are posted and awaited.

async: sent when made, awaited just before use; no rank waits to send. blocking: each call is one group,
and the rank goes on when all its parts are done. prefetch: with several chunks per rank, the next
message is asked for before it is needed while F and B alternate; prefetch-full: all the time. With one
chunk per rank Megatron never prefetches: there the last two are blocking. torch: GPipe and 1F1B wait for
what they receive and soon for what they send; another order posts its receives early, in the order of
its lowered list (torch_lowering.py), and waits for its sends at the end. batched: DualPipe's; before each
action the rank waits for all that is queued, sends included.
"""


def point_to_point(
    orders: Orders, shape: Shape, rank_of: Placement, rule: str
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank, rank 0 first, in program order.

    Raises ValueError for an unknown rule and for orders that the rule is not defined for.
    """
    match rule:
        case "async":
            return _asynchronous(orders, shape, rank_of)
        case "torch":
            from .torch_runtime import torch_messages

            return torch_messages(orders, shape, rank_of)
        case "batched":
            from .dualpipe import dualpipe_messages

            return dualpipe_messages(orders, shape, rank_of)
        case "blocking" | "prefetch" | "prefetch-full":
            return _megatron(orders, shape, rank_of, rule)
    raise ValueError(f"no point-to-point rule is called {rule!r}; known: {', '.join(RULES)}")


def check_messages(orders: Orders, shape: Shape, rank_of: Placement, rule: str) -> None:
    """Refuse what ``point_to_point`` refuses, with the same ValueError, and write no instruction where the
    rule can tell from the orders. Only torch's lowering finds out as it writes.
    """
    match rule:
        case "async":
            return
        case "batched":
            from .dualpipe import check_kind

            check_kind(orders)
        case "blocking" | "prefetch" | "prefetch-full":
            _check_megatron(orders, shape, rank_of, rule)
        case _:
            point_to_point(orders, shape, rank_of, rule)


def _check_megatron(orders: Orders, shape: Shape, rank_of: Placement, rule: str) -> None:
    if refusal := _why_megatron_cannot(orders, shape):
        from .dualpipe import of_dualpipe_kind

        others = ["async"]
        others += ["torch"] * (stage_to_rank(rank_of, shape) is not None)
        others += ["batched"] * of_dualpipe_kind(orders)
        raise ValueError(f"point-to-point rule {rule!r} {refusal}; use {' or '.join(others)}")


def _megatron(
    orders: Orders, shape: Shape, rank_of: Placement, rule: str
) -> tuple[tuple[Instruction, ...], ...]:
    _check_megatron(orders, shape, rank_of, rule)
    if shape.chunks > 1:
        from .interleaved import interleaved_messages

        return interleaved_messages(orders, shape, rule)
    ends = Ends(orders=orders, shape=shape, rank_of=rank_of)
    return tuple(_blocking(orders, rank, ends) for rank in range(len(orders)))


def _why_megatron_cannot(orders: Orders, shape: Shape) -> str | None:
    for rank, order in enumerate(orders):
        for position, step in enumerate(order):
            if isinstance(step, Overlap) or step.kind in (ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD):
                return f"knows whole backwards only, but action {position} of rank {rank} is {step}"
    if shape.chunks == 1:
        return None
    if not _interleaved(orders, shape):
        return (
            f"with {shape.chunks} chunks per rank is defined for the schedule interleaved only, and this is "
            "another order"
        )
    if shape.microbatches < shape.ranks:
        return (
            "is Megatron's, which never interleaves fewer microbatches than ranks, so not "
            f"{shape.microbatches} on {shape.ranks}"
        )
    from ..pipeline import interleaved

    last = shape.microbatches % interleaved.group_size(shape)
    if 0 < last < shape.ranks:
        return f"is Megatron's, which refuses a last group of {last} microbatches on {shape.ranks} ranks"
    return None


def _interleaved(orders: Orders, shape: Shape) -> bool:
    from ..pipeline import interleaved

    try:
        return orders == interleaved.orders(shape)
    except ValueError:  # interleaved has no order of this shape
        return False


def _asynchronous(orders: Orders, shape: Shape, rank_of: Placement) -> tuple[tuple[Instruction, ...], ...]:
    ends = Ends(orders=orders, shape=shape, rank_of=rank_of)

    def written(order: Order) -> tuple[Instruction, ...]:
        instructions: list[Instruction] = []
        for step in order:
            for recv in filter(None, map(ends.received, parts(step))):
                instructions += MessageGroup((recv,), blocking=False), Wait(recv)
            instructions.append(RunAction(step))
            for send in filter(None, map(ends.sent, parts(step))):
                instructions.append(MessageGroup((send,), blocking=False))
        return tuple(instructions)

    return tuple(written(order) for order in orders)


def _blocking(orders: Orders, rank: int, ends: Ends) -> tuple[Instruction, ...]:
    """One chunk per rank: a send and the receive after it are one call between F and B, else two.

    Separate calls there would have rank r sending up and rank r + 1 sending down wait for each other.
    """
    order, fuses = tuple(actions_of(orders[rank])), _alternates(orders, rank)
    instructions: list[Instruction] = []
    before: Action | None = None
    for action in order:
        send = ends.sent(before) if before else None
        recv = ends.received(action)
        if fuses and before and before.kind is not action.kind:
            _exchange(instructions, send, recv)
        else:
            _exchange(instructions, send)
            _exchange(instructions, recv)
        instructions.append(RunAction(action))
        before = action
    if before:
        _exchange(instructions, ends.sent(before))
    return tuple(instructions)


def _alternates(orders: Orders, rank: int) -> bool:
    """Whether the rank has a steady phase, in which F and B take turns.

    One that runs all forwards first has none (GPipe; 1F1B with few microbatches), unless they take a
    single turn at its end: then the next rank takes turns before.
    """

    def turns_early(order: Order) -> bool:
        kinds = [action.kind for action in actions_of(order)]
        return ActionKind.FORWARD in kinds[kinds.index(ActionKind.BACKWARD) :]

    return any(turns_early(order) for order in orders[rank : rank + 2])


def _exchange(instructions: list[Instruction], *parts: MessagePart | None) -> None:
    """Append one blocking call; a call without parts is none."""
    if present := tuple(part for part in parts if part):
        instructions.append(MessageGroup(present, blocking=True))
