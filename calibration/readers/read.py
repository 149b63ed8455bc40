"""Any file of measurements, by what it is: a table, a profiler's trace, a log of nccl-tests, an archive.

Knows which reader a file is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...hardware.calibrated.models import CPU
from ...hardware.files import Refusal, read_opened, require_file
from ...hardware.gpus import get_gpu
from ...hardware.interconnect import get_interconnect
from .measured import Measured, MeasuredCollective, domains_of
from .measurements import read_points
from .named_gpus import StatedGpu, name_of
from .nccl_log import read_log
from .nccl_system import system_of, tuned
from .tables import read_table


def read_measured(
    paths: Sequence[Path], gpu: StatedGpu | None = None, interconnect: str | None = None
) -> tuple[tuple[Measured, ...], tuple[Refusal, ...]]:
    """The content of every file that can be used, archives opened, and why the others cannot.

    ``gpu`` and ``interconnect`` are of those that do not say; a GPU
    may be one that a user describes. Raises ValueError for an unknown one, and where
    not one file can be used, naming each and what is wrong in it.
    """
    if isinstance(gpu, str) and gpu != CPU:
        gpu = get_gpu(gpu).name
    if interconnect is not None:
        get_interconnect(interconnect)
    return read_opened(paths, lambda path, content: read_one(path, gpu, interconnect, content))


def read_one(
    path: Path, gpu: StatedGpu | None = None, interconnect: str | None = None, content: bytes | None = None
) -> Measured:
    """The content of one file, or of a member of an archive that is called ``path``: its ``content``.

    ValueError naming it, the place in it, and what is wrong.
    """
    name = path.name.lower()
    if content is None:
        require_file(path)
        if path.stat().st_size == 0:
            raise ValueError(f"{path}: is empty")
        if name.endswith((".yaml", ".yml")):
            return _points(path, gpu)
    if name.endswith(".csv"):
        return read_table(path, gpu, content)
    if gpu == CPU:
        raise ValueError(f"{path}: is not a table, and only tables are of a CPU, as --gpu says")
    if name.endswith((".json", ".json.gz")):
        from .kineto import read_trace

        return read_trace(path, gpu, content)
    if content is not None and name.endswith((".yaml", ".yml", ".sqlite", ".db")):
        raise ValueError(f"{path}: is read as a file of its own; unpack it")
    if name.endswith((".sqlite", ".db")):
        from .nsys import read_nsys

        return read_nsys(path, gpu)
    return _log(path, content, gpu, interconnect)


def _points(path: Path, gpu: StatedGpu | None) -> Measured:
    """A file of kernel points (kind: kernels), those of ``gpu`` alone where it is stated."""
    points, skipped = read_points([path])
    found = sorted({point.gpu for point in points})
    if gpu is None and len(found) > 1:
        raise ValueError(f"{path}: holds points of {', '.join(found)}; choose one with --gpu")
    name = name_of(gpu) if gpu else next(iter(found), None)
    own = tuple(point for point in points if point.gpu == name and not point.best_of_search)
    if name is None or not own:
        raise ValueError(f"{path}: has no point of {name or 'a kernel that can be priced'}")
    if gpu is None:
        get_gpu(name)  # the file's own word
    passed = {reason: list(skipped.values()).count(reason) for reason in set(skipped.values())}
    return Measured(file=str(path), gpu=name, kernels=own, passed_over=passed)


def _log(path: Path, content: bytes | None, gpu: StatedGpu | None, interconnect: str | None) -> Measured:
    log = read_log(path, content)
    if tuned(log):
        raise ValueError(
            f"{path}: ran with settings that it does not state, so that no fit may learn from it"
        )
    system = system_of(log, gpu, interconnect)
    apart = system.nodes_per_rack  # NVLink joins that many hosts, whatever the rack
    domains = log.nodes // apart if apart else domains_of(system.gpu, log.ranks, log.nodes)
    points = [
        MeasuredCollective(
            kind=log.kind, ranks=log.ranks, domains=domains, bytes=float(row.bytes), seconds=row.seconds
        )
        for row in log.rows
    ]
    facts = {"nccl": log.nccl or "", "device": log.gpu or ""}
    return Measured(
        file=str(path),
        gpu=name_of(system.gpu),
        collectives=tuple(points),
        passed_over={"rows of no bytes": log.skipped} if log.skipped else {},
        facts={name: value for name, value in facts.items() if value},
    )
