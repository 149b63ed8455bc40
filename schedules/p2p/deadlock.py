"""Whether ranks that move their messages by a rule come to wait for each other: a run without time.

A message goes over when both its ends are posted. A blocking group holds its rank until all its parts
have gone over; other groups hold nobody until one of their parts is waited for. Between two ranks, the
messages of one direction (activations, gradients) pair in the order in which they are posted: the n-th
sent with the n-th received. Only where no group of a channel blocks or has several parts does a runtime
order them itself (torch posts a receive when its send is posted), and they pair by name. Linear in the
number of instructions: a rank that waits is woken by what it waits for.

Knows instructions, not the rules that wrote them.

Source: NCCL user guide, "Point-to-point communication" (a group progresses as one, matching is by order).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ..orders.action import Action, ActionKind, Step
from ..orders.circles import circles, named
from ..orders.validate import Reason, TableProblem
from .instructions import Instruction, MessageGroup, MessagePart, Recv, RunAction, Send, Wait

Programs: TypeAlias = Sequence[Sequence[Instruction]]


class _Message(NamedTuple):
    sender: int
    receiver: int
    action: Action


class _Channel(NamedTuple):
    sender: int
    receiver: int
    carries: str


def instruction_problems(programs: Programs, rule: str) -> tuple[TableProblem, ...]:
    """Which ranks wait for each other for ever, at which actions; ``rule`` is how messages call theirs.

    ``programs`` are one of each rank, of orders that have all their work on the right ranks
    (orders/validate.py). Deadlocks are looked for only where both ends of every channel agree on its order.
    """
    return tuple(_crossed(programs)) or tuple(_deadlocks(programs, rule))


# Order of the messages between two ranks -------------------------------------------------------------------


@dataclass(slots=True)
class _Posted:
    """What is posted on a channel: on each end the actions, and where. ``ordered``: they pair by order."""

    sent: list[tuple[Action, int]] = field(default_factory=list)
    received: list[tuple[Action, int]] = field(default_factory=list)
    ordered: bool = False


def _crossed(programs: Programs) -> Iterator[TableProblem]:
    """The first message of each channel that does not meet its other end."""
    channels: dict[_Channel, _Posted] = {}
    for rank, program in enumerate(programs):
        for index, one in enumerate(program):
            if isinstance(one, MessageGroup):
                for part in one.parts:
                    posted = channels.setdefault(_channel(rank, part), _Posted())
                    posted.ordered |= one.blocking or len(one.parts) > 1
                    (posted.sent if isinstance(part, Send) else posted.received).append((part.action, index))
    for channel, posted in sorted(channels.items()):
        sent, received = ([action for action, _ in end] for end in (posted.sent, posted.received))
        if sent == received:
            continue
        assert sorted(sent) == sorted(received), f"a message of {channel} lacks its other end"
        if posted.ordered:
            n = next(n for n, pair in enumerate(zip(sent, received, strict=True)) if pair[0] != pair[1])
            rank = channel.receiver
            position, step = _standing(programs[rank], posted.received[n][1], sends=False)
            text = (
                f"takes {received[n]} as message {n + 1} of the {channel.carries} of rank {channel.sender}, "
                f"which sends {sent[n]} as that one: messages between two ranks pair by their order; run the "
                "two actions in the same order on both ranks, or use async"
            )
            yield TableProblem(reason=Reason.CROSSED, rank=rank, position=position, action=step, text=text)


def _channel(rank: int, part: MessagePart) -> _Channel:
    carries = "activations" if part.action.kind is ActionKind.FORWARD else "gradients"
    sender, receiver = (rank, part.peer) if isinstance(part, Send) else (part.peer, rank)
    return _Channel(sender, receiver, carries)


# Who waits for whom ----------------------------------------------------------------------------------------


def _deadlocks(programs: Programs, rule: str) -> Iterator[TableProblem]:
    heads, gone = _run(programs)
    stuck = {
        rank: _unmet(rank, program[heads[rank]], gone)
        for rank, program in enumerate(programs)
        if heads[rank] < len(program)
    }
    awaited = {rank: part for rank, part in stuck.items() if part is not None}
    assert len(awaited) == len(stuck), "a rank stands where nothing holds it"
    for circle in circles({rank: part.peer for rank, part in awaited.items()}):
        for rank in circle:
            part = awaited[rank]
            sends = isinstance(part, Send)
            position, step = _standing(programs[rank], heads[rank], sends=sends)
            lead = "has run, but its rank then waits" if sends else "cannot begin: its rank waits"
            text = (
                f"{lead} to {_described(part)}, while rank {part.peer} waits to "
                f"{_described(awaited[part.peer])}: deadlock of {named(circle)} under {rule}"
            )
            yield TableProblem(reason=Reason.DEADLOCK, rank=rank, position=position, action=step, text=text)


def _run(programs: Programs) -> tuple[list[int], dict[_Message, int]]:
    """The instruction at which each rank stops, and how many ends of each message are posted by then."""
    heads = [0] * len(programs)
    posted = [-1] * len(programs)  # the last group that each rank has posted
    ends: dict[_Message, int] = {}
    asleep: dict[_Message, list[int]] = {}
    awake = list(range(len(programs)))
    while awake:
        rank = awake.pop()
        program = programs[rank]
        while heads[rank] < len(program):
            head, one = heads[rank], program[heads[rank]]
            if isinstance(one, MessageGroup) and posted[rank] < head:
                posted[rank] = head
                for part in one.parts:
                    message = _message(rank, part)
                    ends[message] = ends.get(message, 0) + 1
                    awake += asleep.pop(message, ())
            unmet = _unmet(rank, one, ends)
            if unmet is not None:
                asleep.setdefault(_message(rank, unmet), []).append(rank)
                break
            heads[rank] += 1
    return heads, ends


def _unmet(rank: int, one: Instruction, ends: dict[_Message, int]) -> MessagePart | None:
    """A part that the instruction waits for; None if the rank may go on. What it posts is posted."""
    if isinstance(one, Wait):
        held: tuple[MessagePart, ...] = (one.part,)
    else:
        held = one.parts if isinstance(one, MessageGroup) and one.blocking else ()
    return next((part for part in held if ends[_message(rank, part)] < 2), None)


def _message(rank: int, part: MessagePart) -> _Message:
    if isinstance(part, Send):
        return _Message(rank, part.peer, part.action)
    return _Message(part.peer, rank, part.action)


# Words -----------------------------------------------------------------------------------------------------


def _standing(program: Sequence[Instruction], index: int, *, sends: bool) -> tuple[int, Step]:
    """The step of a rank at its ``index``: the one that it has run if it sends, else the one that comes.

    After the last step, that.
    """
    steps = [one.step for one in program if isinstance(one, RunAction)]
    before = sum(isinstance(one, RunAction) for one in program[:index])
    position = min(max(before - 1 if sends else before, 0), len(steps) - 1)
    return position, steps[position]


def _described(part: MessagePart) -> str:
    match part:
        case Send(action, peer):
            return f"send {action} to rank {peer}"
        case Recv(action, peer):
            return f"receive {action} from rank {peer}"
