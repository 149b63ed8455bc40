"""What is wrong with an outcome: the laws that every command obeys, whatever it was given.

Knows exit codes, texts and figures. Does not know which command it judges, but for the fields that may be
negative or empty.
"""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fuzz.fork import Outcome

CODES = (0, 1, 2, 130, 141)
"""Done, the answer is no, the input is wrong, interrupted, the reader has gone. 3 is a fault of our own."""

TRACES = ("Traceback (most recent call last)", "MemoryError", "Segmentation fault", "RecursionError")

SIGNED = re.compile(
    r"(error|signed|difference|delta|change|saved|correlation|offset|bias|gain|margin|effect|headroom|seed"
    r"|^measured_s$|_workers_share$|_stage_share$|^log_likelihood$|^aic$|_deviations$)",
    re.IGNORECASE,
)
"""Fields that are differences: they may be negative. A part of a measured step is one where the GPU lags
behind its host; what others would win by a worker is one where it costs nothing."""

SHARES = ("mfu", "mfu_causal", "hfu", "ettr", "availability", "goodput")
"""Fields of which nothing may lie above 1."""

NEEDED = (
    "step_time_s",
    "makespan_s",
    "mfu",
    "mfu_causal",
    "hfu",
    "tokens_per_second_per_gpu",
    "peak_memory_bytes",
)
"""Figures that a result with exit code 0 or 1 has: null would be a number that is none."""

_NO_NUMBER = re.compile(r"(?<![\w.'\"-])[-+]?(nan|inf)(?![\w'\"])")


_REFUSES = ("refused: ", " is needed, not ")
"""Lines that repeat what was read: 1e999 is the infinite number of whoever wrote it."""


def defects(found: Outcome, folder: Path, kept: dict[Path, bytes]) -> Iterator[str]:
    """Every law that ``found`` breaks; ``kept`` are input files with what they held before."""
    if found.code is None:
        yield f"no end after {found.seconds:.0f} s"
        return
    if found.code not in CODES:
        yield f"exit code {found.code}"
    for trace in TRACES:
        if trace in found.stderr or trace in found.stdout:
            yield f"prints {trace!r}"
    if found.code == 2 and not found.stderr.strip():
        yield "exit code 2 without a message"
    if len(found.stderr) > 50_000:
        yield f"a message of {len(found.stderr):,} characters"
    if "\x1b" in found.stdout or "\x1b" in found.stderr:
        yield "an escape sequence reaches the terminal"
    for path, content in kept.items():
        if not path.exists() or path.read_bytes() != content:
            yield f"the input {path.name} was changed"
    if found.code in (0, 1):
        yield from _of_output(found, kept)
        yield from _of_files(folder, kept)


def _of_output(found: Outcome, kept: dict[Path, bytes]) -> Iterator[str]:
    if "--json" in found.words:
        try:
            document = json.loads(found.stdout)
        except ValueError as error:
            if found.code == 0:
                yield f"--json prints no JSON: {error}"
            return
        yield from _of_document(document, found)
    elif found.words[0] not in ("schema", "list"):
        for line in found.stdout.splitlines():
            no_number = _NO_NUMBER.search(line)
            if (
                no_number
                and not any(words in line for words in _REFUSES)
                and not any(no_number.group(1).encode() in content for content in kept.values())
            ):
                yield f"prints {no_number.group()!r}: {line.strip()[:120]}"
                return


def _of_document(document: Any, found: Outcome) -> Iterator[str]:
    for path, value in figures(document):
        name = next((str(part) for part in reversed(path) if isinstance(part, str)), "")
        dotted = ".".join(map(str, path))
        if value is None:
            if len(path) == 1 and name in NEEDED and found.words[0] == "run":
                yield f"{dotted} is null"
        elif _out_of_range(value, path, name):
            yield f"{dotted} is {value}"


def _out_of_range(value: float, path: tuple[str | int, ...], name: str) -> bool:
    signed = any(SIGNED.search(str(part)) for part in path)
    return not math.isfinite(value) or (value < 0 and not signed) or (value > 1 + 1e-9 and name in SHARES)


def figures(
    node: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], float | None]]:
    """Every number and null of a document with its path."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from figures(value, (*path, key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from figures(value, (*path, number))
    elif node is None or (isinstance(node, int | float) and not isinstance(node, bool)):
        yield path, node


def _of_files(folder: Path, kept: dict[Path, bytes]) -> Iterator[str]:
    """Pictures are XML, JSON is JSON, nothing unfinished is left."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path in kept or path.name in (".stdout", ".stderr"):
            continue
        try:
            if path.suffix == ".svg":
                ElementTree.parse(path)
            elif path.suffix == ".json":
                json.loads(path.read_bytes())
            elif path.suffix in (".tmp", ".part") or path.name.startswith("."):
                yield f"{path.name} is left behind"
        except (ElementTree.ParseError, ValueError) as error:
            yield f"{path.name} is broken: {error}"
