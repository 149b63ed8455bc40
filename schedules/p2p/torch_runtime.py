"""The calls by which torch runs a schedule: which messages a rank posts, and where it waits for them.

GPipe and 1F1B, with one stage per rank, have runtimes of their own. There every receive is waited for
where it is posted. GPipe waits for its sends at the turn and at the end. 1F1B waits for a send after its
next action; where forwards and backwards take turns it posts a send and the receive after it as one call,
and waits for both. Every other order is worked through as its lowered list says: receives are posted
early and waited for right before use, sends at the very end.

Source: torch.distributed.pipelining 2.13 ``schedules.py``: ``ScheduleGPipe``, ``Schedule1F1B`` and
``_PipelineScheduleRuntime``, each its ``_step_microbatches``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..orders.action import ActionKind, Order, Orders, actions_of, parts
from ..orders.schedule import Placement, Shape
from ..pipeline import gpipe, one_f_one_b
from .ends import Ends
from .instructions import Instruction, MessageGroup, Recv, RunAction, Send, Wait
from .torch_lowering import Entry, StageCall, lowered


def torch_messages(orders: Orders, shape: Shape, rank_of: Placement) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank.

    1F1B's own runtime refuses fewer microbatches than ranks; there the lowered list is what torch can run.
    Raises ValueError for orders that torch cannot run.
    """
    ends = Ends(orders=orders, shape=shape, rank_of=rank_of)
    if shape.chunks == 1:
        plain = Shape(ranks=shape.ranks, microbatches=shape.microbatches)
        if orders == gpipe.orders(plain):
            return tuple(_gpipe(order, ends) for order in orders)
        if shape.microbatches >= shape.ranks and orders == one_f_one_b.orders(plain):
            return tuple(_one_f_one_b(order, ends) for order in orders)
    return tuple(_lowered(entries, ends) for entries in lowered(orders, shape, rank_of))


def _gpipe(order: Order, ends: Ends) -> tuple[Instruction, ...]:
    instructions: list[Instruction] = []
    for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
        sends: list[Send] = []
        for action in (action for action in actions_of(order) if action.kind is kind):
            if recv := ends.received(action):
                instructions.append(MessageGroup((recv,), blocking=True))
            instructions.append(RunAction(action))
            if send := ends.sent(action):
                instructions.append(MessageGroup((send,), blocking=False))
                sends.append(send)
        instructions += map(Wait, sends)
    return tuple(instructions)


def _one_f_one_b(order: Order, ends: Ends) -> tuple[Instruction, ...]:
    actions = list(actions_of(order))
    instructions: list[Instruction] = []
    kept: Send | None = None  # for the call that brings the next input
    sending: Send | None = None
    for position, action in enumerate(actions):
        if call := tuple(part for part in (kept, ends.received(action)) if part):
            instructions.append(MessageGroup(call, blocking=True))
        instructions.append(RunAction(action))
        if sending:
            instructions.append(Wait(sending))
        kept = sending = None
        send = ends.sent(action)
        if any(after.kind is not action.kind for after in actions[position + 1 : position + 2]):
            kept = send
        elif send:
            instructions.append(MessageGroup((send,), blocking=False))
            sending = send
    if sending:
        instructions.append(Wait(sending))
    return tuple(instructions)


def _lowered(entries: Sequence[Entry], ends: Ends) -> tuple[Instruction, ...]:
    instructions: list[Instruction] = []
    sends: list[Send] = []
    for entry in entries:
        match entry:
            case StageCall():
                continue  # FSDP's, which moves no results
            case Send() | Recv():
                instructions.append(MessageGroup((entry,), blocking=False))
                if isinstance(entry, Send):
                    sends.append(entry)
            case _:
                instructions += (Wait(recv) for recv in map(ends.received, parts(entry)) if recv)
                instructions.append(RunAction(entry))
    # The last posted is waited for first, as torch does: nothing is left to run in between.
    return (*instructions, *map(Wait, reversed(sends)))
