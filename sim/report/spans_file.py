"""Every span of a Result as a file: CSV or Parquet.

Columns are the fields of Span, rows are in order of rank, time and stream; rows_file.py knows the formats.
"""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

from ..result.result import SPAN_FIELDS, Result
from ..result.step import Span
from .rows_file import write_rows

_ROW = attrgetter(*SPAN_FIELDS)


def write_spans(result: Result, path: str | Path) -> None:
    """Write one row a span, in the format that the suffix names.

    Raises ValueError for a suffix that is not known, and for ``.parquet`` without pyarrow.
    """
    write_rows("spans", SPAN_FIELDS, map(_ROW, _ordered(result)), path)


def _ordered(result: Result) -> list[Span]:
    return sorted(result.iter_spans(), key=attrgetter("rank", "start_s", "end_s", "stream", "name"))
