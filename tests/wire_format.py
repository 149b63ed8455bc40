"""Protobuf's wire format, read by hand: a decoder that has nothing in common with the one under test."""

from __future__ import annotations

import struct
from collections.abc import Iterator

Field = tuple[int, int | float | bytes]
"""A field's number with what stands there: a varint, a double, or bytes."""

VALUES = {3: "double", 9: "int64", 13: "uint64", 7: "int32", 27: "bool", 29: "string"}
"""Of an attribute's fields those that traces use."""


def varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at ``at``, and where the next thing begins."""
    found = shift = 0
    while True:
        byte = content[at]
        found, shift, at = found | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return found, at


def fields(content: bytes) -> Iterator[Field]:
    """The fields of a message in their order."""
    at = 0
    while at < len(content):
        key, at = varint(content, at)
        match key & 7:
            case 0:
                value, at = varint(content, at)
                yield key >> 3, value
            case 1:
                yield key >> 3, struct.unpack("<d", content[at : at + 8])[0]
                at += 8
            case 2:
                length, at = varint(content, at)
                yield key >> 3, content[at : at + length]
                at += length
            case other:
                raise AssertionError(f"wire type {other}")


def messages(content: bytes) -> Iterator[bytes]:
    """The messages of a file, each behind its length."""
    at = 0
    while at < len(content):
        length, at = varint(content, at)
        yield content[at : at + length]
        at += length


def packed(content: bytes) -> list[int]:
    """Whole numbers one behind the other."""
    at, found = 0, []
    while at < len(content):
        number, at = varint(content, at)
        found.append(number)
    return found


def attribute(content: bytes) -> tuple[str, str, int | float | bytes]:
    """Name, type and value of an attribute; what is zero has no value on the wire."""
    name, number, value = "", 0, 0
    for which, what in fields(content):
        if which == 1:
            assert isinstance(what, bytes)
            name = what.decode()
        else:
            number, value = which, what  # type: ignore[assignment]
    return name, VALUES[number], value
