"""A JSON document as programs: every field typed, every reference found, every mistake with its place.

Knows the format that file.py describes. Whether the programs can run is for check.py to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...hardware.catalogue import unknown_name
from ...hardware.collective_kinds import known_kind
from ..network.paths import NO_PATHS, Path, Paths
from ..network.patterns import PATTERNS
from ..network.transfer import Transfer
from ..result.step import RankClass
from .fields import Entry, Malformed
from .program import (
    ENDINGS,
    Block,
    Collective,
    Compute,
    Ending,
    Exchange,
    MessageEnd,
    Op,
    Program,
    Programs,
    RepeatedBlocks,
    Work,
)

T = TypeVar("T")

TOP = ("format", "version", "scenario", "sms", "corun_slowdown", "ends", "communicators", "links", "fabric")
TABLES = ("kernels", "transfers", "blocks", "classes")
OP = ("name", "stream", "category", "after", "action", "host_s", "host_sync")
WORK = {
    "kernel": ("kernel",),
    "collective": ("collective", "communicator", "transfer", "calls"),
    "messages": ("messages",),
    "blocks": ("blocks",),
}
"""The field that says what an op does, and the fields that go with it."""

FIELDS = {kind: (*OP, *fields) for kind, fields in WORK.items()}

IN_BLOCK = ("kernel", "collective")
"""What an op of a block may do: it runs on one rank alone, and blocks hold no blocks."""


@dataclass(kw_only=True)
class Reader:
    """What has been read so far. ``problems`` are gathered, so that one reading reports all of them."""

    problems: list[str] = field(default_factory=list)
    links: tuple[Mapping[str, float], ...] = ()
    kernels: dict[str, Compute] = field(default_factory=dict)
    transfers: dict[str, Transfer] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    collectives: dict[tuple[str, str, str, int], Collective] = field(default_factory=dict)
    repeated_blocks: dict[tuple[tuple[str, int], ...], RepeatedBlocks] = field(default_factory=dict)

    def read(self, document: object) -> tuple[Programs, tuple[RankClass, ...], dict[str, Any] | None]:
        """Programs, rank classes, and the scenario's document. Malformed lists all problems, one a line."""
        top = Entry.of("program", document, (*TOP, *TABLES))
        found = self._each(enumerate(top.items("links", [])), self._links)
        self.links = tuple(found)
        self.kernels = dict(self._each(top.table("kernels").items(), _kernel))
        self.transfers = dict(self._each(top.table("transfers").items(), _transfer))
        self._stop_at_problems()
        self.blocks = dict(self._each(top.table("blocks").items(), self._block))
        self._stop_at_problems()
        classes = self._each(enumerate(top.items("classes")), self._class)
        communicators = Entry("communicators", top.table("communicators"))
        members = self._each(communicators.fields, lambda name: (name, communicators.numbers(name)))
        self._stop_at_problems()
        scenario = top.fields.get("scenario")
        if scenario is not None and not isinstance(scenario, dict):
            raise top.wrong("scenario", "an object or null", scenario)
        programs = Programs(
            classes=tuple(program for program, _, _ in classes),
            communicators=dict(members),
            links=tuple(links for _, links, _ in classes),
            sms=top.whole("sms", least=1),
            corun_slowdown=top.number("corun_slowdown", 0.0),
            ends=_ending(top),
            paths=_fabric(top, len(classes)),
        )
        return programs, tuple(ranks for _, _, ranks in classes), scenario

    # Entries -----------------------------------------------------------------------------------

    def _links(self, item: tuple[int, object]) -> Mapping[str, float]:
        entry = Entry(f"links {item[0]}", item[1]) if isinstance(item[1], dict) else None
        if entry is None:
            raise Malformed(f"links {item[0]}: expected an object of link names and bytes per second")
        return {name: entry.number(name) for name in entry.fields}

    def _block(self, item: tuple[str, object]) -> tuple[str, Block]:
        name, ops = item
        if not isinstance(ops, list):
            raise Malformed(f"block {name!r}: expected a list of ops")
        return name, Block(name, self._ops(f"block {name!r}", ops, IN_BLOCK))

    def _class(self, item: tuple[int, object]) -> tuple[Program, Mapping[str, float], RankClass]:
        r, value = item
        entry = Entry.of(f"class {r}", value, ("name", "pp", "count", "first_rank", "links", "ops"))
        ops = self._ops(f"class {r}", entry.items("ops"))
        ranks = RankClass(
            name=entry.text("name", f"class {r}"),
            pp=entry.whole("pp", r),
            count=entry.whole("count", 1, least=1),
            first_rank=entry.whole("first_rank", r),
        )
        if "links" not in entry.fields:
            return Program(ops=ops), {}, ranks
        number = entry.whole("links")
        if number >= len(self.links):
            raise entry.wrong("links", f"one of the {len(self.links)} entries of links", number)
        return Program(ops=ops), self.links[number], ranks

    def _ops(self, where: str, ops: list[object], kinds: Iterable[str] = tuple(WORK)) -> tuple[Op, ...]:
        read = partial(self._op, where, kinds)
        return tuple(self._each(enumerate(ops), lambda item: read(*item)))

    def _op(self, where: str, kinds: Iterable[str], index: int, value: object) -> Op:
        where = f"{where}, op {index}"
        asked = [kind for kind in WORK if kind in value] if isinstance(value, dict) else []
        if isinstance(value, dict) and (len(asked) != 1 or asked[0] not in kinds):
            got = " and ".join(asked) or f"none among {', '.join(value)}"
            raise Malformed(f"{where}: expected one of {', '.join(kinds)}, got {got}")
        entry = Entry.of(where, value, FIELDS[asked[0]] if asked else OP)
        stream = entry.text("stream", "compute")
        after = entry.numbers("after", [])
        if any(not -index <= offset < 0 for offset in after):
            raise entry.wrong("after", f"numbers from -1 (the op before this one) to {-index}", list(after))
        return Op(
            entry.text("name"),
            stream,
            entry.text("category", stream),
            self._work(asked[0], entry),
            tuple(index + offset for offset in after),
            entry.text("action", ""),
            entry.number("host_s", 0.0),
            entry.flag("host_sync"),
        )

    # Work --------------------------------------------------------------------------------------

    def _work(self, kind: str, entry: Entry) -> Work:
        if kind == "kernel":
            return _named(self.kernels, entry, "kernel")
        if kind == "messages":
            return Exchange(tuple(self._part(entry.where, part) for part in entry.items("messages")))
        if kind == "blocks":
            return self._repeated(entry)
        names = entry.text("collective"), entry.text("communicator"), entry.text("transfer")
        key = *names, entry.whole("calls", 1, least=1)
        if key not in self.collectives:
            transfer = _named(self.transfers, entry, "transfer")
            kind = known_kind(key[0]) or key[0]
            self.collectives[key] = Collective(kind, key[1], transfer, key[3])
        return self.collectives[key]

    def _part(self, where: str, value: object) -> MessageEnd:
        send = isinstance(value, dict) and "send" in value
        tag, peer = ("send", "to") if send else ("receive", "from")
        entry = Entry.of(f"{where}, messages", value, (tag, peer, "transfer"))
        transfer = _named(self.transfers, entry, "transfer")
        return MessageEnd(send, entry.whole(peer), entry.text(tag), transfer)

    def _repeated(self, entry: Entry) -> RepeatedBlocks:
        pairs = entry.items("blocks")
        for pair in pairs:
            if not (isinstance(pair, list) and [type(x) for x in pair] == [str, int]):
                raise entry.wrong("blocks", 'pairs as in ["layer forward", 3]', pair)
            if pair[0] not in self.blocks:
                raise Malformed(f"{entry.where}: blocks: {unknown_name('block', pair[0], self.blocks)}")
        key = tuple((name, count) for name, count in pairs)
        if key not in self.repeated_blocks:
            self.repeated_blocks[key] = RepeatedBlocks(
                tuple((self.blocks[name], count) for name, count in key)
            )
        return self.repeated_blocks[key]

    # Mistakes ----------------------------------------------------------------------------------

    def _each(self, items: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
        """All items that can be read; what the others lack goes to ``problems``."""
        found = []
        for item in items:
            try:
                found.append(read(item))
            except Malformed as problem:
                self.problems.append(str(problem))
        return found

    def _stop_at_problems(self) -> None:
        """What refers to a malformed entry would only repeat its problem."""
        if self.problems:
            raise Malformed("\n".join(self.problems))


def _kernel(item: tuple[str, object]) -> tuple[str, Compute]:
    entry = Entry.of(f"kernel {item[0]!r}", item[1], ("seconds", "kind", "flops", "bytes", "stays"))
    numbers = entry.number("flops", 0.0), entry.number("bytes", 0.0)
    stays = entry.flag("stays")
    return item[0], Compute(entry.number("seconds"), entry.text("kind"), *numbers, stays)


def _transfer(item: tuple[str, object]) -> tuple[str, Transfer]:
    known = ("latency_s", "bytes", "ceiling_bytes_per_s", "weights", "sms", "pattern", "binding", "hbm")
    entry = Entry.of(f"transfer {item[0]!r}", item[1], known)
    weights = Entry(f"{entry.where}, weights", entry.table("weights"))
    return item[0], Transfer(
        entry.number("latency_s"),
        entry.number("bytes"),
        entry.number("ceiling_bytes_per_s", math.inf),
        tuple((link, weights.number(link)) for link in weights.fields),
        entry.whole("sms", 0),
        _pattern(entry),
        entry.text("binding", ""),
        entry.whole("hbm", 0),
    )


def _pattern(entry: Entry) -> str:
    pattern = entry.text("pattern", "ring")
    if pattern not in PATTERNS:
        raise Malformed(f"{entry.where}: {unknown_name('pattern', pattern, PATTERNS)}")
    return pattern


def _fabric(top: Entry, classes: int) -> Paths:
    """The table ``fabric`` of file.py. Malformed for a class or a link that is not there."""
    table = top.table("fabric")
    if not table:
        return NO_PATHS
    entry = Entry.of("fabric", table, ("links", "collectives", "messages"))
    links = Entry("fabric, links", entry.table("links"))
    capacity = {name: links.number(name) for name in links.fields}
    for name, rate in capacity.items():
        if not (math.isfinite(rate) and rate > 0):
            raise links.wrong(name, "bytes per second above 0", rate)

    def path(row: Entry) -> Path:
        weights = Entry(f"{row.where}, links", row.table("links"))
        for name in weights.fields:
            if name not in capacity:
                raise Malformed(f"{weights.where}: {unknown_name('link', name, capacity)}")
            if not weights.number(name) > 0:
                raise weights.wrong(name, "a number above 0", weights.number(name))
        return tuple((name, weights.number(name)) for name in weights.fields)

    def number(row: Entry, name: str) -> int:
        found = row.whole(name)
        if found >= classes:
            raise row.wrong(name, f"a class, 0 to {classes - 1}", found)
        return found

    collectives, messages = {}, {}
    for i, value in enumerate(entry.items("collectives", [])):
        row = Entry.of(f"fabric, collectives {i}", value, ("class", "communicator", "pattern", "links"))
        collectives[number(row, "class"), row.text("communicator"), _pattern(row)] = path(row)
    for i, value in enumerate(entry.items("messages", [])):
        row = Entry.of(f"fabric, messages {i}", value, ("from", "to", "links"))
        messages[number(row, "from"), number(row, "to")] = path(row)
    return Paths(capacity=capacity, collectives=collectives, messages=messages)


def _named(table: Mapping[str, T], entry: Entry, name: str) -> T:
    """The entry of ``table`` that the field ``name`` names."""
    key = entry.text(name)
    if key not in table:
        raise Malformed(f"{entry.where}: {name}: {unknown_name(name, key, table)}")
    return table[key]


def _ending(top: Entry) -> Ending:
    text = top.text("ends", "together")
    for known in ENDINGS:
        if text == known:
            return known
    raise Malformed(f"program: {unknown_name('ends', text, ENDINGS)}")
