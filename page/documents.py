"""What a document from the page may say: fields and values, and never the name of a file.

Knows in which fields the language takes files, and how the names of files look. Does not know what fields
mean. Whoever writes a document may be somebody who may not read this machine's files, so a name that gets
past here is still not opened: workers read what ships and nothing else (hardware/files/scope.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

FILE_FIELDS = ("extends", "cluster.fabric.file", "training.routing.file", "faults.events.trace")
"""Fields that name a file or a document whatever they hold; lists add nothing to a path."""

SUFFIXES = (".yaml", ".yml", ".json", ".jsonl", ".csv", ".gz", ".toml", ".txt", ".xml", ".sqlite", ".parquet")
"""By these the language knows a file where a name or a description may stand as well."""

NAMES = (
    "model",
    "model.preset",
    "schedule",
    "calibration",
    "cluster.gpu",
    "cluster.interconnect",
    "software",
    "cluster.node",
)
"""Fields that take a name or the path of a file; no name of a catalogue has a slash."""

_TEXTS = ("title", "name")
"""Said of a scenario and never looked up."""


def named_files(document: Any) -> list[tuple[str, str]]:
    """Every place of ``document`` that may name a file: its dotted field, and why it is refused.

    >>> named_files({"schedule": "mine.csv"})
    [('schedule', "'mine.csv' is the name of a file, and the page reads none")]
    """
    return [(path, why) for path, value in _leaves(document, "") if (why := _refused(path, value))]


def _refused(path: str, value: Any) -> str | None:
    if path in FILE_FIELDS and value is not None:
        return "this field names a file, and the page reads none: write here what the file holds"
    if path in _TEXTS or not isinstance(value, str):
        return None
    word = value.strip().lower()
    if word.endswith(SUFFIXES) or (path in NAMES and ("/" in word or "\\" in word)):
        return f"{value[:80]!r} is the name of a file, and the page reads none"
    return None


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value that holds no others, and every field of FILE_FIELDS, by its dotted path."""
    if path in FILE_FIELDS:
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, path)
    else:
        yield path, value
