"""Every span of a Result as a file: CSV or Parquet.

Knows the two formats; columns are the fields of Span, rows are in order of rank, time and stream.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from pathlib import Path

from ...hardware.files import written
from ..result.result import Result
from ..result.step import Span

COLUMNS = tuple(field.name for field in fields(Span))
_ROW = attrgetter(*COLUMNS)


def write_spans(result: Result, path: str | Path) -> None:
    """Write one row a span, in the format that the suffix names.

    Raises ValueError for a suffix that is not known, and for ``.parquet`` without pyarrow.
    """
    path = Path(path)
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        known = " and ".join(WRITERS)
        raise ValueError(f"cannot write spans to {path.name!r}: known suffixes are {known}")
    writer(result, path)


def _ordered(result: Result) -> list[Span]:
    return sorted(result.iter_spans(), key=attrgetter("rank", "start_s", "end_s", "stream", "name"))


def _write_csv(result: Result, path: Path) -> None:
    with written(path) as unfinished, unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(map(_ROW, _ordered(result)))


def _write_parquet(result: Result, path: Path) -> None:
    import importlib.util

    if importlib.util.find_spec("pyarrow") is None:
        raise ValueError(
            f"cannot write {path.name!r}: Parquet needs pyarrow; "
            "pip install 'stepsim[parquet]', or write .csv"
        )
    import pandas as pd

    rows = [_ROW(span) for span in _ordered(result)]
    with written(path) as unfinished:
        pd.DataFrame(rows, columns=list(COLUMNS)).to_parquet(unfinished, engine="pyarrow", index=False)


WRITERS: dict[str, Callable[[Result, Path], None]] = {".csv": _write_csv, ".parquet": _write_parquet}
