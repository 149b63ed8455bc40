"""Tables of many GPUs' collectives on one host, one line a size, as inference planners measure them.

Knows their columns (``gpu gpus collective dtype elements latency_ms source``) and that ``elements`` are
counted as nccl-tests does, so that their bytes are a log's. Repeats of one size under one version of NCCL are
one point, their median. Columns of others are passed over. Which points no fit may see is decided here, by
a hash of size and ranks alone.

Source: ai-dynamo/aiconfigurator (NVIDIA, Apache-2.0), systems/data/*/nccl.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ...hardware.catalogue import unknown_name
from ...hardware.collective_kinds import KINDS, known_kind
from .foreign.csv_table import Line, read_table_of
from .foreign.values import LARGEST_SECONDS, written_number, written_whole
from .kernel_tables import left_out
from .named_gpus import named_gpu

_COLUMNS = ("gpu", "gpus", "collective", "dtype", "elements", "latency_ms")
_BYTES = {"half": 2, "bfloat16": 2, "float": 4, "int8": 1}
_VERSION = re.compile(r"nccl/(\d+(?:\.\d+)+)")


@dataclass(frozen=True, kw_only=True)
class TableSweep:
    """One collective of one group on one host; ``points`` are (bytes, seconds), ``nccl`` may be empty."""

    gpu: str
    kind: str
    ranks: int
    nccl: str
    points: tuple[tuple[float, float], ...]

    @property
    def name(self) -> str:
        """The name that a log of this collective would have."""
        version = f"_nccl{self.nccl}" if self.nccl else ""
        return f"{self.gpu}_1n{self.ranks}g_{self.kind}{version}"


def unseen(size_bytes: float, ranks: int) -> bool:
    """Whether the fits leave out a size of a group: one in four.

    >>> [unseen(2.0**power, 8) for power in (20, 21, 22, 23, 24)]
    [True, False, True, False, False]
    """
    return left_out(int(size_bytes), ranks)


def is_collective_table(path: Path) -> bool:
    """Whether ``path`` is such a table: a CSV file with its columns."""
    return path.suffix.lower() == ".csv" and set(_COLUMNS) <= set(read_table_of(path).columns)


def read_collective_table(path: Path) -> tuple[TableSweep, ...]:
    """All sweeps of the table, in the order of their first lines.

    Raises ValueError naming file, line and column for an unknown GPU, collective or type, and for no number.
    """
    table = read_table_of(path)
    groups: dict[tuple[str, str, int, str], dict[int, list[float]]] = {}
    for number, line in table.lines:
        where = f"{path}:{number}"
        key, size, seconds = _read(where, line)
        groups.setdefault(key, {}).setdefault(size, []).append(seconds)
    return tuple(
        TableSweep(
            gpu=gpu,
            kind=kind,
            ranks=ranks,
            nccl=nccl,
            points=tuple((float(size), median(times)) for size, times in sorted(sizes.items())),
        )
        for (gpu, kind, ranks, nccl), sizes in groups.items()
    )


def _read(where: str, line: Line) -> tuple[tuple[str, str, int, str], int, float]:
    gpu = named_gpu(where, line["gpu"])
    kind = known_kind(line["collective"])
    if kind is None:
        raise ValueError(f"{where}: collective: {unknown_name('collective', line['collective'], KINDS)}")
    if line["dtype"] not in _BYTES:
        raise ValueError(f"{where}: dtype: {unknown_name('data type', line['dtype'], _BYTES)}")
    ranks = written_whole(f"{where}: gpus", line["gpus"], low=2)
    size = written_whole(f"{where}: elements", line["elements"], low=1) * _BYTES[line["dtype"]]
    latency = written_number(f"{where}: latency_ms", line["latency_ms"], low=1e-9, high=LARGEST_SECONDS)
    version = _VERSION.search(line.get("source", ""))
    return (gpu, kind, ranks, version[1] if version else ""), size, latency / 1e3


__all__ = ["TableSweep", "is_collective_table", "read_collective_table", "unseen"]
