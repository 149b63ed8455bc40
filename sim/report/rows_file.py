"""Rows of plain values as a file: CSV or Parquet, by its suffix.

Knows the two formats; does not know what the rows are of.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ...hardware.files import written


def write_rows(what: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], path: str | Path) -> None:
    """Write one line a row. ``what`` names the rows in errors.

    Raises ValueError for a suffix that is not known, and for ``.parquet`` without pyarrow.
    """
    path = Path(path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        known = " and ".join(WRITERS)
        raise ValueError(f"cannot write {what} to {path.name!r}: known suffixes are {known}")
    writer(columns, rows, path)


def plain_cell(value: Any) -> Any:
    """Lists and tables as text, as a column of one type needs."""
    return str(value) if isinstance(value, list | dict) else value


def _write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    with written(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _write_parquet(columns: Sequence[str], rows: Iterable[Sequence[Any]], path: Path) -> None:
    import importlib.util

    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"cannot write {path.name!r}: Parquet needs pyarrow; "
            "pip install 'stepsim[parquet]', or write .csv"
        )
    import pandas as pd

    with written(path) as unfinished:
        pd.DataFrame(list(rows), columns=list(columns)).to_parquet(unfinished, engine="pyarrow", index=False)


WRITERS: dict[str, Callable[[Sequence[str], Iterable[Sequence[Any]], Path], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
