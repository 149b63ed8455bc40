"""What must hold for the messages of any order under any rule; asserts, for laws and goldens alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stepsim.schedules.orders.action import Action, ActionKind, Orders, actions_of
from stepsim.schedules.orders.schedule import Placement, Shape
from stepsim.schedules.p2p.instructions import (
    Instruction,
    MessageGroup,
    MessagePart,
    Recv,
    RunAction,
    Send,
    Wait,
)

Programs = Sequence[Sequence[Instruction]]


def exchanges(program: Sequence[Instruction]) -> Iterator[MessageGroup]:
    return (one for one in program if isinstance(one, MessageGroup))


def posted_parts(program: Sequence[Instruction]) -> Iterator[MessagePart]:
    return (part for exchange in exchanges(program) for part in exchange.parts)


def actions_keep_their_order(programs: Programs, orders: Orders) -> None:
    computed = (tuple(one.step for one in program if isinstance(one, RunAction)) for program in programs)
    assert orders == tuple(computed)


def every_needed_result_travels_once(
    programs: Programs, orders: Orders, shape: Shape, rank_of: Placement
) -> None:
    needed = set()
    for action in (
        one for order in orders for one in actions_of(order) if one.kind is not ActionKind.WEIGHT_GRAD
    ):
        consumer = action.stage + (1 if action.kind is ActionKind.FORWARD else -1)
        if 0 <= consumer < shape.stages:
            maker, taker = (rank_of(s, action.microbatch, shape) for s in (action.stage, consumer))
            needed |= {(action, maker, taker)} if maker != taker else set()
    sent, received = [], []
    for rank, program in enumerate(programs):
        for part in posted_parts(program):
            if isinstance(part, Send):
                sent.append((part.action, rank, part.peer))
            else:
                received.append((part.action, part.peer, rank))
    assert len(sent) == len(received) == len(needed)
    assert set(sent) == set(received) == needed


def both_ends_post_in_the_same_order(programs: Programs, *, directions_apart: bool) -> None:
    """NCCL pairs the messages from one rank to another by their order alone.

    ``directions_apart``: activations and gradients are counted apart, as on communicators of their own.
    """
    sent: dict[tuple[int, int, bool], list[Action]] = defaultdict(list)
    received: dict[tuple[int, int, bool], list[Action]] = defaultdict(list)
    for rank, program in enumerate(programs):
        for part in posted_parts(program):
            forward = directions_apart and part.action.kind is ActionKind.FORWARD
            if isinstance(part, Send):
                sent[rank, part.peer, forward].append(part.action)
            else:
                received[part.peer, rank, forward].append(part.action)
    assert sent == received


def two_ranks_list_their_messages_alike(programs: Programs) -> None:
    """Sends and receives between two ranks stand in one order on both: one stream can carry them."""
    seen: dict[tuple[int, int], list[Action]] = defaultdict(list)
    for rank, program in enumerate(programs):
        for part in posted_parts(program):
            seen[rank, part.peer].append(part.action)
    for (rank, peer), actions in seen.items():
        assert actions == seen[peer, rank], (rank, peer)


def inputs_are_there_before_use(programs: Programs, shape: Shape, rank_of: Placement) -> None:
    """And results before they are sent."""
    for program in programs:
        posted: set[MessagePart] = set()
        done: set[MessagePart] = set()
        arrived: set[tuple[int, bool, int] | None] = {None}
        computed: set[Action] = set()
        for one in program:
            match one:
                case RunAction(step):
                    for action in actions_of([step]):
                        needed = _remote_input(action, shape, rank_of)
                        assert needed in arrived, f"{action} starts too early"
                        computed.add(action)
                case MessageGroup(parts, blocking):
                    assert parts
                    assert not posted & set(parts)
                    assert all(part.action in computed for part in parts if isinstance(part, Send))
                    posted.update(parts)
                    if blocking:
                        done.update(parts)
                        arrived |= {_result(part.action) for part in parts if isinstance(part, Recv)}
                case Wait(part):
                    assert part in posted - done, "waits for what is not on its way"
                    done.add(part)
                    if isinstance(part, Recv):
                        arrived.add(_result(part.action))
        assert all(isinstance(part, Send) for part in posted - done)


def _result(action: Action) -> tuple[int, bool, int]:
    """Stage, whether it is an activation (else a gradient), microbatch."""
    return action.stage, action.kind is ActionKind.FORWARD, action.microbatch


def _remote_input(action: Action, shape: Shape, rank_of: Placement) -> tuple[int, bool, int] | None:
    """The result of another rank that the action needs."""
    forward = action.kind is ActionKind.FORWARD
    producer = action.stage + (-1 if forward else 1)
    if action.kind is ActionKind.WEIGHT_GRAD or not 0 <= producer < shape.stages:
        return None
    maker, taker = (rank_of(s, action.microbatch, shape) for s in (producer, action.stage))
    return None if maker == taker else (producer, forward, action.microbatch)
