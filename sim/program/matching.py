"""Which calls and messages belong together: the calls of shared communicators, and the two ends of every
message.

Knows which ops of different classes must agree, and says where they do not. Knows no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..network.transfer import Transfer
from .program import Block, Collective, Exchange, MessageEnd, Program, Programs, RepeatedBlocks

Place = tuple[int, int]
"""A class and the index of one of its ops."""

Message = tuple[int, int, str]
"""Sending class, receiving class, tag."""

Calls = Mapping[str, Mapping[int, Sequence[int]]]
"""Ops that call each communicator, in order, by communicator and class."""


@dataclass(frozen=True, slots=True)
class OpEnds:
    """Where a message is sent and received; each should hold one place."""

    sends: list[tuple[Place, Transfer]] = field(default_factory=list)
    receives: list[tuple[Place, Transfer]] = field(default_factory=list)


def place_name(programs: Programs, place: Place) -> str:
    """``class 2, op 17 (exchange 1F0)``."""
    op = programs.classes[place[0]].ops[place[1]]
    return f"class {place[0]}, op {place[1]} ({f'{op.name} {op.action}'.rstrip()})"


def shared_calls(programs: Programs) -> Calls:
    """The calls of communicators that join classes."""
    calls: dict[str, dict[int, list[int]]] = {}
    for r, program in enumerate(programs.classes):
        for i, op in enumerate(program.ops):
            if isinstance(op.work, Collective) and op.work.communicator in programs.communicators:
                calls.setdefault(op.work.communicator, {}).setdefault(r, []).append(i)
    return calls


def message_of(r: int, part: MessageEnd) -> Message:
    """The message that a part posted by class ``r`` is one end of."""
    return (r, part.peer, part.tag) if part.send else (part.peer, r, part.tag)


def messages(programs: Programs) -> dict[Message, OpEnds]:
    """Every message, with its ends."""
    found: dict[Message, OpEnds] = {}
    for r, program in enumerate(programs.classes):
        for i, op in enumerate(program.ops):
            if isinstance(op.work, Exchange):
                for part in op.work.parts:
                    ends = found.setdefault(message_of(r, part), OpEnds())
                    (ends.sends if part.send else ends.receives).append(((r, i), part.transfer))
    return found


def block_rendezvous_problems(programs: Programs) -> Iterator[str]:
    """Problems of collectives that join classes within blocks, but not at the same place of their repeated
    blocks.

    The engine runs such blocks of all classes together, so they must be laid out alike.
    """
    layouts = [_rendezvous_layouts(programs, program) for program in programs.classes]
    for name in sorted(set().union(*layouts)):
        first, *others = programs.communicators[name]
        for r in others:
            if layouts[r].get(name) != layouts[first].get(name):
                yield (
                    f"communicator {name!r}: blocks of class {r} call it in other places than those of class "
                    f"{first}; expected the same repeated blocks, blocks and ops"
                )


def _rendezvous_layouts(programs: Programs, program: Program) -> dict[str, list[tuple[object, ...]]]:
    """The place, the size and the ops of each of the repeated blocks that calls a communicator, by
    communicator."""
    found: dict[str, list[tuple[object, ...]]] = {}
    known: dict[Block, tuple[int, dict[str, list[tuple[object, ...]]]]] = {}
    repeated_blocks = [op.work for op in program.ops if isinstance(op.work, RepeatedBlocks)]
    for number, repeated in enumerate(repeated_blocks):
        if repeated.communicators.isdisjoint(programs.communicators):
            continue
        for k, block in enumerate(repeated.row):
            if block not in known:
                known[block] = len(block.ops), _calls_of(programs, block)
            size, calls = known[block]
            for name, places in calls.items():
                found.setdefault(name, []).append((number, len(repeated.row), k, size, *places))
    return found


def _calls_of(programs: Programs, block: Block) -> dict[str, list[tuple[object, ...]]]:
    """The ops of a block that call communicators that join classes."""
    calls: dict[str, list[tuple[object, ...]]] = {}
    for i, op in enumerate(block.ops):
        if isinstance(op.work, Collective) and op.work.communicator in programs.communicators:
            calls.setdefault(op.work.communicator, []).append((i, op.work.kind, op.work.transfer))
    return calls


def matching_problems(programs: Programs) -> Iterator[str]:
    """What keeps collectives from gathering their members, and messages from finding their other end."""
    for name, calls in shared_calls(programs).items():
        yield from _communicator_problems(programs, name, calls)
    for message, ends in messages(programs).items():
        yield from _message_problems(programs, message, ends)


def _communicator_problems(
    programs: Programs, name: str, calls: Mapping[int, Sequence[int]]
) -> Iterator[str]:
    members = programs.communicators[name]
    if len(set(members)) < len(members):
        yield f"communicator {name!r}: joins a class twice (members {_listed(members)})"
        return
    for r in calls:
        if r not in members:
            where = place_name(programs, (r, calls[r][0]))
            yield f"{where}: is not a member of communicator {name!r} (members {_listed(members)})"
    for r in members:
        yield from _stream_problems(programs, name, r, calls.get(r, ()))
    first = members[0]
    for r in members[1:]:
        yield from _call_problems(programs, name, (first, calls.get(first, ())), (r, calls.get(r, ())))


def _stream_problems(programs: Programs, name: str, r: int, calls: Sequence[int]) -> Iterator[str]:
    """Calls are numbered as they are reached, so one stream must give their order."""
    streams = sorted({programs.classes[r].ops[i].stream for i in calls})
    if len(streams) > 1 or (streams == ["free"] and len(calls) > 1):
        yield (
            f"class {r}: calls communicator {name!r} on stream{'s' if len(streams) > 1 else ''} "
            f"{_listed(streams)}, so that time would decide their order; expected one ordered stream"
        )


def _call_problems(
    programs: Programs, name: str, a: tuple[int, Sequence[int]], b: tuple[int, Sequence[int]]
) -> Iterator[str]:
    """The first call in which two members differ, else their numbers of calls."""
    for number, (i, j) in enumerate(zip(a[1], b[1], strict=False)):
        mine, other = programs.classes[a[0]].ops[i].work, programs.classes[b[0]].ops[j].work
        assert isinstance(mine, Collective)
        assert isinstance(other, Collective)
        if (mine.kind, mine.transfer, mine.calls) != (other.kind, other.transfer, other.calls):
            yield (
                f"communicator {name!r}, call {number}: {place_name(programs, (a[0], i))} is {_call(mine)}, "
                f"but {place_name(programs, (b[0], j))} is {_call(other)}"
            )
            return
    if len(a[1]) != len(b[1]):
        (more, less) = (a, b) if len(a[1]) > len(b[1]) else (b, a)
        extra = place_name(programs, (more[0], more[1][len(less[1])]))
        yield (
            f"communicator {name!r}: class {more[0]} calls it {len(more[1])} times and class {less[0]} "
            f"{len(less[1])} times; {extra} would wait for ever"
        )


def _call(work: Collective) -> str:
    t = work.transfer
    calls = f" in {work.calls} calls" if work.calls > 1 else ""
    return (
        f"{work.kind} of {t.bytes:,.0f} bytes{calls} ({t.latency_s:g} s, {t.ceiling_bytes_per_s:g} bytes/s)"
    )


def _message_problems(programs: Programs, message: Message, ends: OpEnds) -> Iterator[str]:
    sender, receiver, tag = message
    for what, found in (("sent", ends.sends), ("received", ends.receives)):
        if len(found) > 1:
            places = "; ".join(place_name(programs, place) for place, _ in found)
            route = f"message {tag} from class {sender} to class {receiver}"
            yield f"{route}: {what} {len(found)} times: {places}"
    if ends.sends and not ends.receives:
        where = place_name(programs, ends.sends[0][0])
        yield f"{where}: sends {tag} to class {receiver}, which never receives it from class {sender}"
    elif ends.receives and not ends.sends:
        where = place_name(programs, ends.receives[0][0])
        yield f"{where}: receives {tag} from class {sender}, which never sends it to class {receiver}"
    elif ends.sends[0][1] != ends.receives[0][1]:
        send, receive = (place_name(programs, found[0][0]) for found in (ends.sends, ends.receives))
        yield f"{send}: sends {tag} with another transfer than {receive} receives it with"


def _listed(things: Sequence[object]) -> str:
    return ", ".join(map(str, things))
