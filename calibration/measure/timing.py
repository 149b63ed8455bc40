"""How long a call takes: CUDA events on a GPU, torch.utils.benchmark on a CPU; medians of many runs.

On a GPU each run follows writes of twice the L2, so that every operand comes from HBM as in training, and as
many of them as let the host issue the whole run before the GPU begins it. Knows no kernel.
"""

from __future__ import annotations

import math
import statistics
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .operands import Run, load_torch

_WARM_UP_RUNS = 3
_TARGET_S = 0.2
_MIN_RUNS, _MAX_RUNS = 5, 200
_FLUSH_BYTES = 256 * 2**20  # twice the largest L2 of the catalogue (B200: 126 MB)
_TINY_LAUNCHES = 200
_FLUSH_BYTES_PER_S = 8e12  # no GPU of the catalogue writes a flush faster
_ISSUE_MARGIN = 2.0  # a host that is interrupted takes longer than it did once
_MOST_FLUSHES = 64


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Median, 10th and 90th percentile of ``runs`` runs, in seconds."""

    median_s: float
    p10_s: float
    p90_s: float
    runs: int


def timing(seconds: Sequence[float]) -> Timing:
    """Medians and percentiles (nearest rank) of measured seconds."""
    ordered = sorted(seconds)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]

    return Timing(median_s=statistics.median(ordered), p10_s=rank(0.1), p90_s=rank(0.9), runs=len(ordered))


def time_run(run: Run, device: str, *, meanwhile: Callable[[], object] = lambda: None) -> Timing:
    """Time ``run`` for about ``_TARGET_S``; ``meanwhile`` is called while a GPU is busy (it reads clocks)."""
    if device == "cpu":
        return _time_cpu(run, _TARGET_S)
    torch = load_torch()
    for _ in range(_WARM_UP_RUNS):
        run()
    torch.cuda.synchronize()
    flushes = flushes_before(_issue_s(run))
    torch.cuda.synchronize()
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    once_s = _events([run], flush, flushes=flushes)[0]
    runs = min(_MAX_RUNS, max(_MIN_RUNS, math.ceil(_TARGET_S / max(once_s, 1e-6))))
    return timing(_events([run] * runs, flush, meanwhile, flushes=flushes))


def flushes_before(issue_s: float) -> int:
    """How many flushes keep a GPU busy for as long as the host needs to issue a run; one at least.

    A host needs 100 us to issue a chain of ten launches, an H100 85 us to write one flush: without more of
    them the GPU would wait between the kernels, and the events would tell the host's time.
    """
    return min(_MOST_FLUSHES, max(1, math.ceil(_ISSUE_MARGIN * issue_s * _FLUSH_BYTES_PER_S / _FLUSH_BYTES)))


def _issue_s(run: Run) -> float:
    """Host seconds to issue ``run``, once, on an idle GPU."""
    from time import perf_counter

    start_s = perf_counter()
    run()
    return perf_counter() - start_s


def _events(
    runs: Sequence[Run], flush: Any, meanwhile: Callable[[], object] = lambda: None, *, flushes: int = 1
) -> list[float]:
    """Seconds of each run between two events, all issued before the first is awaited."""
    torch = load_torch()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in runs]
    for (start, end), run in zip(pairs, runs, strict=True):
        for _ in range(flushes):
            flush.zero_()
        start.record()
        run()
        end.record()
    meanwhile()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) * 1e-3 for start, end in pairs]


def _time_cpu(run: Run, target_s: float) -> Timing:
    load_torch()
    from torch.utils.benchmark import Timer

    run()
    measured = Timer(stmt="run()", globals={"run": run}).blocked_autorange(min_run_time=target_s)
    return timing(measured.times)


def time_host_launch(device: str) -> Timing:
    """Host seconds to issue a kernel of one element, without waiting for it."""
    return timing([host_s / _TINY_LAUNCHES for host_s, _ in _tiny_trains(device)])


def time_empty_kernel(device: str) -> Timing:
    """Seconds of a kernel on one element, launched right behind others like it: what any kernel takes at
    least. On a CPU, the seconds of a call on one element."""
    return timing([total_s / _TINY_LAUNCHES for _, total_s in _tiny_trains(device)])


def _tiny_trains(device: str) -> list[tuple[float, float]]:
    """(host seconds, seconds on the device) of trains of tiny kernels."""
    torch = load_torch()
    from time import perf_counter

    one = torch.zeros(1, device=device)
    found = []
    for _ in range(12):
        start_s = perf_counter()
        if device == "cpu":
            for _ in range(_TINY_LAUNCHES):
                one.add_(1.0)
            host_s = device_s = perf_counter() - start_s
        else:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            busy = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device=device)
            for _ in range(
                60
            ):  # four milliseconds at 4 TB/s, behind which a train of slow launches queues up
                busy.zero_()
            start.record()
            start_s = perf_counter()
            for _ in range(_TINY_LAUNCHES):
                one.add_(1.0)
            host_s = perf_counter() - start_s
            end.record()
            torch.cuda.synchronize()
            device_s = start.elapsed_time(end) * 1e-3
        found.append((host_s, device_s))
    return found[2:]


def time_overlapped(run: Run, copy: Run, copied_bytes: float, device: str) -> tuple[Timing, float]:
    """Time ``run`` while ``copy`` repeats beside it, and bytes per second that the copies moved meanwhile.

    On a GPU the copies run on a stream of their own, on a CPU in a thread.
    """
    return (
        _overlapped_cpu(run, copy, copied_bytes)
        if device == "cpu"
        else _overlapped_cuda(run, copy, copied_bytes)
    )


def _overlapped_cuda(run: Run, copy: Run, copied_bytes: float) -> tuple[Timing, float]:
    torch = load_torch()
    flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")
    run()
    copy()
    run_s, copy_s = _events([run], flush)[0], _events([copy], flush)[0]
    runs = 20
    copies = (
        math.ceil(4 * runs * run_s / copy_s) + 2
    )  # outlasts the runs even where these take thrice as long
    side, main = torch.cuda.Stream(), torch.cuda.current_stream()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(side):
        first.record()
        for _ in range(copies):
            copy()
        last.record()
    main.wait_event(first)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in pairs:
        start.record()
        run()
        end.record()
    main.synchronize()
    if last.query():
        raise RuntimeError("the copy ended before the GEMMs beside it")
    torch.cuda.synchronize()
    rate = copies * copied_bytes / (first.elapsed_time(last) * 1e-3)
    return timing([start.elapsed_time(end) * 1e-3 for start, end in pairs]), rate


def _overlapped_cpu(run: Run, copy: Run, copied_bytes: float) -> tuple[Timing, float]:
    from time import perf_counter

    stop, copies = threading.Event(), 0

    def repeat() -> None:
        nonlocal copies
        while not stop.is_set():
            copy()
            copies += 1

    thread = threading.Thread(target=repeat, daemon=True)
    start_s = perf_counter()
    thread.start()
    try:
        found = _time_cpu(run, 0.3)
    finally:
        stop.set()
        thread.join()
    return found, copies * copied_bytes / (perf_counter() - start_s)
