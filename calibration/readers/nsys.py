"""Reports of Nsight Systems, exported to SQLite: ``nsys export --type sqlite``.

Knows the tables of kernels, launches and NVTX ranges. Shapes come from torch's NVTX ranges
(``torch.autograd.profiler.emit_nvtx(record_shapes=True)``): the innermost one around a kernel's launch.
NCCL's message sizes are not in these tables, so that collectives give overlap and no curve.

Sources: NVIDIA Nsight Systems, exporter SQLite schema; torch/csrc/profiler/util.cpp (getNvtxStr).
"""

from __future__ import annotations

import ast
import re
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from ...kernels.kernel import Kernel
from ..gpu_named import gpu_named
from .measured import Measured
from .traced import facts_of, is_collective, kernel_of, measurements_of

_NANO = 1e-9
_NVTX = re.compile(r"(aten::\w+)(?:, seq = \d+)?(?:, op_id = \d+)?.*?, sizes = (\[.*\])")
_TYPES = (("bf16", "bf16"), ("bfloat16", "bf16"), ("f16", "fp16"), ("half", "fp16"), ("e4m3", "fp8"))
Launch = tuple[int, int]  # thread, nanoseconds


def read_nsys(path: Path, gpu: str | None = None) -> Measured:
    """Kernels by shape where NVTX ranges give it, and overlap.

    Raises ValueError naming the file: no SQLite, no kernels, an unknown GPU or another one than ``gpu``.
    """
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as base:
            return _read(path, base, gpu)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path}: not a report of Nsight Systems as SQLite: {error}") from None


def _read(path: Path, base: sqlite3.Connection, gpu: str | None) -> Measured:
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
        raise ValueError(f"{path}: has no kernels; profile with nsys profile --trace cuda,nvtx")
    device = (
        next((name for (name,) in base.execute("SELECT name FROM TARGET_INFO_GPU")), "")
        if ("TARGET_INFO_GPU" in tables)
        else ""
    )
    name = gpu_named(device)
    if name and gpu and name != gpu:
        raise ValueError(f"{path}: is of {device} ({name}), not of {gpu} as --gpu says")
    if not (name or gpu):
        raise ValueError(f"{path}: no GPU of the catalogue in {device!r}; give --gpu")
    ranges = _Ranges(base) if {"NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME"} <= tables else None
    passed: Counter[str] = Counter()
    compute, sent = [], []
    found: dict[tuple[str, int], tuple[Kernel, float]] = {}
    for begin, end, text, correlation in _rows(base):
        span = (begin * _NANO, end * _NANO)
        if is_collective(text):
            sent.append(span)
            passed["collectives, whose sizes these reports lack"] += 1
            continue
        compute.append(span)
        operator = ranges.around(correlation) if ranges else None
        kernel = _priced(operator[0], text) if operator else None
        if operator is None or kernel is None:
            passed["kernels without shapes (torch.autograd.profiler.emit_nvtx(record_shapes=True))"] += 1
            continue
        _, total_s = found.get(operator, (kernel, 0.0))
        found[operator] = kernel, total_s + span[1] - span[0]
    return Measured(
        file=str(path),
        gpu=name or str(gpu),
        kernels=measurements_of(found.values(), name or str(gpu), path.name),
        passed_over=dict(passed),
        facts=facts_of(compute, sent, []) | ({"device": device} if device else {}),
    )


def _rows(base: sqlite3.Connection) -> Iterator[tuple[int, int, str, int]]:
    """Start, end, name and correlation of every kernel, in order."""
    yield from base.execute(
        "SELECT k.start, k.end, s.value, k.correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
        "JOIN StringIds AS s ON s.id = k.demangledName ORDER BY k.start"
    )


class _Ranges:
    """NVTX ranges of torch's operators, and which of them a kernel was launched in."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self.launches: dict[int, Launch] = {
            correlation: (thread, start)
            for correlation, thread, start in base.execute(
                "SELECT correlationId, globalTid, start FROM CUPTI_ACTIVITY_KIND_RUNTIME"
            )
        }
        self.threads: dict[int, list[tuple[int, int, str]]] = {}
        rows = base.execute(
            "SELECT n.start, n.end, n.globalTid, COALESCE(n.text, s.value) FROM NVTX_EVENTS AS n "
            "LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.end IS NOT NULL ORDER BY n.start"
        )
        for start, end, thread, text in rows:
            if text and _NVTX.search(text):
                self.threads.setdefault(thread, []).append((start, end, text))
        self.starts = {thread: [one[0] for one in ranges] for thread, ranges in self.threads.items()}

    def around(self, correlation: int) -> tuple[str, int] | None:
        """The innermost range around the launch: its text and start."""
        thread, at = self.launches.get(correlation, (0, 0))
        ranges: Sequence[tuple[int, int, str]] = self.threads.get(thread, ())
        for start, end, text in reversed(ranges[: bisect_right(self.starts.get(thread, []), at)]):
            if end >= at:
                return text, start
        return None


def _priced(text: str, kernel_name: str) -> Kernel | None:
    found = _NVTX.search(text)
    dtype = next((ours for word, ours in _TYPES if word in kernel_name.lower()), None)
    if found is None or dtype is None:
        return None
    try:
        dims = ast.literal_eval(found[2])
    except (ValueError, SyntaxError):
        return None
    shapes = [one if isinstance(one, list) and all(isinstance(n, int) for n in one) else [] for one in dims]
    return kernel_of(found[1], shapes, dtype)
