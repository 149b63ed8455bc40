"""Measures collectives between the processes of this job: NCCL on GPUs, gloo on CPUs.

Knows what each collective moves, how its result is checked, and how it is timed: all groups of an axis
run at once, as in training; a sample is a run of calls after a barrier; of each sample the slowest
rank's time counts, and of the samples the median. Sizes are nccl-tests': the whole buffer that is
gathered or scattered, or reduced, and of all_to_all each rank's own.

torch is imported inside functions. A table is appended to as it is measured, so that a run that is cut
short can go on.

Sources: NVIDIA/nccl-tests doc/PERFORMANCE.md (sizes; sendrecv: each to the next of its group).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ...hardware.files import append_row
from ..readers.foreign.csv_table import read_table_of
from .work import KINDS, MeasuredWork, work

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess

COLUMNS = (
    *("kind", "ranks", "hosts", "groups", "axis", "bytes", "dtype", "seconds", "p10_s", "p90_s", "samples"),
    *("calls", "correct", "backend", "gpu", "device", "cuda", "torch", "nccl", "stepsim", "date", "command"),
)
BACKENDS = ("nccl", "gloo")
_ROUNDS, _SAMPLES = 3, 9  # all sizes in turn, several times: what else the machine does changes over seconds
_SAMPLE_S = (
    0.01  # calls are repeated until a sample takes this long, so that clocks and wake-ups do not count
)
_MOST_CALLS = 200
_ELEMENT_BYTES = 4  # float32, whose sums of small whole numbers are exact


@dataclass(frozen=True, kw_only=True)
class MeasuredGroups:
    """The process groups of one axis: disjoint, of one size, together all ranks."""

    axis: str
    members: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Session:
    """What to measure, and what to write beside it. ``origin``: stepsim's version, date, command."""

    kinds: tuple[str, ...]
    sizes: tuple[int, ...]
    groups: tuple[MeasuredGroups, ...]
    backend: str
    out: Path
    budget_s: float
    origin: Mapping[str, str]


def under_torchrun() -> bool:
    """Whether a launcher has told this process its rank."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def world_size() -> int:
    """Processes that the launcher started."""
    return int(os.environ["WORLD_SIZE"])


def spawn(processes: int, session: Session) -> None:
    """Run ``session`` in that many processes of this machine.

    ValueError where one of them fails; what it printed says why.
    """
    import multiprocessing
    from multiprocessing.connection import wait

    # They meet at a file: a port that was free when somebody asked may be taken when it is needed.
    with TemporaryDirectory(prefix="stepsim-") as folder:
        context = multiprocessing.get_context("spawn")
        children = [
            context.Process(target=_child, args=(rank, processes, f"file://{folder}/store", session))
            for rank in range(processes)
        ]
        for child in children:
            child.start()
        running = {child.sentinel: rank for rank, child in enumerate(children)}
        while running:
            for rank in [running.pop(ended) for ended in wait(list(running)) if isinstance(ended, int)]:
                children[rank].join()
                if children[rank].exitcode:
                    _end(children)
                    raise ValueError(f"rank {rank} failed; see its message above")


def _end(children: Sequence[BaseProcess]) -> None:
    """Ends what still runs: the ranks that wait for one that has failed wait for nothing."""
    for child in children:
        child.terminate()
    for child in children:
        child.join()


def _child(rank: int, processes: int, store: str, session: Session) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
    measure(session, store=store)


def measure(session: Session, *, store: str = "env://") -> None:
    """Measure everything, in a process that knows its rank; rank 0 writes the table.

    The ranks meet at ``store``, a URL as torch takes it: by default where the launcher's environment says.

    Raises ValueError where groups do not match the world, a result is wrong, or a GPU is missing.
    """
    from datetime import timedelta

    import torch
    import torch.distributed as dist

    if session.backend == "nccl":
        if not torch.cuda.is_available():
            raise ValueError("--backend nccl: torch finds no GPU here; --backend gloo measures CPUs")
        place, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if place >= gpus:  # NCCL refuses two ranks on one GPU, after a long while and in other words
            raise ValueError(
                f"--backend nccl: local rank {place}, but torch finds {gpus} GPUs here: one a rank"
            )
        torch.cuda.set_device(place)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(
        session.backend,
        init_method=store,
        rank=int(os.environ["RANK"]),
        world_size=world_size(),
        timeout=timedelta(minutes=10),
    )
    try:
        _measure_all(session, _Bench(torch, dist, session))
    finally:
        dist.destroy_process_group()


def _measure_all(session: Session, bench: _Bench) -> None:
    done, begun = bench.already(session.out), time.monotonic()
    for groups in session.groups:
        bench.enter(groups)
        for kind in session.kinds:
            if bench.out_of_time(begun, session.budget_s):
                return
            sizes = {bench.payload(kind, size) for size in session.sizes}
            place = (kind, str(bench.ranks), str(bench.hosts), groups.axis)
            bench.sweep(kind, sorted(size for size in sizes if (*place, str(size)) not in done), groups)


class _Bench:
    """torch.distributed at work: the group that this rank is in, and one measurement at a time."""

    def __init__(self, torch: Any, dist: Any, session: Session) -> None:
        self.torch, self.dist, self.session = torch, dist, session
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.device = torch.device("cuda" if session.backend == "nccl" else "cpu")
        names: list[Any] = [None] * self.world
        dist.all_gather_object(names, platform.node())
        self.names = names
        self.facts = _facts(torch, session)

    def already(self, path: Path) -> set[tuple[str, ...]]:
        """What the table holds already, as rank 0 reads it."""
        found: list[Any] = [None]
        if self.rank == 0:
            found[0] = _keys(path)
        self.dist.broadcast_object_list(found, src=0)
        return set(found[0])

    def enter(self, groups: MeasuredGroups) -> None:
        """Join this rank's group; every rank has to build every group, in the same order."""
        if sorted(rank for members in groups.members for rank in members) != list(range(self.world)):
            raise ValueError(f"groups of {groups.axis} are not of the {self.world} ranks that were started")
        for members in groups.members:
            group = self.dist.new_group(list(members))
            if self.rank in members:
                self.group, self.members = group, members
        self.ranks = len(self.members)
        self.hosts = max(len({self.names[rank] for rank in members}) for members in groups.members)
        self.place = self.members.index(self.rank)

    def out_of_time(self, begun: float, budget_s: float) -> bool:
        """Whether rank 0 finds the budget spent: all have to stop at the same place."""
        flag = self.torch.tensor([float(time.monotonic() - begun > budget_s)], device=self.device)
        self.dist.broadcast(flag, src=0)
        return bool(flag.item())

    def payload(self, kind: str, size: int) -> int:
        """The size in whole elements, the same number for each rank where it is shared out."""
        share = self.ranks if kind in ("all_gather", "reduce_scatter", "all_to_all") else 1
        return max(1, round(size / _ELEMENT_BYTES / share)) * share * _ELEMENT_BYTES

    def sweep(self, kind: str, payloads: Sequence[int], groups: MeasuredGroups) -> None:
        """Measure one collective at each of ``payloads`` bytes, and have rank 0 write a row for each.

        Every result is checked first. Sizes are timed in turn, round by round, so that what drifts meanwhile
        concerns all of them; a sample is the time of the slowest rank.
        """
        works = [self.checked(kind, payload) for payload in payloads]
        calls = [self.calls(work) for work in works]
        samples: list[list[float]] = [[] for _ in works]
        for _ in range(_ROUNDS):
            for one, count, seconds in zip(works, calls, samples, strict=True):
                self.timed(one, count)
                seconds += self.slowest([self.timed(one, count) for _ in range(_SAMPLES)])
        if self.rank == 0:
            for payload, count, seconds in zip(payloads, calls, samples, strict=True):
                self.write(kind, payload, count, seconds, groups)

    def checked(self, kind: str, payload: int) -> MeasuredWork:
        """The collective after one call, whose result was right on every rank."""
        work = self.work(kind, payload // _ELEMENT_BYTES)
        work.run()
        self.finish()
        wrong = self.torch.tensor([float(not work.right())], device=self.device)
        self.dist.all_reduce(wrong)
        if wrong.item():
            raise ValueError(f"{kind} of {payload} bytes: the result is wrong on {int(wrong.item())} ranks")
        return work

    def write(
        self, kind: str, payload: int, calls: int, seconds: Sequence[float], groups: MeasuredGroups
    ) -> None:
        row = {
            "kind": kind,
            "ranks": self.ranks,
            "hosts": self.hosts,
            "groups": len(groups.members),
            "axis": groups.axis,
            "bytes": payload,
            "dtype": "fp32",
            "seconds": f"{_quantile(seconds, 0.5):.6g}",
            "p10_s": f"{_quantile(seconds, 0.1):.6g}",
            "p90_s": f"{_quantile(seconds, 0.9):.6g}",
            "samples": len(seconds),
            "calls": calls,
            "correct": 1,
        }
        append_row(self.session.out, COLUMNS, row | self.facts)

    def calls(self, work: MeasuredWork) -> int:
        """Calls that make a sample long enough, the same on every rank."""
        trial = self.slowest([self.timed(work, 1) for _ in range(3)])
        return max(1, min(_MOST_CALLS, round(_SAMPLE_S / _quantile(trial, 0.5))))

    def timed(self, work: MeasuredWork, calls: int) -> float:
        self.dist.barrier()
        self.finish()
        begun = time.perf_counter()
        for _ in range(calls):
            work.run()
        self.finish()
        return (time.perf_counter() - begun) / calls

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        times = self.torch.tensor(list(seconds), dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(times, op=self.dist.ReduceOp.MAX)
        return [float(one) for one in times.tolist()]

    def finish(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def work(self, kind: str, elements: int) -> MeasuredWork:
        return work(kind, elements, self.torch, self.dist, self.group, self.members, self.device)


def _facts(torch: Any, session: Session) -> dict[str, str]:
    cuda = session.backend == "nccl"
    device = torch.cuda.get_device_name() if cuda else _processor()
    return {
        "backend": session.backend,
        "gpu": _gpu(device) if cuda else "cpu",
        "device": device,
        "cuda": torch.version.cuda or "",
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if cuda else "",
        **session.origin,
    }


def _gpu(device: str) -> str:
    """The catalogue's name of a GPU; empty where it has none."""
    from ..readers.foreign.gpu_named import gpu_named

    return gpu_named(device) or ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.machine()


def _keys(path: Path) -> set[tuple[str, ...]]:
    """Rows that ``path`` holds, by what they measured. ValueError for a file of other columns."""
    if not path.exists() or path.stat().st_size == 0:
        return set()
    table = read_table_of(path)
    if table.columns != COLUMNS:
        raise ValueError(f"{path}: is not a table of stepsim calibrate collectives; choose another --out")
    names = ("kind", "ranks", "hosts", "axis", "bytes")
    return {tuple(line[name] for name in names) for _, line in table.lines}


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


__all__ = [
    "BACKENDS",
    "COLUMNS",
    "KINDS",
    "MeasuredGroups",
    "Session",
    "measure",
    "spawn",
    "under_torchrun",
    "world_size",
]
