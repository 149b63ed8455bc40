"""Chakra's files: a trace a rank (``name.<rank>.et``), groups' ranks in JSON, in a folder or an archive.

A trace is a row of messages, each behind its length as a varint: the metadata, then the nodes. Knows bytes;
what nodes mean is for others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from ...hardware.files import (
    TRACES,
    FileError,
    is_archive,
    load_json,
    members,
    read_bytes,
    unpacked,
    write_bytes,
)
from .host_trace import is_host_trace, read_host_trace
from .node import ExecutionTrace, TraceNode, TraceSet, Value
from .schema import messages

MACHINE = "machine.json"
GROUPS = "comm_groups.json"
VERSION = "0.0.4"
MOST_NODES = 5_000_000
_RANK = re.compile(r"(?:^|[._-])(\d{1,7})\.et(?:\.gz)?$", re.IGNORECASE)
_FIELDS = {"tensor_size": "uint64_val"} | dict.fromkeys(
    ("comm_src", "comm_dst", "comm_tag", "comm_priority"), "int32_val"
)
"""Of the attributes that the feeder reads those whose field their Python type does not tell."""
_BY_TYPE = {bool: "bool_val", int: "int64_val", float: "double_val", str: "string_val"}


def is_trace_file(path: Path) -> bool:
    """Whether a file is called like an execution trace."""
    return path.name.lower().endswith((".et", ".et.gz"))


def read_traces(path: Path) -> TraceSet:
    """The traces in a folder or archive, or the one in a file.

    Raises:
        ValueError: naming the file: no trace in it, a damaged one, two of one rank, groups that are none.
    """
    found: list[ExecutionTrace] = []
    groups: dict[str, tuple[int, ...]] = {}
    machine, others = None, []
    for name, content in _files(path):
        if is_trace_file(name):
            found.append(_trace(name, content))
        elif name.name == MACHINE:
            machine = _object(load_json(content, name, TRACES), name)
        elif name.name.lower().endswith(".json"):
            document = load_json(content, name, TRACES)
            if is_host_trace(document):
                trace, listed = read_host_trace(name, document)
                found.append(trace)
                groups |= listed
            else:
                groups |= _groups(document)
                others.append(name.name)
        else:
            others.append(name.name)
    if not found:
        beside = f": {', '.join(others[:3])}" if others else ""
        raise ValueError(f"{path}: holds no execution trace (.et, or PyTorch's .json){beside}")
    ranks = sorted(found, key=lambda one: one.rank)
    for before, after in pairwise(ranks):
        if before.rank == after.rank:
            raise ValueError(f"{after.file} and {before.file} are both of rank {after.rank}")
    return TraceSet(source=str(path), ranks=tuple(ranks), groups=groups, machine=machine)


def write_traces(
    traces: TraceSet, folder: Path, name: str, machine: bytes, groups: bytes
) -> tuple[Path, ...]:
    """Write each rank's trace into ``folder``, and what they share beside them."""
    found = []
    for one in traces.ranks:
        found.append(folder / f"{name}.{one.rank}.et")
        write_bytes(found[-1], _encoded(one))
    for file, content in ((MACHINE, machine), (GROUPS, groups)):
        found.append(folder / file)
        write_bytes(found[-1], content)
    return tuple(found)


def _files(path: Path) -> Iterator[tuple[Path, bytes]]:
    if path.is_dir():
        for one in sorted(path.iterdir()):
            if is_trace_file(one) or (one.suffix.lower() == ".json" and not one.name.startswith("._")):
                yield one, read_bytes(one)
    elif is_archive(path):
        yield from members(path)
    else:
        yield path, read_bytes(path)


def _object(document: object, path: Path) -> Mapping[str, object]:
    if not isinstance(document, dict):
        raise FileError(path, "no description of a machine: expected an object")
    return document


def _groups(document: object) -> dict[str, tuple[int, ...]]:
    """Ranks of groups by name, of a document that lists them; nothing of any other."""
    if not isinstance(document, dict):
        return {}
    return {
        str(name): tuple(ranks)
        for name, ranks in document.items()
        if isinstance(ranks, list) and ranks and all(type(rank) is int and rank >= 0 for rank in ranks)
    }


# Reading -------------------------------------------------------------------------------------------


def _trace(path: Path, content: bytes) -> ExecutionTrace:
    kinds = messages()
    if path.name.lower().endswith(".gz") or content.startswith(b"\x1f\x8b"):
        content = unpacked(content, path)
    rows = _framed(path, content)
    metadata = _parsed(path, kinds.metadata, next(rows, b""), 0)
    nodes = tuple(_node(_parsed(path, kinds.node, row, number)) for number, row in enumerate(rows, start=1))
    if not nodes:
        raise FileError(path, "an execution trace without a node")
    named = _RANK.search(path.name)
    return ExecutionTrace(
        file=str(path),
        rank=int(named[1]) if named else 0,
        nodes=nodes,
        version=metadata.version,
        attributes=_attributes(metadata.attr),
    )


def _framed(path: Path, content: bytes) -> Iterator[bytes]:
    """The messages: a length as a varint (7 bits a byte, the lowest first), and so many bytes."""
    view, at = memoryview(content), 0
    for _ in range(MOST_NODES):
        if at >= len(view):
            return
        length = shift = 0
        while True:
            if at >= len(view) or shift > 28:
                raise FileError(
                    path, f"no execution trace of Chakra, or a damaged one: no length at byte {at}"
                )
            byte = view[at]
            length |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if byte < 0x80:
                break
        if at + length > len(view):
            raise FileError(
                path, f"a damaged execution trace: {length:,} bytes wanted at byte {at:,} of {len(view):,}"
            )
        if not length and at > 1:
            raise FileError(
                path, f"no execution trace of Chakra, or a damaged one: an empty node at byte {at}"
            )
        yield bytes(view[at : at + length])
        at += length
    raise FileError(path, f"has more than {MOST_NODES:,} nodes")


def _parsed(path: Path, kind: Any, row: bytes, number: int) -> Any:
    from google.protobuf.message import DecodeError

    message = kind()
    try:
        message.ParseFromString(row)
    except DecodeError as error:
        what = f"node {number}" if number else "the metadata"
        raise FileError(path, f"a damaged execution trace: {what}: {error}") from None
    return message


def _node(message: Any) -> TraceNode:
    return TraceNode(
        id=message.id,
        name=message.name,
        type=message.type,
        data_deps=tuple(message.data_deps),
        ctrl_deps=tuple(message.ctrl_deps),
        start_micros=message.start_time_micros,
        duration_micros=message.duration_micros,
        attributes=_attributes(message.attr),
    )


def _attributes(found: Iterable[Any]) -> dict[str, Value]:
    """Attributes of a node as values by name; lists become tuples."""
    values: dict[str, Value] = {}
    for one in found:
        which = one.WhichOneof("value")
        if which is not None:
            value = getattr(one, which)
            values[one.name] = tuple(value.values) if which.endswith("_list") else value
    return values


# Writing -------------------------------------------------------------------------------------------


def _encoded(trace: ExecutionTrace) -> bytes:
    kinds = messages()
    metadata = kinds.metadata(version=VERSION)
    _put(metadata.attr, trace.attributes)
    rows = [_delimited(metadata)]
    for node in trace.nodes:
        message = kinds.node(
            id=node.id,
            name=node.name,
            type=node.type,
            data_deps=node.data_deps,
            ctrl_deps=node.ctrl_deps,
            start_time_micros=node.start_micros,
            duration_micros=node.duration_micros,
        )
        _put(message.attr, node.attributes)
        rows.append(_delimited(message))
    return b"".join(rows)


def _put(attributes: Any, values: Mapping[str, Value]) -> None:
    """Each attribute with the type that the feeder looks for, others by what they are."""
    for name, value in values.items():
        setattr(attributes.add(name=name), _FIELDS.get(name) or _BY_TYPE[type(value)], value)


def _delimited(message: Any) -> bytes:
    row: bytes = message.SerializeToString(deterministic=True)
    length, found = len(row), bytearray()
    while length >= 0x80:
        found.append(length & 0x7F | 0x80)
        length >>= 7
    found.append(length)
    return bytes(found) + row
