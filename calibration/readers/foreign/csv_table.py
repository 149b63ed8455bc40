"""A table as CSV: its columns and its lines, each with as many cells as there are columns.

Knows CSV and its mistakes. Does not know which columns there are.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from ....hardware.files import decoded, read_text
from .values import shown

Line = Mapping[str, str]
"""Cells by column; what a short line lacks is empty."""


@dataclass(frozen=True, kw_only=True)
class CsvTable:
    """``lines`` are (number in the file, cells)."""

    columns: tuple[str, ...]
    lines: tuple[tuple[int, Line], ...]


def read_table_of(path: Path, content: bytes | None = None) -> CsvTable:
    """The table in ``path``, or in ``content`` of that name; without columns where the file is empty.

    Raises ValueError naming file and line: not UTF-8 text, a zero byte, a column that is named twice, a line
    with more cells than columns, a cell of more than 131,072 characters.
    """
    text = _text(path, content)
    reader = csv.reader(StringIO(text, newline=""))
    columns: tuple[str, ...] = ()
    lines: list[tuple[int, Line]] = []
    try:
        for cells in reader:
            if not cells:
                continue
            if not columns:
                columns = _columns(path, reader.line_num, cells)
            elif len(cells) > len(columns) and any(cells[len(columns) :]):
                found = f"{len(cells)} cells under {len(columns)} columns"
                raise ValueError(f"{path}:{reader.line_num}: has {found}")
            else:
                filled = [*cells, *[""] * (len(columns) - len(cells))]
                lines.append((reader.line_num, dict(zip(columns, filled, strict=False))))
    except csv.Error as error:
        raise ValueError(f"{path}:{reader.line_num}: not a table of text (CSV): {error}") from None
    return CsvTable(columns=columns, lines=tuple(lines))


def _columns(path: Path, number: int, cells: list[str]) -> tuple[str, ...]:
    names = [name.strip() for name in cells]
    while names and not names[-1]:
        names.pop()
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{path}:{number}: two columns are called {shown(name)}; rename one")
    return tuple(names)


def _text(path: Path, content: bytes | None) -> str:
    text = read_text(path) if content is None else decoded(content, path)
    if "\0" in text:  # what a file ends with whose writer was cut off
        line = text[: text.index("\0")].count("\n") + 1
        raise ValueError(f"{path}:{line}: holds a zero byte, which no text does")
    return text
