"""The CSV of measured kernels: one line a kernel, written as it is measured, read by whoever fits.

Columns (empty where they mean nothing for the kernel):

    id             the point's name; unique with device and versions, and what a resumed run goes by
    family         gemm, attention, memory: what curves are fitted on; launch, corun; triton: our GEMMs and
                   attention, to be held beside torch's
    operation      gemm, attention, "gemm beside copy", "host launch", "empty kernel", or a memory-bound one:
                   copy, triad, adam, rms_norm, layer_norm, swiglu, gelu, cross_entropy (and ..._backward)
    implementation torch (cuBLAS; a chain of torch kernels), fa2 or cudnn (torch's attention), triton (ours)
    shapes         which shapes are alike: one weight matrix under all numbers of tokens, one attention of all
                   lengths; split train and test sets by it
    dtype          bf16, fp16, fp32, fp8
    batch m n k out_bytes accumulate                                  of a kernels.kernel.Gemm
    batch seq_q seq_kv heads kv_heads head_dim causal direction       of a kernels.kernel.Attention
    rows columns launches                                             of a memory-bound kernel
    flops hbm_bytes                of every kernel, as its cost model counts them
    seconds p10_s p90_s runs       median and percentiles of the runs; host launch: of issuing one kernel
    beside alone_s beside_bytes_per_s    corun: thread blocks of the copy; the GEMM's seconds without it; the
                                         bytes a second that the copy read and wrote meanwhile
    sm_clock_hz power_w temperature_c    while the runs were under way (GPU)
    gpu            the catalogue's name, cpu, or empty for a GPU that it lacks
    device driver cuda torch triton stepsim date command    where it comes from; date in UTC, ISO 8601

Booleans are 0 and 1. Knows files; measures and fits nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ...hardware import files
from ...kernels.kernel import Attention, Gemm, Kernel, MemoryBound
from ..readers.foreign.csv_table import Line, read_table_of
from ..readers.foreign.values import written_number, written_seconds

COLUMNS = (
    *("id", "family", "operation", "implementation", "shapes", "dtype"),
    *("batch", "m", "n", "k", "out_bytes", "accumulate"),
    *("seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "causal", "direction"),
    *("rows", "columns", "launches", "flops", "hbm_bytes"),
    *("seconds", "p10_s", "p90_s", "runs", "beside", "alone_s", "beside_bytes_per_s"),
    *("sm_clock_hz", "power_w", "temperature_c", "gpu", "device", "driver", "cuda", "torch", "triton"),
    *("stepsim", "date", "command"),
)


@dataclass(frozen=True, kw_only=True)
class KernelRow:
    """One line, as far as a summary needs it; ``columns`` is all of it. ``operation`` has its direction."""

    id: str
    operation: str
    implementation: str
    dtype: str
    flops: float
    hbm_bytes: float
    seconds: float
    columns: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class KernelComparison:
    """How fast Triton's kernels ran beside torch's over ``shapes`` shapes that both have, as torch / Triton
    seconds: ``median`` (above 1: Triton is faster), ``low`` and ``high``.
    """

    operation: str
    dtype: str
    implementation: str
    shapes: int
    median: float
    low: float
    high: float


def triton_against_torch(rows: Iterable[KernelRow]) -> tuple[KernelComparison, ...]:
    """Triton's kernels beside those of every other implementation, by operation and dtype."""
    shapes: dict[tuple[str, str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        shape = row.id.removeprefix(f"{row.columns['operation']}-{row.implementation}-")
        shapes[row.operation, row.dtype, shape][row.implementation] = row.seconds
    ratios: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for (operation, dtype, _), seconds in shapes.items():
        for implementation in set(seconds) - {"triton"}:
            if "triton" in seconds:
                ratios[operation, dtype, implementation].append(seconds[implementation] / seconds["triton"])
    return tuple(
        KernelComparison(
            operation=operation,
            dtype=dtype,
            implementation=implementation,
            shapes=len(found),
            median=median(found),
            low=min(found),
            high=max(found),
        )
        for (operation, dtype, implementation), found in sorted(ratios.items())
    )


def kernel_columns(kernel: Kernel) -> dict[str, object]:
    """The columns that say what ``kernel`` is."""
    counts: dict[str, object] = {"flops": kernel.flops, "hbm_bytes": kernel.hbm_bytes}
    names: tuple[str, ...]
    match kernel:
        case Gemm():
            names = ("batch", "m", "n", "k", "dtype", "out_bytes", "accumulate")
        case Attention():
            names = (
                "batch",
                "seq_q",
                "seq_kv",
                "heads",
                "kv_heads",
                "head_dim",
                "causal",
                "dtype",
                "direction",
            )
        case MemoryBound():
            names = ("launches",)
    return counts | {name: getattr(kernel, name) for name in names}


def append_row(path: Path, row: Mapping[str, object]) -> None:
    """Append one line to ``path``, with the header where the file is new. Raises ValueError for no column."""
    unknown = set(row) - set(COLUMNS)
    if unknown:
        raise ValueError(f"{path}: no such columns: {', '.join(sorted(unknown))}")
    files.append_row(path, COLUMNS, {name: _text(value) for name, value in row.items()})


def _text(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else int(value)
    return "" if value is None else value


def read_rows(paths: Iterable[Path]) -> tuple[KernelRow, ...]:
    """All lines of the files, in their order.

    Raises ValueError, naming file and line, for an empty file, other columns, or what is no time.
    """
    return tuple(row for path in paths for row in _read(path))


def _read(path: Path) -> list[KernelRow]:
    table = read_table_of(path)
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(
            f"{path}: not a file of stepsim calibrate kernels: it lacks the columns {', '.join(missing)}"
        )
    if not table.lines:
        raise ValueError(f"{path}: no measurements in it")
    return [_row(f"{path}:{number}", line) for number, line in table.lines]


def _row(where: str, line: Line) -> KernelRow:
    counts = {
        name: written_number(f"{where}: {name}", line[name], high=1e30) for name in ("flops", "hbm_bytes")
    }
    return KernelRow(
        id=line["id"],
        operation=f"{line['operation']} {line['direction']}".strip(),
        implementation=line["implementation"],
        dtype=line["dtype"],
        seconds=written_seconds(where, line["seconds"]),
        flops=counts["flops"],
        hbm_bytes=counts["hbm_bytes"],
        columns=dict(line),
    )
