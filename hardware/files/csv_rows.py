"""Tables of measurements that grow by a row at a time, over hours and several runs.

Knows columns. Does not know what they mean.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

from .errors import FileError
from .reading import noted
from .writing import append_text


def append_row(path: str | Path, columns: Sequence[str], row: Mapping[str, object]) -> None:
    """Add ``row`` to the table ``path``, with a header where the file is missing or empty.

    What is there stays, byte for byte; a last line that was cut off is ended first, so that no row is glued
    to it. Raises FileError where the file has other columns, and as ``append_text``.
    """
    text = StringIO(newline="")
    writer = csv.DictWriter(text, columns)
    header, ends = _state(path)
    if header is None:
        writer.writeheader()
    elif header != list(columns):
        raise FileError(path, f"has other columns than {','.join(columns)}; choose another file")
    elif not ends:
        text.write("\r\n")
    writer.writerow(row)
    append_text(path, text.getvalue(), edits=True)


def _state(path: str | Path) -> tuple[list[str] | None, bool]:
    """Columns of the table, None where there is none yet, and whether its last line is ended."""
    if not Path(path).exists() or not Path(path).stat().st_size:
        return None, True
    with noted(path) as file:
        first = file.readline(2**16).decode("utf-8-sig", errors="replace")
        file.seek(-1, 2)
        ends = file.read(1) == b"\n"
    return next(csv.reader([first]), []), ends
