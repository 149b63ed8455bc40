"""Logs of a job's operations, one row a pass or message of a rank (NDTimeline), in Parquet or CSV.

Knows the columns of ByteDance's public logs (ByteDance-Seed/StragglerAnalysis): step, stage, dp_rank, rank,
optype, start_ts and duration in seconds, seq_id (its number among its kind), mb_id and the model chunk mc.
Does not know who waits for whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...hardware.files import FileError, read_bytes, read_text

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

KINDS = (
    "forward-compute",
    "backward-compute",
    "forward-send",
    "forward-recv",
    "backward-send",
    "backward-recv",
    "params-all-gather",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
    "gc",
)
_NUMBERS = ("dp_rank", "stage", "rank", "step", "seq_id")
_OPTIONAL = ("mc", "mb_id")
_LONGEST_S = 1e6
"""Longest operation that is read; a longer one is no time in seconds."""
MOST_COLUMNS = 1000


@dataclass(frozen=True, kw_only=True)
class OperationLog:
    """The rows of a log as columns; ``microbatch`` and ``chunk`` are -1 where a row has none."""

    file: str
    dp_rank: Ints
    stage: Ints
    rank: Ints
    step: Ints
    kind: Sequence[str]
    start_s: Floats
    duration_s: Floats
    number: Ints
    chunk: Ints
    microbatch: Ints

    @property
    def ranks(self) -> int:
        """Workers in the log: of each tensor-parallel group one may stand for all."""
        return len(np.unique(self.rank))

    def by_rank(self) -> Iterator[tuple[int, Ints]]:
        """Each rank with its rows."""
        for rank in np.unique(self.rank):
            yield int(rank), np.flatnonzero(self.rank == rank)

    def by_step(self, rows: Ints) -> Iterator[tuple[int, Ints]]:
        """Each step with those of ``rows`` that are its."""
        steps = self.step[rows]
        for step in np.unique(steps):
            yield int(step), rows[steps == step]


def read_operation_log(path: Path) -> OperationLog:
    """The rows of ``path`` (.parquet or .csv).

    Raises:
        ValueError: naming the file and the column or row: no table, a column that is missing, a kind
            that is not known, a time that is none, two rows of one operation. Parquet without pyarrow
            names the extra.
    """
    table = _table(path)
    missing = [c for c in (*_NUMBERS, "optype", "start_ts", "duration") if c not in table.columns]
    if missing:
        raise ValueError(
            f"{path}: no log of operations (NDTimeline): it has no column {', '.join(missing)}; its columns "
            f"are {', '.join(map(str, table.columns[:12]))}"
        )
    if not len(table):
        raise ValueError(f"{path}: has no row")
    kinds = [str(kind) for kind in table["optype"]]
    unknown = sorted(set(kinds) - set(KINDS))
    if unknown:
        raise ValueError(f"{path}: optype: {unknown[0][:60]!r} is not known; known: {', '.join(KINDS)}")
    start_s, duration_s = (_seconds(path, table, name) for name in ("start_ts", "duration"))
    numbers = {name: _whole(path, table, name) for name in _NUMBERS}
    optional = {
        name: _whole(path, table, name, low=-1) if name in table.columns else np.full(len(table), -1)
        for name in _OPTIONAL
    }
    log = OperationLog(
        file=str(path),
        kind=kinds,
        start_s=start_s,
        duration_s=duration_s,
        dp_rank=numbers["dp_rank"],
        stage=numbers["stage"],
        rank=numbers["rank"],
        step=numbers["step"],
        number=numbers["seq_id"],
        chunk=optional["mc"],
        microbatch=optional["mb_id"],
    )
    _check_once(log)
    return log


def _table(path: Path) -> pd.DataFrame:
    from io import BytesIO, StringIO

    import pandas as pd

    if path.name.lower().endswith(".csv"):
        try:
            text = read_text(path)
            if text.partition("\n")[0].count(",") >= MOST_COLUMNS:
                raise FileError(path, f"no log of operations: it has more than {MOST_COLUMNS} columns")
            return pd.read_csv(StringIO(text))
        except (ValueError, pd.errors.ParserError) as error:
            if isinstance(error, FileError):
                raise
            raise ValueError(f"{path}: not a table of text (CSV): {error}") from None
    content = read_bytes(path)
    if not content.startswith(b"PAR1"):
        raise ValueError(f"{path}: is not a table in Parquet, and its name does not end in .csv")
    try:
        return pd.read_parquet(BytesIO(content))
    except ImportError:
        raise ValueError(
            f"{path}: is a table in Parquet, which needs pyarrow: pip install 'stepsim[parquet]'"
        ) from None
    except Exception as error:  # pyarrow's own kinds of errors, which no other package knows
        raise ValueError(f"{path}: a damaged table in Parquet: {str(error)[:200]}") from None


def _whole(path: Path, table: pd.DataFrame, name: str, low: int = 0) -> Ints:
    values = _floats(path, table, name)
    wrong = np.flatnonzero(~((values >= low) & (values < 2**53) & (values == np.floor(values))))
    if len(wrong):
        raise ValueError(f"{path}: {name}, row {wrong[0]}: must be a whole number of at least {low}")
    return values.astype(np.int64)


def _seconds(path: Path, table: pd.DataFrame, name: str) -> Floats:
    values = _floats(path, table, name)
    low = 0.0 if name == "duration" else -1e12
    high = _LONGEST_S if name == "duration" else 1e12
    wrong = np.flatnonzero(~((values >= low) & (values <= high)))
    if len(wrong):
        raise ValueError(f"{path}: {name}, row {wrong[0]}: must be seconds from {low:g} to {high:g}")
    return values


def _floats(path: Path, table: pd.DataFrame, name: str) -> Floats:
    column: Any = table[name]
    try:
        found: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: {name}: holds what is not a number") from None
    return found


def _check_once(log: OperationLog) -> None:
    """Each operation of a rank stands once in a step."""
    names = {kind: number for number, kind in enumerate(KINDS)}
    kinds = np.array([names[kind] for kind in log.kind])
    keys = np.stack([log.step, log.dp_rank, log.stage, kinds, log.number], axis=1)
    _, counts = np.unique(keys, axis=0, return_counts=True)
    if (counts > 1).any():
        raise ValueError(
            f"{log.file}: an operation stands twice (same step, dp_rank, stage, optype and seq_id); of the"
            " ranks of a tensor-parallel group keep one"
        )
