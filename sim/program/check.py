"""Checks programs before any time passes, ours or anyone's: whatever the engine could not replay, in words.

Here each op is checked by itself; matching.py checks who meets whom, and deadlock.py who waits for whom for
ever. Knows programs as objects; whether a file can be read as programs is for reader.py to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from ...schedules.orders.action import Action
from ..network.transfer import LINKS, Transfer
from ..result.step import AXES
from .bind import bound
from .deadlock import deadlock_problems
from .expand import rendezvous_expanded
from .matching import block_rendezvous_problems, matching_problems, place_name
from .program import Block, Collective, Compute, Exchange, MessageEnd, Op, Programs, RepeatedBlocks

CATEGORIES = ("compute", "optimizer", *AXES, "etp")
KERNEL_KINDS = ("gemm", "attention", "memory-bound", "fixed")
SHOWN = 20


class BrokenProgram(ValueError):
    """A program that cannot run to its end; ``problems`` holds all of them, the message the first SHOWN."""

    def __init__(self, source: str, problems: tuple[str, ...]) -> None:
        self.source, self.problems = source, problems
        lines = [f"{source}: {problem}" for problem in problems[:SHOWN]]
        if len(problems) > SHOWN:
            lines.append(f"{source}: and {len(problems) - SHOWN:,} more")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[object, ...]:
        """How to unpickle the error, which comes from child processes, from its own arguments."""
        return BrokenProgram, (self.source, self.problems)


def check_program(programs: Programs, source: str) -> None:
    """Raises BrokenProgram with every problem of ``programs``; ``source`` says whose they are."""
    problems = program_problems(programs)
    if problems:
        raise BrokenProgram(source, problems)


def program_problems(programs: Programs) -> tuple[str, ...]:
    """What is wrong, each with its class and op; nothing for programs that run to their end.

    Deadlocks are looked for only where all else is right: a message without its other end is one already.
    """
    programs = bound(programs)
    found = [*_machine_problems(programs), *_op_problems(programs), *block_rendezvous_problems(programs)]
    if found:
        return tuple(found)
    met = rendezvous_expanded(programs)
    return tuple(matching_problems(met)) or tuple(deadlock_problems(met))


# The machine ---------------------------------------------------------------------------------------


def _machine_problems(programs: Programs) -> Iterator[str]:
    if not any(program.ops for program in programs.classes):
        yield "no class has an op"
    if programs.sms < 1:
        yield f"sms: expected at least 1, got {programs.sms}"
    yield from _amounts("", {"corun_slowdown": programs.corun_slowdown})
    known = range(len(programs.classes))
    for name, members in programs.communicators.items():
        strangers = [r for r in members if r not in known]
        if strangers or not members:
            wrong = f"names class {strangers[0]}" if strangers else "has no member"
            yield f"communicator {name!r}: {wrong}; classes are 0 to {len(known) - 1}"
    for r, links in enumerate(programs.links):
        for name, rate in links.items():
            if name not in LINKS:
                yield f"class {r}: links: {name!r} is not known; known: {', '.join(LINKS)}"
            if not (math.isfinite(rate) and rate > 0):
                yield f"class {r}: links: {name}: expected bytes per second above 0, got {rate!r}"


# Ops -----------------------------------------------------------------------------------------------


def _op_problems(programs: Programs) -> Iterator[str]:
    right: set[object] = set()  # works and actions seen before: a problem is told once
    for r, program in enumerate(programs.classes):
        for i, op in enumerate(program.ops):
            place = (r, i)
            for problem in _entry_problems(op, i, right):
                yield f"{place_name(programs, place)}: {problem}"
            for problem in _work_problems(programs, r, op, right):
                yield f"{place_name(programs, place)}: {problem}"
        yield from _sm_problems(f"class {r}", _with_blocks(program.ops), programs.sms)


def _entry_problems(op: Op, index: int, right: set[object]) -> Iterator[str]:
    """What an op of any kind must be, in a program and in a block."""
    if any(not 0 <= d < index for d in op.after):
        wrong = next(d for d in op.after if not 0 <= d < index)
        earlier = f"an earlier op (0 to {index - 1})" if index else "nothing: it is the first op"
        yield f"after: expected {earlier}, got op {wrong}"
    if op.category not in CATEGORIES:
        yield f"category: {op.category!r} is not known; known: {', '.join(CATEGORIES)}"
    yield from _amounts("", {"host_s": op.host_s})
    if op.action and op.action not in right:
        try:
            Action.parse(op.action)
        except ValueError as mistake:
            yield f"action: {mistake}"
        right.add(op.action)


def _work_problems(programs: Programs, r: int, op: Op, right: set[object]) -> Iterator[str]:
    links = programs.links[r]
    match op.work:
        case Compute() as kernel:
            if kernel not in right:
                right.add(kernel)
                yield from _kernel_problems(kernel)
        case Collective(_, _, transfer, calls):
            if calls < 1:
                yield f"calls: expected 1 or more, got {calls}"
            yield from _transfer_problems(transfer, links, (".out", ".in"), right)
        case Exchange(parts):
            for part in parts:
                yield from _part_problems(part, r, len(programs.classes))
                yield from _transfer_problems(part.transfer, links, (".out" if part.send else ".in",), right)
        case RepeatedBlocks(blocks):
            if op.stream != "compute":
                yield f"stream: blocks run on the compute stream, got {op.stream!r}"
            for block, count in blocks:
                if count < 1:
                    yield f"blocks: {block.name!r}: expected to run once or more, got {count}"
                if (block, id(links)) not in right:
                    right.add((block, id(links)))
                    yield from _block_problems(programs, r, block, right)


def _part_problems(part: MessageEnd, r: int, classes: int) -> Iterator[str]:
    what = "send" if part.send else "receive"
    if part.peer == r:
        yield f"messages: {what} {part.tag}: a class cannot send to itself"
    elif not 0 <= part.peer < classes:
        yield f"messages: {what} {part.tag}: there is no class {part.peer}; classes are 0 to {classes - 1}"


def _block_problems(programs: Programs, r: int, block: Block, right: set[object]) -> Iterator[str]:
    """A block runs kernels on its compute stream, and collectives beside them."""
    for i, op in enumerate(block.ops):
        where = f"block {block.name!r}, op {i} ({op.name})"
        for problem in _entry_problems(op, i, right):
            yield f"{where}: {problem}"
        if isinstance(op.work, Exchange | RepeatedBlocks):
            yield f"{where}: a block holds kernels and collectives, no messages and no blocks"
            continue
        if (op.stream == "compute") != isinstance(op.work, Compute):
            yield f"{where}: stream: in a block, kernels and they alone are on the compute stream"
        if op.host_sync:
            yield f"{where}: host_sync: the host cannot wait inside a block"
        if isinstance(op.work, Collective) and op.work.calls > 1:
            yield f"{where}: calls: in a block, each call is an op of its own"
        for problem in _work_problems(programs, r, op, right):
            yield f"{where}: {problem}"


def _with_blocks(ops: Iterable[Op]) -> Iterator[Op]:
    """All ops, and once each those of the blocks that they run: others can run beside these."""
    seen: set[Block] = set()
    for op in ops:
        yield op
        for block, _ in op.work.blocks if isinstance(op.work, RepeatedBlocks) else ():
            if block not in seen:
                seen.add(block)
                yield from block.ops


def _sm_problems(where: str, ops: Iterable[Op], sms: int) -> Iterator[str]:
    """None can hold more SMs than there are. Several may ask for more (LEAST_SMS of kernels/gemm.py)."""
    most = max((op.work.transfer.sms for op in ops if isinstance(op.work, Collective)), default=0)
    if most > sms > 0:
        yield f"{where}: a collective holds {most} SMs, and there are {sms} in all"


# Amounts -------------------------------------------------------------------------------------------


def _kernel_problems(kernel: Compute) -> Iterator[str]:
    if kernel.kind not in KERNEL_KINDS:
        yield f"kernel: kind: {kernel.kind!r} is not known; known: {', '.join(KERNEL_KINDS)}"
    amounts = {"seconds": kernel.seconds, "flops": kernel.flops, "bytes": kernel.bytes}
    yield from _amounts("kernel: ", amounts)


def _transfer_problems(
    transfer: Transfer, links: Mapping[str, float], ends: tuple[str, ...], right: set[object]
) -> Iterator[str]:
    """``ends`` of links that this class provides: both for a collective, one for an end of a message."""
    if (transfer, id(links), ends) in right:
        return
    right.add((transfer, id(links), ends))
    amounts = {
        "latency_s": transfer.latency_s,
        "bytes": transfer.bytes,
        "sms": transfer.sms,
        "hbm": transfer.hbm,
    }
    yield from _amounts("transfer: ", amounts)
    if transfer.hbm > 1000:
        yield f"transfer: hbm: expected thousandths of the bandwidth, at most 1000, got {transfer.hbm!r}"
    if not transfer.ceiling_bytes_per_s > 0:
        yield f"transfer: ceiling_bytes_per_s: expected above 0, got {transfer.ceiling_bytes_per_s!r}"
    tiers = tuple(dict.fromkeys(name.partition(".")[0] for name in LINKS))
    for name, weight in transfer.weights:
        if name not in (*LINKS, *tiers):
            yield f"transfer: weights: link {name!r} is not known; known: {', '.join((*LINKS, *tiers))}"
            continue
        if not (math.isfinite(weight) and weight > 0):
            yield f"transfer: weights: {name}: expected above 0, got {weight!r}"
        used = [name] if name in LINKS else [f"{name}.out", f"{name}.in"]
        for link in used:
            if link.endswith(ends) and link not in links:
                has = ", ".join(links) or "none"
                yield f"transfer: weights: this class has no link {link} (links: {has})"


def _amounts(prefix: str, amounts: Mapping[str, float]) -> Iterator[str]:
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            yield f"{prefix}{name}: expected 0 or more, got {amount!r}"
