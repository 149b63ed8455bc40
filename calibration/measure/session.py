"""``stepsim calibrate kernels``: measures point after point until the budget is spent, and can go on later.

Knows the order of work and what a line of the CSV holds. What cannot run here (out of memory, no such
kernel on this GPU) is reported and left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import monotonic

from .device import Device, read_device, release
from .kernel_csv import append_row, kernel_columns, read_rows
from .nvml import Reading
from .operands import Run, memory_run, prepare, reason_of
from .points import Point, sweep
from .timing import Timing, time_empty_kernel, time_host_launch, time_overlapped, time_run

_COPY_BYTES = {"cuda": 2**28, "cpu": 2**23}  # of one copy beside a GEMM; larger than any cache


@dataclass(frozen=True, kw_only=True)
class SessionOutcome:
    """Points ``measured`` now, ``before`` by an earlier sweep into the same table, and ``left``.

    ``failed``: point and reason.
    """

    measured: int
    before: int
    left: int
    failed: tuple[tuple[str, str], ...]


def measure(
    device: Device,
    path: Path,
    *,
    budget_s: float,
    families: Sequence[str],
    origin: dict[str, str],
    say: Callable[[str], None],
    most: int | None = None,
) -> SessionOutcome:
    """Measure points of ``families`` that ``path`` does not hold yet, for ``budget_s`` or ``most`` of them.

    ``origin`` holds the columns stepsim and command. A point that began within the budget is finished.
    Raises ValueError where ``path`` is no such CSV or holds another device's measurements, and where the GPU
    answers no more after a kernel that failed.
    """
    done = known_points(path, device)
    todo = [p for p in sweep(device.kind, fp8=device.fp8, families=families) if p.id not in done]  # type: ignore[arg-type]
    deadline, failed, measured = monotonic() + budget_s, [], 0
    for number, point in enumerate(islice(todo, most)):
        left_s = deadline - monotonic()
        if left_s <= 0:
            break
        say(f"{number + 1} of {len(todo)}, {max(0.0, left_s):.0f} s left: {point.id}")
        columns, why = _tried(point, device)
        if columns is None:
            failed.append((point.id, why))
            release(device.kind, after=point.id)
            continue
        append_row(path, columns | _origin(device) | origin)
        measured += 1
    left = len(todo) - measured - len(failed)
    return SessionOutcome(measured=measured, before=len(done), left=left, failed=tuple(failed))


def _tried(point: Point, device: Device) -> tuple[dict[str, object] | None, str]:
    """The columns of a point, or why it has none; what it held on the device is free on return."""
    try:
        return measure_point(point, device), ""
    except Exception as reason:  # torch's, Triton's and its compilers' own, which have no base in common
        return None, reason_of(reason)


def known_points(path: Path, device: Device) -> set[str]:
    """Points that ``path`` holds of this device. Raises ValueError where it holds another's."""
    if not path.exists() or path.stat().st_size == 0:
        return set()
    rows = read_rows([path])
    here = {"device": device.name, "gpu": device.gpu, "torch": device.torch}
    for name, value in here.items():
        others = {row.columns[name] for row in rows} - {value}
        if others:
            raise ValueError(
                f"{path}: holds measurements with {name} {', '.join(sorted(others))!r}; "
                f"here it is {value!r}: write these to another file with --out"
            )
    return {row.id for row in rows}


def measure_point(point: Point, device: Device) -> dict[str, object]:
    """The columns of one measured point, but for where it comes from."""
    columns: dict[str, object] = {
        "id": point.id,
        "family": point.family,
        "operation": point.operation,
        "implementation": point.implementation,
        "shapes": point.shapes,
        "dtype": point.dtype,
        "rows": point.rows or None,
        "columns": point.columns or None,
        **kernel_columns(point.kernel),
    }
    found, extra, reading = _timed(point, device)
    return columns | extra | {
        "seconds": found.median_s,
        "p10_s": found.p10_s,
        "p90_s": found.p90_s,
        "runs": found.runs,
        **asdict(reading),
    }  # fmt: skip


def _timed(point: Point, device: Device) -> tuple[Timing, dict[str, object], Reading]:
    kind, readings = device.kind, [Reading()]

    def look() -> None:
        readings[0] = read_device(kind)

    if point.operation == "host launch":
        return time_host_launch(kind), {}, readings[0]
    if point.operation == "empty kernel":
        return time_empty_kernel(kind), {}, readings[0]
    run = prepare(point, kind, device.sram_bytes)
    found = time_run(run, kind, meanwhile=look)
    if not point.beside:
        return found, {}, readings[0]
    beside, rate = time_overlapped(run, _copy(point, kind), 2.0 * _COPY_BYTES[kind], kind)
    extra: dict[str, object] = {"beside": point.beside, "alone_s": found.median_s, "beside_bytes_per_s": rate}
    return beside, extra, readings[0]


def _copy(point: Point, kind: str) -> Run:
    """A copy by ``point.beside`` thread blocks (on a CPU: by its thread)."""
    elements = _COPY_BYTES[kind] // 4
    if kind == "cpu":
        return memory_run("copy", 1, elements, "fp32", kind, fused=False)
    import torch

    from ...kernels.run.stream import copy_by_few

    source = torch.zeros(elements, device=kind)
    target = torch.empty_like(source)
    return lambda: copy_by_few(source, target, point.beside)


def _origin(device: Device) -> dict[str, object]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    versions = {"driver": device.driver, "cuda": device.cuda, "torch": device.torch, "triton": device.triton}
    return {"device": device.name, "gpu": device.gpu, "date": now, **versions}
