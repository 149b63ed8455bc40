"""Reference timing of written-out messages.

A message starts when both ends have posted it; with ``eager`` when it is sent, as if its receive had been
posted long before. It takes ``latency``. A blocking group holds its rank until every part of it is done;
other groups hold nobody until one of their parts is waited for. Written apart from the engine, to hold
lowered programs to.
"""

from __future__ import annotations

from collections.abc import Sequence

from asap import Stuck, Times

from stepsim.schedules.orders.action import Action, actions_of
from stepsim.schedules.p2p.point_to_point import Instruction, MessageGroup, MessagePart, RunAction, Send, Wait


def rendezvous(
    programs: Sequence[Sequence[Instruction]], times: Times, *, eager: bool = False
) -> tuple[float, ...]:
    """When each rank ends. Raises Stuck when ranks wait for each other."""
    posted: dict[tuple[bool, Action], float] = {}
    clock = [0.0] * len(programs)
    heads = [0] * len(programs)
    while any(head < len(program) for head, program in zip(heads, programs, strict=True)):
        before = len(posted), tuple(heads)
        for rank, program in enumerate(programs):
            while heads[rank] < len(program):
                end = _end(program[heads[rank]], clock[rank], posted, times, eager)
                if end is None:
                    break
                clock[rank] = end
                heads[rank] += 1
        if (len(posted), tuple(heads)) == before:
            stuck = [
                str(program[head])
                for head, program in zip(heads, programs, strict=True)
                if head < len(program)
            ]
            raise Stuck(stuck)
    return tuple(clock)


def _end(
    instruction: Instruction, now: float, posted: dict[tuple[bool, Action], float], times: Times, eager: bool
) -> float | None:
    """When the rank may go on; None while that is not known."""
    match instruction:
        case RunAction(step):
            return now + sum(times.of(action.kind) for action in actions_of([step]))
        case Wait(part):
            return _latest(now, (part,), posted, times, eager)
        case MessageGroup(parts, blocking):
            for part in parts:
                posted.setdefault((isinstance(part, Send), part.action), now)
            return _latest(now, parts, posted, times, eager) if blocking else now


def _latest(
    now: float,
    parts: Sequence[MessagePart],
    posted: dict[tuple[bool, Action], float],
    times: Times,
    eager: bool,
) -> float | None:
    ends = [now]
    for part in parts:
        sides = [posted.get((sends, part.action)) for sends in ((True,) if eager else (True, False))]
        if None in sides:
            return None
        ends.append(max(side for side in sides if side is not None) + times.latency)
    return max(ends)
