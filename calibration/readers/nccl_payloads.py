"""NCCL's calls in a report of Nsight Systems: their communicator, message size and peer.

NCCL hands NVTX a block of bytes with each call (``ncclAllReduce``), whose fields the report lists by schema;
the bytes stand behind a head that names the schema. Knows these tables and bytes. Does not know which kernel
a call launched, nor who the ranks of a communicator are.

Sources: NVIDIA Nsight Systems 2026.4, exporter SQLite schema (NVTX_PAYLOAD_SCHEMA_ENTRIES, binaryData of
NVTX_EVENTS); NVTX nvToolsExtPayload.h (types of entries); NCCL src/include/nvtx_payload_schemas.h (names of
fields); the head by GindaChen/nsys-ai, nccl_payload_breakdown.py, which reads such reports.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_HEAD = struct.Struct("<IIIIQQ")
"""Domain and schema, each with four bytes behind it, the size of the payload, and the size of all."""
_SCHEMA, _PAYLOAD_BYTES = 2, 4
_FORMATS = {5: "<i", 6: "<I", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""By NVTX's number of a type: int, unsigned, those of 32 and 64 bits, and sizes."""
_COMMUNICATOR, _SIZE, _PEER = "NCCL communicator ID", "Message size [bytes]", "Peer rank"

Field = tuple[str, int, str]
"""Name, offset and format of a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclCall:
    """A call of NCCL on the host. ``peer`` is the other rank of a message, None of a collective."""

    name: str
    communicator: str
    size_bytes: int
    peer: int | None = None


def nccl_calls(base: sqlite3.Connection) -> Iterator[tuple[int, NcclCall]]:
    """Row of NVTX_EVENTS and content of every call that moves bytes; none of a report without payloads.

    What is shorter than its schema says, or of a schema that the report does not list, is passed over.
    """
    schemas = _schemas(base)
    if not schemas:
        return
    rows = base.execute(
        "SELECT n.rowid, n.binaryData, COALESCE(n.text, s.value) FROM NVTX_EVENTS AS n "
        "LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.binaryData IS NOT NULL"
    )
    for row, content, said in rows:
        found = _values(content, schemas) if isinstance(content, bytes) else {}
        if _SIZE in found and isinstance(said, str):
            yield (
                row,
                NcclCall(
                    name=said[:60],
                    communicator=f"{found.get(_COMMUNICATOR, 0) % 2**64:x}",
                    size_bytes=found[_SIZE],
                    peer=found.get(_PEER),
                ),
            )


def _schemas(base: sqlite3.Connection) -> dict[int, list[Field]]:
    """By number of a schema those of its fields whose type is a whole number."""
    columns = {row[1] for row in base.execute("PRAGMA table_info(NVTX_EVENTS)")}
    entries = {row[1] for row in base.execute("PRAGMA table_info(NVTX_PAYLOAD_SCHEMA_ENTRIES)")}
    if "binaryData" not in columns or not {"schemaId", "type", "name", "offset"} <= entries:
        return {}
    found: dict[int, list[Field]] = {}
    for schema, kind, name, offset in base.execute(
        'SELECT schemaId, type, name, "offset" FROM NVTX_PAYLOAD_SCHEMA_ENTRIES'
    ):
        at = offset or 0  # that of the first entry is left out
        if kind in _FORMATS and isinstance(name, str) and type(at) is int and at >= 0:
            found.setdefault(schema, []).append((name, at, _FORMATS[kind]))
    return found


def _values(content: bytes, schemas: dict[int, list[Field]]) -> dict[str, int]:
    if len(content) < _HEAD.size:
        return {}
    head = _HEAD.unpack_from(content)
    payload = content[_HEAD.size : _HEAD.size + head[_PAYLOAD_BYTES]]
    return {
        name: struct.unpack_from(form, payload, at)[0]
        for name, at, form in schemas.get(head[_SCHEMA], ())
        if at + struct.calcsize(form) <= len(payload)
    }
