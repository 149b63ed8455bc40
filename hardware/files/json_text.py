"""JSON that a stranger may have written, within limits: no depth ends in a crash, no number is infinite.

Knows JSON. Does not know which keys there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import FileError, size_text
from .reading import decoded


@dataclass(frozen=True, kw_only=True)
class JsonLimits:
    """Most bytes, levels, and entries of lists and objects; ``unique_keys``: no key may be given twice."""

    bytes: int = 16 * 2**20
    depth: int = 64
    entries: int = 500_000
    unique_keys: bool = True


TRACES = JsonLimits(bytes=2 * 2**30, depth=256, entries=100_000_000, unique_keys=False)
"""For traces of profilers and programs of ours, which are large; other tools may repeat a key."""


def load_json(content: bytes | str, file: str | Path, limits: JsonLimits = JsonLimits()) -> Any:
    """The document in ``content`` as dicts, lists, text, finite numbers, booleans and None.

    Raises:
        FileError: not UTF-8 text, not JSON (NaN and Infinity are none), a key given twice, or beyond
            ``limits``.
    """
    import orjson

    if len(content) > limits.bytes:
        raise FileError(file, f"has more than {size_text(limits.bytes)} of JSON, the most that is read of it")
    try:
        # orjson stops at 1,024 levels and takes no NaN, both with an error.
        document = orjson.loads(_without_mark(content))
    except orjson.JSONDecodeError as error:
        if isinstance(content, bytes):
            decoded(content, file)  # of bytes that are no text, orjson says nothing that a user understands
        why = f"not JSON: {error.msg}"
        if "depth limit" in error.msg:
            why = f"is nested more than {limits.depth} levels deep"
        raise FileError(file, why, line=error.lineno, column=error.colno) from None
    _check_size(document, file, limits)
    if limits.unique_keys:
        _check_keys(content, file)
    return document


def _without_mark(content: bytes | str) -> bytes | str:
    """The text without a byte order mark, which editors of Windows put there and JSON does not know."""
    if isinstance(content, bytes):
        return content.removeprefix(b"\xef\xbb\xbf")
    return content.removeprefix("\ufeff")


def _check_size(document: Any, file: str | Path, limits: JsonLimits) -> None:
    """Level by level, so that no depth of the document is a depth of calls."""
    level, depth, entries = [document], 0, 0
    while True:
        level = [part for part in level if isinstance(part, dict | list)]
        if not level:
            return
        depth += 1
        entries += sum(map(len, level))
        if depth > limits.depth:
            raise FileError(file, f"is nested more than {limits.depth} levels deep")
        if entries > limits.entries:
            raise FileError(file, f"has more than {limits.entries:,} entries, the most that is read of it")
        level = [
            inner
            for part in level
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, dict | list)
        ]


def _check_keys(content: bytes | str, file: str | Path) -> None:
    """The depth is known to be small by now, so the recursion of the standard library is, too."""
    import json

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise FileError(file, f"the key {twice[:80]!r} is given twice in one object; keep one of them")
        return entries

    json.loads(_without_mark(content), object_pairs_hook=once)
