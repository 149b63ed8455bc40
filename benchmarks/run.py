"""Times stepsim on this machine and prints each time beside its target; ``--markdown FILE`` writes the page.

Whole processes, as a user would start them: the best of some runs, with the largest memory. Processor time
stands beside the clock's, because what others do on a shared machine is in the clock alone. Besides: how the
time grows with GPUs and with faults, one all-reduce of 4,096 ranks in this process, and events per second of
the replay beside bare SimPy, which sets the pace. No test asserts a time; this is for people. Run it by
``make benchmarks``; ``--quick`` measures once and leaves out what takes longest.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simpy
from timed_commands import (
    BENCHMARKS,
    BOUNDED,
    FAULTS,
    GROWTH,
    MANY_FAULTS,
    PLANS,
    Benchmark,
    slow_gpus_in_full,
)

REPEATS = 3
LAYOUTS = str(Path(__file__).with_name("layouts.py"))
NOTE = (
    "Processor time is what a process takes by the clock where nothing else runs, at most: caches and cores "
    "are shared."
)
ALL_REDUCE_TARGET_S = 0.01
LAYOUT_TARGETS_MS = {"median_ms": 15, "p90_ms": 300, "largest_ms": 150}
"""Of one replay inside a search (layouts.py): of 70B on 128 GPUs, and of 405B on 16,384."""

MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
elapsed_s = time.perf_counter() - start
used = resource.getrusage(resource.RUSAGE_CHILDREN)
processor_s = used.ru_utime + used.ru_stime
print(json.dumps({"elapsed_s": elapsed_s, "processor_s": processor_s, "memory_bytes": used.ru_maxrss * 1024,
                  "code": done.returncode}))
"""
"""Runs one command in a process of its own, so that its peak memory is nobody else's."""


@dataclass(frozen=True)
class Measured:
    """The best of some runs: seconds by the clock and of the processor; the most memory; the output."""

    elapsed_s: float
    processor_s: float
    memory_bytes: float
    answer: dict[str, Any]


def measure(benchmark: Benchmark, repeats: int, stdout: Path) -> Measured:
    """Runs the command of a benchmark; ``stdout`` is a file for what it prints."""
    command = [sys.executable, "-c", MEASURE, str(stdout), sys.executable, *benchmark.command]
    runs = []
    for _ in range(repeats):
        outcome = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if outcome.pop("code") not in (0, 1):  # 1: does not fit, which is an answer
            raise SystemExit(f"{' '.join(benchmark.command)} failed")
        runs.append(outcome)
    printed = stdout.read_text()
    return Measured(
        elapsed_s=min(run["elapsed_s"] for run in runs),
        processor_s=min(run["processor_s"] for run in runs),
        memory_bytes=max(run["memory_bytes"] for run in runs),
        answer=json.loads(printed) if printed.startswith("{") else {},
    )


def bare_events_per_s(processes: int = 64, events: int = 200_000) -> float:
    """What SimPy reaches with nothing in its events: processes that wait a while, again and again."""

    def wait(env: simpy.Environment, times: int) -> Generator[simpy.Event, None, None]:
        for _ in range(times):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(processes):
        env.process(wait(env, events // processes))
    began = time.perf_counter()
    env.run()
    return events / (time.perf_counter() - began)


def all_reduce_s(ranks: int = 4096, payload_bytes: float = 1e9) -> float:
    """Seconds that pricing and replaying one all-reduce takes, in this process, once all is loaded."""
    from stepsim.hardware.cluster import Cluster
    from stepsim.hardware.fabric import default_fabric
    from stepsim.hardware.gpus import get_gpu
    from stepsim.hardware.interconnect import get_interconnect
    from stepsim.sim.engine.replay import replay
    from stepsim.sim.network.collectives import collective_transfer
    from stepsim.sim.network.group_placement import GroupPlacement
    from stepsim.sim.program.program import Collective, Op, Program, Programs

    network = get_interconnect("ib-ndr400-x8")
    cluster = Cluster(
        gpu=get_gpu("H100-SXM5-80GB"),
        gpus=ranks,
        gpus_per_node=8,
        interconnect=network,
        fabric=default_fabric(network),
    )
    links = dict.fromkeys(("nvlink.out", "nvlink.in", "nic.out", "nic.in"), 1e12)

    def once(size: float) -> float:
        began = time.perf_counter()
        transfer = collective_transfer(
            "all_reduce", size, GroupPlacement(ranks=ranks, domains=ranks // 8), cluster
        )
        op = Op("all_reduce", "dp", "dp", Collective("all_reduce", "dp", transfer))
        one = Programs(
            classes=(Program(ops=(op,)),), communicators={}, links=(links,), sms=132, corun_slowdown=0.0
        )
        replay(one)
        return time.perf_counter() - began

    once(1e6)
    return min(once(payload_bytes + i) for i in range(REPEATS))


def layouts_line(quick: bool) -> str:
    """What one exact replay inside a search takes."""
    command = [sys.executable, LAYOUTS, *(("--count", "40", "--compare", "5") if quick else ())]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    median, p90, largest = (
        f"{found[name]:.0f} ms (target {target} ms)" for name, target in LAYOUT_TARGETS_MS.items()
    )
    return (
        f"One exact replay inside a search, {found['layouts']} layouts of 70B on 128 GPUs: median {median}, "
        f"ninetieth percentile {p90}, longest {found['longest_ms']:,.0f} ms; 405B on 16,384: {largest}. "
        f"At most {found['difference']:.0e} from simulate."
    )


HEADER = (
    "",
    "by the clock",
    "processor",
    "target",
    "ratio",
    "memory",
    "classes",
    "events",
)


def row(benchmark: Benchmark, found: Measured) -> tuple[str, ...]:
    """The cells of a line; the ratio is that of the clock."""
    target = benchmark.target_s
    answer = found.answer
    classes = answer.get("classes", len(answer["rank_classes"]) if "rank_classes" in answer else "")
    return (
        benchmark.title,
        f"{found.elapsed_s:.2f} s",
        f"{found.processor_s:.2f} s",
        f"{target:.1f} s" if target else "",
        f"{found.elapsed_s / target:.2f}" if target else "",
        f"{found.memory_bytes / 1e6:,.0f} MB",
        f"{classes:,}" if classes else "",
        f"{answer['events']:,}" if "events" in answer else "",
    )


def plan_line(benchmark: Benchmark, found: Measured) -> str:
    """What a plan has shown, and how many layouts it ruled on in a second."""
    answer, timing = found.answer, found.answer["timing"]
    rate = answer["space"]["legal"] / timing["total_s"]
    return (
        f"- {benchmark.title}: {answer['certificate']['sentence']}. {rate:,.0f} layouts a second, proof "
        f"included: {timing['enumerate_s']:.1f} s enumerating, {timing['screen_s']:.1f} s screening, "
        f"{timing['replay_s']:.1f} s replaying."
    )


def table(rows: list[tuple[str, ...]]) -> str:
    """Rows as Markdown, which is read as it stands too."""
    widths = [max(len(cells[i]) for cells in (HEADER, *rows)) for i in range(len(HEADER))]
    lines = [
        "| "
        + " | ".join(cell.ljust(w) if not i else cell.rjust(w) for i, (cell, w) in enumerate(both))
        + " |"
        for both in (list(zip(cells, widths, strict=True)) for cells in (HEADER, *rows))
    ]
    rule = "|" + "|".join("-" * (w + 2) if not i else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def machine() -> str:
    """What this was measured on."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    load = f", {os.getloadavg()[0]:.0f} others running" if hasattr(os, "getloadavg") else ""
    return f"{os.cpu_count()} cores of {name}, Python {platform.python_version()}{load}"


def measured(benchmarks: Iterable[Benchmark], repeats: int) -> list[tuple[Benchmark, Measured]]:
    """Each with what it took; its line is printed as soon as it is known."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for benchmark in benchmarks:
            one = measure(benchmark, 1 if benchmark.once else repeats, Path(folder) / "stdout")
            print(" ".join(row(benchmark, one)), flush=True)
            found.append((benchmark, one))
    return found


def in_process_lines(found: Iterable[tuple[Benchmark, Measured]]) -> Iterator[str]:
    """What the steps took by their own clock, of benchmarks that have a target for it."""
    for benchmark, one in found:
        if benchmark.in_process_target_s:
            target = f"target {benchmark.in_process_target_s} s"
            yield f"- {benchmark.title} in process: {timing_of(one)['total_s']:.2f} s ({target})."


def replay_lines(found: Iterable[tuple[Benchmark, Measured]], bare: float) -> Iterator[str]:
    """How many events a second each replay passes, beside ``bare`` SimPy's."""
    for benchmark, one in found:
        if "replay_s" not in timing_of(one) or "certificate" in one.answer:
            continue
        replay_s = timing_of(one)["replay_s"]
        rate, per_s = one.answer["events"] / replay_s, one.answer.get("ops", 0) / replay_s
        ops = f", {per_s / 1e3:,.0f} thousand ops/s" if per_s else ""
        yield (
            f"- Replay, {benchmark.title}: {rate / 1e3:,.0f} thousand events/s, "
            f"{rate / bare:.2f} of bare SimPy{ops}."
        )


def timing_of(found: Measured) -> dict[str, Any]:
    """The seconds of its parts, as a command prints them, or a step of tests alone."""
    timing: dict[str, Any] = found.answer.get("timing", found.answer)
    return timing


def sections(*, quick: bool) -> Iterator[tuple[str, Sequence[Benchmark]]]:
    """What is measured, under the headings of the page."""
    yield "Targets", BENCHMARKS
    yield "Plans", PLANS
    yield "Growth with GPUs", GROWTH
    yield "Many slow parts on 16,384 GPUs, between bounds", BOUNDED
    counts = FAULTS if quick else (*FAULTS, *MANY_FAULTS)
    yield "Growth with faults on 16,384 GPUs, all ranks replayed", slow_gpus_in_full(counts)


def page(*, quick: bool) -> str:
    """Measure everything; the page that tells it."""
    repeats = 1 if quick else REPEATS
    bare = max(bare_events_per_s() for _ in range(REPEATS))
    parts = [
        "# Speed",
        "",
        f"`make benchmarks` on {machine()}; whole processes, best of {repeats}.",
        "",
        NOTE,
        "",
    ]
    everything: list[tuple[Benchmark, Measured]] = []
    all_reduce_target = f"target {1e3 * ALL_REDUCE_TARGET_S:.0f} ms"
    for title, benchmarks in sections(quick=quick):
        found = measured(benchmarks, repeats)
        parts += [f"## {title}", "", table([row(*one) for one in found]), ""]
        everything += found
    plans = [plan_line(*one) for one in everything if "certificate" in one[1].answer]
    return "\n".join([
        *parts,
        "## What was proven",
        "",
        *plans,
        "",
        "## In process",
        "",
        *in_process_lines(everything),
        f"- One all-reduce of 4,096 ranks: {1e3 * all_reduce_s():.1f} ms ({all_reduce_target}).",
        f"- {layouts_line(quick)}",
        f"- Bare SimPy: {bare / 1e3:,.0f} thousand events/s.",
        *replay_lines(everything, bare),
    ])  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description="Times stepsim on this machine.")
    options.add_argument("--quick", action="store_true", help="once, and without many faults")
    options.add_argument("--markdown", type=Path, help="write the page here")
    chosen = options.parse_args()
    text = page(quick=chosen.quick)
    print(text)
    if chosen.markdown:
        chosen.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
