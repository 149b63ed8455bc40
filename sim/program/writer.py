"""Programs as the lines of a JSON document, in the format that file.py describes.

The same programs give the same lines: tables are in order of first use. Knows no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..network.paths import Paths
from ..network.transfer import Transfer
from ..result.step import RankClass
from .program import Collective, Compute, Exchange, MessageEnd, Op, Programs, RepeatedBlocks


def document_lines(
    programs: Programs,
    ranks: Sequence[RankClass],
    scenario: Mapping[str, Any] | None,
    header: Mapping[str, str | int],
) -> list[bytes]:
    """``header`` and the small fields, then a line for every entry of a table and for every op."""
    from orjson import dumps

    writer = _Writer(dumps)
    sets: dict[tuple[tuple[str, float], ...], int] = {}
    numbers = [sets.setdefault(tuple(links.items()), len(sets)) for links in programs.links]
    classes = [
        writer.ops(dumps(_class(one, number))[:-1] + b',"ops":[', program.ops, b"]}")
        for one, number, program in zip(ranks, numbers, programs.classes, strict=True)
    ]
    blocks = [
        writer.ops(dumps(name) + b":[", block.ops, b"]") for name, block in writer.blocks.things.items()
    ]
    small = {
        **header,
        "scenario": scenario,
        "sms": programs.sms,
        "corun_slowdown": float(programs.corun_slowdown),
        "ends": programs.ends,
        "communicators": {name: list(members) for name, members in programs.communicators.items()},
    }
    if programs.paths.capacity:
        small["fabric"] = _fabric(programs.paths)
    links = [[dumps({name: float(rate) for name, rate in one})] for one in sets]
    tables = [[b"%b:%b" % (dumps(name), dumps(value))] for name, value in small.items()]
    tables += [
        _listed(b'"links":[', links, b"]"),
        _listed(b'"kernels":{', writer.table(writer.kernels, _kernel), b"}"),
        _listed(b'"transfers":{', writer.table(writer.transfers, _transfer), b"}"),
        _listed(b'"blocks":{', blocks, b"}"),
        _listed(b'"classes":[', classes, b"]"),
    ]
    return _listed(b"{", tables, b"}")


def _listed(opening: bytes, items: Iterable[Sequence[bytes]], closing: bytes) -> list[bytes]:
    """Items of one or more lines each between brackets, with the commas that JSON wants."""
    lines = [opening]
    for item in items:
        lines += item
        lines[-1] += b","
    lines[-1] = lines[-1].removesuffix(b",")
    return [*lines, closing]


@dataclass
class _Names:
    """Distinct things in order of first use, named ``norm``, ``norm 2``, ..."""

    things: dict[str, Any] = field(default_factory=dict)
    names: dict[tuple[str, Hashable], str] = field(default_factory=dict)

    def of(self, label: str, thing: Hashable) -> str:
        key = (label, thing)
        if key not in self.names:
            name, number = label, 1
            while name in self.things:
                number += 1
                name = f"{label} {number}"
            self.names[key], self.things[name] = name, thing
        return self.names[key]


@dataclass
class _Writer:
    """Writes ops; the tables that they refer to fill meanwhile."""

    dumps: Callable[[Any], bytes]
    kernels: _Names = field(default_factory=_Names)
    transfers: _Names = field(default_factory=_Names)
    blocks: _Names = field(default_factory=_Names)

    def ops(self, opening: bytes, ops: Iterable[Op], closing: bytes) -> list[bytes]:
        return _listed(opening, ([self.dumps(self._op(i, op))] for i, op in enumerate(ops)), closing)

    def table(self, names: _Names, fields: Callable[[Any], dict[str, Any]]) -> list[list[bytes]]:
        return [[b"%b:%b" % (self.dumps(name), self.dumps(fields(x)))] for name, x in names.things.items()]

    def _op(self, index: int, op: Op) -> dict[str, Any]:
        found: dict[str, Any] = {"name": op.name}
        if op.stream != "compute":
            found["stream"] = op.stream
        if op.category != op.stream:
            found["category"] = op.category
        found |= self._work(op)
        if op.after:
            found["after"] = [earlier - index for earlier in op.after]
        if op.action:
            found["action"] = op.action
        if op.host_s:
            found["host_s"] = float(op.host_s)
        if op.host_sync:
            found["host_sync"] = True
        return found

    def _work(self, op: Op) -> dict[str, Any]:
        match op.work:
            case Compute():
                return {"kernel": self.kernels.of(op.name, op.work)}
            case Collective(kind, communicator, transfer, calls):
                name = self.transfers.of(f"{communicator} {kind}", transfer)
                found = {"collective": kind, "communicator": communicator, "transfer": name}
                return found | ({"calls": calls} if calls > 1 else {})
            case Exchange(parts):
                return {"messages": [self._part(part) for part in parts]}
            case RepeatedBlocks(blocks):
                return {"blocks": [[self.blocks.of(block.name, block), count] for block, count in blocks]}

    def _part(self, part: MessageEnd) -> dict[str, Any]:
        transfer = self.transfers.of("message", part.transfer)
        if part.send:
            return {"send": part.tag, "to": part.peer, "transfer": transfer}
        return {"receive": part.tag, "from": part.peer, "transfer": transfer}


def _class(ranks: RankClass, links: int) -> dict[str, Any]:
    return {
        "name": ranks.name,
        "pp": ranks.pp,
        "count": ranks.count,
        "first_rank": ranks.first_rank,
        "links": links,
    }


def _fabric(paths: Paths) -> dict[str, Any]:
    """The table ``fabric`` of the format (file.py)."""
    collectives = [
        {"class": r, "communicator": name, "pattern": pattern, "links": dict(path)}
        for (r, name, pattern), path in paths.collectives.items()
    ]
    messages = [{"from": a, "to": b, "links": dict(path)} for (a, b), path in paths.messages.items()]
    return {"links": dict(paths.capacity), "collectives": collectives, "messages": messages}


def _kernel(kernel: Compute) -> dict[str, Any]:
    found: dict[str, Any] = {"seconds": float(kernel.seconds), "kind": kernel.kind}
    amounts = {"flops": float(kernel.flops), "bytes": float(kernel.bytes)}
    stays = {"stays": True} if kernel.static_schedule else {}
    return found | {name: amount for name, amount in amounts.items() if amount} | stays


def _transfer(transfer: Transfer) -> dict[str, Any]:
    found: dict[str, Any] = {"latency_s": float(transfer.latency_s), "bytes": float(transfer.bytes)}
    if not math.isinf(transfer.ceiling_bytes_per_s):
        found["ceiling_bytes_per_s"] = float(transfer.ceiling_bytes_per_s)
    if transfer.weights:
        found["weights"] = {link: float(weight) for link, weight in transfer.weights}
        assert len(found["weights"]) == len(transfer.weights), "a transfer names a link twice"
    if transfer.pattern != "ring":
        found["pattern"] = transfer.pattern
    if transfer.binding:
        found["binding"] = transfer.binding
    held = {"sms": transfer.sms, "hbm": transfer.hbm}
    return found | {name: one for name, one in held.items() if one}
