"""Reports of Nsight Systems, exported to SQLite: ``nsys export --type sqlite``.

Knows the tables of kernels, launches and NVTX ranges. Shapes come from torch's NVTX ranges
(``torch.autograd.profiler.emit_nvtx(record_shapes=True)``): the innermost one around a kernel's launch.
Which ranks a collective has is not in these tables, so that collectives give overlap and no curve; NCCL's own
payloads (nccl_payloads.py) tell their sizes.

SQLite checks no types: every value that is used is looked at, once, and a wrong one is named by its row.

Sources: NVIDIA Nsight Systems, exporter SQLite schema; torch/csrc/profiler/util.cpp (getNvtxStr).
"""

from __future__ import annotations

import re
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

from ...hardware.files import load_json, open_database
from ...kernels.kernel import Kernel
from .foreign.gpu_named import gpu_named
from .foreign.values import LARGEST_BYTES, number, shown, text, whole
from .measured import Measured
from .named_gpus import StatedGpu, agreed_gpu, name_of
from .nccl_payloads import NcclCall, nccl_calls
from .traced import Span, facts_of, is_collective, kernel_of, measurements_of, shapes_of

_NANO = 1e-9
_LATEST_NS = 2**62
_NVTX = re.compile(r"(aten::\w+)(?:, seq = \d+)?(?:, op_id = \d+)?.*?, sizes = (\[[\d\s,\[\]]{0,4096}\])")
_TYPES = (("bf16", "bf16"), ("bfloat16", "bf16"), ("f16", "fp16"), ("half", "fp16"), ("e4m3", "fp8"))
_NO_SHAPES = "kernels without shapes (torch.autograd.profiler.emit_nvtx(record_shapes=True))"
_KERNELS, _LAUNCHES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME"
Launch = tuple[int, int]  # thread, nanoseconds
T = TypeVar("T")


def read_nsys(path: Path, gpu: StatedGpu | None) -> Measured:
    """Kernels by shape where NVTX ranges give it, and overlap.

    Raises ValueError naming the file, and table and row of what is wrong: no SQLite, no kernels, an unknown
    GPU or another one than ``gpu``.
    """
    with open_database(path) as base:
        return _read(path, base, gpu)


def _read(path: Path, base: sqlite3.Connection, gpu: StatedGpu | None) -> Measured:
    columns = _columns(base)
    if _KERNELS not in columns:
        raise ValueError(f"{path}: has no kernels; profile with nsys profile --trace cuda,nvtx")
    traced, device = _gpu(path, base, columns, gpu)
    name = name_of(traced)
    ranges = _operators(path, base) if {"NVTX_EVENTS", _LAUNCHES} <= set(columns) else None
    passed: Counter[str] = Counter()
    devices: dict[int, tuple[list[Span], list[Span]]] = {}
    found: dict[tuple[str, int], tuple[Kernel, float]] = {}
    for span, kernel_name, correlation, number_ in _rows(path, base, columns):
        compute, sent = devices.setdefault(number_, ([], []))
        if is_collective(kernel_name):
            sent.append(span)
            passed["collectives, whose ranks these reports lack"] += 1
            continue
        compute.append(span)
        operator = ranges.around(correlation) if ranges else None
        kernel = _priced(f"{path}: NVTX_EVENTS", operator[0], kernel_name) if operator else None
        if operator is None or kernel is None:
            passed[_NO_SHAPES] += 1
            continue
        _, total_s = found.get(operator, (kernel, 0.0))
        found[operator] = kernel, total_s + span[1] - span[0]
    return Measured(
        file=str(path),
        gpu=name,
        kernels=measurements_of((one for one in found.values() if one[1] > 0), name, path.name),
        passed_over=dict(passed),
        facts=facts_of(devices.values(), [], 0) | ({"device": device} if device else {}),
    )


def device_of(path: Path, base: sqlite3.Connection) -> tuple[str, str | None]:
    """The GPU of a report: by the name that the report gives it ("" if none), and by the catalogue's name
    of it (None where the catalogue lacks it).

    Raises:
        ValueError: the report has no kernels.
    """
    columns = _columns(base)
    if _KERNELS not in columns:
        raise ValueError(f"{path}: has no kernels; profile with nsys profile --trace cuda,nvtx")
    device, memory = _told_gpu(path, base, columns)
    return device, gpu_named(device, memory) if device else None


def kernel_rows(path: Path, base: sqlite3.Connection) -> Iterator[tuple[Span, str, int, int]]:
    """Span in seconds, name, correlation and device of every kernel, in order."""
    yield from _rows(path, base, _columns(base))


def launch_spans(path: Path, base: sqlite3.Connection) -> dict[int, Span]:
    """Begin and end of the host's call in seconds, by correlation number."""
    if not {"correlationId", "start", "end"} <= _columns(base).get(_LAUNCHES, set()):
        return {}
    found: dict[int, Span] = {}
    for row, correlation, start, end in base.execute(
        f"SELECT rowid, correlationId, start, end FROM {_LAUNCHES} WHERE correlationId IS NOT NULL"
    ):
        where = f"{path}: {_LAUNCHES} row {row}"
        begin = whole(f"{where}: start", start, high=_LATEST_NS)
        stop = whole(f"{where}: end", end, low=begin, high=_LATEST_NS)
        number_ = whole(f"{where}: correlationId", correlation, high=2**63)
        found[number_] = begin * _NANO, stop * _NANO
    return found


def nvtx_ranges(path: Path, base: sqlite3.Connection) -> Iterator[tuple[str, Span]]:
    """Text and span of the NVTX ranges that have an end, in order of their start."""
    if "NVTX_EVENTS" not in _columns(base):
        return
    for row, start, end, said in base.execute(
        "SELECT n.rowid, n.start, n.end, COALESCE(n.text, s.value) FROM NVTX_EVENTS AS n "
        "LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.end IS NOT NULL ORDER BY n.start"
    ):
        if type(said) is str:
            where = f"{path}: NVTX_EVENTS row {row}"
            begin = whole(f"{where}: start", start, high=_LATEST_NS)
            stop = whole(f"{where}: end", end, low=begin, high=_LATEST_NS)
            yield said[:200], (begin * _NANO, stop * _NANO)


def _columns(base: sqlite3.Connection) -> dict[str, set[str]]:
    """The columns of every table that is read."""
    tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    known = {_KERNELS, _LAUNCHES, "NVTX_EVENTS", "TARGET_INFO_GPU"} & tables
    return {name: {row[1] for row in base.execute(f"PRAGMA table_info({name})")} for name in known}


def _gpu(
    path: Path, base: sqlite3.Connection, columns: dict[str, set[str]], stated: StatedGpu | None
) -> tuple[StatedGpu, str]:
    """The GPU, by the report or as stated, which must agree; and its name there."""
    device, memory = _told_gpu(path, base, columns)
    if gpu := agreed_gpu(path, gpu_named(device, memory), stated, device):
        return gpu, device
    raise ValueError(f"{path}: no GPU of the catalogue in {shown(device)}; give --gpu")


def _told_gpu(path: Path, base: sqlite3.Connection, columns: dict[str, set[str]]) -> tuple[str, float]:
    """Name and memory in bytes of the first GPU that the report lists; empty and 0 where it lists none."""
    device, memory = "", 0.0
    if "TARGET_INFO_GPU" in columns:
        size = "totalMemory" if "totalMemory" in columns["TARGET_INFO_GPU"] else "NULL"
        where = f"{path}: TARGET_INFO_GPU"
        for called, bytes_ in base.execute(f"SELECT name, {size} FROM TARGET_INFO_GPU LIMIT 1"):
            device = "" if called is None else text(f"{where}: name", called)
            memory = number(f"{where}: totalMemory", bytes_ or 0, high=LARGEST_BYTES)
    return device, memory


def _rows(
    path: Path, base: sqlite3.Connection, columns: dict[str, set[str]]
) -> Iterator[tuple[Span, str, int, int]]:
    """Span in seconds, name, correlation and device of every kernel, in order."""
    device = "k.deviceId" if "deviceId" in columns[_KERNELS] else "0"
    rows = base.execute(
        f"SELECT k.rowid, k.start, k.end, s.value, k.correlationId, {device} FROM {_KERNELS} AS k "
        "LEFT JOIN StringIds AS s ON s.id = k.demangledName ORDER BY k.start"
    )
    for row, start, end, name, correlation, number_ in rows:
        where = f"{path}: {_KERNELS} row {row}"
        begin = whole(f"{where}: start", start, high=_LATEST_NS)
        stop = whole(f"{where}: end", end, low=begin, high=_LATEST_NS)
        kernel_name = text(f"{where}: demangledName", name)
        launched = 0 if correlation is None else whole(f"{where}: correlationId", correlation, high=2**63)
        yield (begin * _NANO, stop * _NANO), kernel_name, launched, whole(f"{where}: deviceId", number_)


class LaunchRanges(Generic[T]):
    """Ranges on threads of the host, and which of them a kernel was launched in."""

    def __init__(self, path: Path, base: sqlite3.Connection) -> None:
        self.launches: dict[int, Launch] = {}
        launches = base.execute(f"SELECT rowid, correlationId, globalTid, start FROM {_LAUNCHES}")
        for row, correlation, thread, start in launches:
            if correlation is None:
                continue  # a call that launched nothing
            where = f"{path}: {_LAUNCHES} row {row}"
            self.launches[whole(f"{where}: correlationId", correlation, high=2**63)] = (
                _thread(where, thread),
                whole(f"{where}: start", start, high=_LATEST_NS),
            )
        self.threads: dict[int, list[tuple[int, int, T]]] = {}

    def add(self, where: str, start: object, end: object, thread: object, what: T) -> None:
        """Add a range of a host's thread, from ``start`` to ``end`` in nanoseconds, which stands for
        ``what``. Ranges are to be added in the order of their starts.

        Raises:
            ValueError: a time or the thread is no number in its range; names ``where`` it stands.
        """
        begin = whole(f"{where}: start", start, high=_LATEST_NS)
        stop = whole(f"{where}: end", end, low=begin, high=_LATEST_NS)
        self.threads.setdefault(_thread(where, thread), []).append((begin, stop, what))

    @cached_property
    def _starts(self) -> dict[int, list[int]]:
        return {thread: [one[0] for one in ranges] for thread, ranges in self.threads.items()}

    def around(self, correlation: int) -> tuple[T, int] | None:
        """What the innermost range around a launch stands for, and the range's start in nanoseconds; None
        where the launch is in no range. To be asked only when all ranges have been added."""
        thread, at = self.launches.get(correlation, (0, 0))
        ranges: Sequence[tuple[int, int, T]] = self.threads.get(thread, ())
        for start, end, what in reversed(ranges[: bisect_right(self._starts.get(thread, []), at)]):
            if end >= at:
                return what, start
        return None


def _operators(path: Path, base: sqlite3.Connection) -> LaunchRanges[str]:
    """torch's operators with their shapes."""
    found: LaunchRanges[str] = LaunchRanges(path, base)
    rows = base.execute(
        "SELECT n.rowid, n.start, n.end, n.globalTid, COALESCE(n.text, s.value) FROM NVTX_EVENTS AS n "
        "LEFT JOIN StringIds AS s ON s.id = n.textId WHERE n.end IS NOT NULL ORDER BY n.start"
    )
    for row, start, end, thread, said in rows:
        if type(said) is str and _NVTX.search(said):  # ranges of others may have any text
            found.add(f"{path}: NVTX_EVENTS row {row}", start, end, thread, said)
    return found


def message_ranges(path: Path, base: sqlite3.Connection) -> LaunchRanges[NcclCall] | None:
    """NCCL's calls with what they move; None of a report without launches or payloads."""
    columns = _columns(base)
    if not {"NVTX_EVENTS", _LAUNCHES} <= columns.keys():
        return None
    calls = dict(nccl_calls(base))
    if not calls:
        return None
    found: LaunchRanges[NcclCall] = LaunchRanges(path, base)
    for row, start, end, thread in base.execute(
        "SELECT rowid, start, end, globalTid FROM NVTX_EVENTS WHERE end IS NOT NULL ORDER BY start"
    ):
        if row in calls:
            found.add(f"{path}: NVTX_EVENTS row {row}", start, end, thread, calls[row])
    return found


def _thread(where: str, value: object) -> int:
    """The global number of a thread, which packs machine, process and thread and may be negative."""
    return whole(f"{where}: globalTid", value, low=-(2**63), high=2**63)


def _priced(where: str, said: str, kernel_name: str) -> Kernel | None:
    found = _NVTX.search(said)
    dtype = next((ours for word, ours in _TYPES if word in kernel_name.lower()), None)
    if found is None or dtype is None:
        return None
    return kernel_of(found[1], _shapes(f"{where}: {shown(said)}", found[2]), dtype)


def _shapes(where: str, sizes: str) -> list[list[int]]:
    """``[[4096, 1024], []]``, which is JSON, as lists. ValueError for other brackets."""
    return shapes_of(where, load_json(sizes, where))
