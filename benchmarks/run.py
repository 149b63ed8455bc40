"""Times stepsim on this machine and prints each time beside its target.

Whole processes, as a user would start them: the best of three, with the largest memory; and events
per second of the replay beside bare SimPy, which sets the pace. No test asserts a time; this table
is for people. Run it by ``make benchmarks``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simpy

REPEATS = 3
MAIN_JOB = "llama3.1-405b-16k"
FIFTY_FOUR_DAYS = ("--set", "run.horizon=54d")


@dataclass(frozen=True)
class Benchmark:
    """A command line and what it should take on two cores, by docs/architecture.md."""

    title: str
    arguments: tuple[str, ...]
    target_s: float
    in_process_target_s: float | None = None


BENCHMARKS = (
    Benchmark("stepsim --help", ("--help",), 0.3),
    Benchmark("405B on 16,384 GPUs", ("run", MAIN_JOB, "--json"), 2.0, in_process_target_s=0.4),
    Benchmark(
        "405B on 131,072 GPUs",
        ("run", MAIN_JOB, "--json", "--set", "cluster.gpus=131072", "--set", "training.global_batch=16384"),
        4.0,
    ),
    Benchmark(
        "100 times 54 days of failures", ("faults", MAIN_JOB, "--json", "-n", "100", *FIFTY_FOUR_DAYS), 10.0
    ),
)
MEMORY_TARGET_BYTES = 1e9

MEASURE = """
import json, resource, subprocess, sys, time
start = time.perf_counter()
done = subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], "wb"))
elapsed_s = time.perf_counter() - start
kibibytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"elapsed_s": elapsed_s, "memory_bytes": kibibytes * 1024, "code": done.returncode}))
"""
"""Runs one command in a process of its own, so that its peak memory is nobody else's."""


def measure(arguments: tuple[str, ...], stdout: Path) -> tuple[float, float]:
    """Seconds and bytes of one run of ``stepsim``; its output goes to ``stdout``."""
    command = [sys.executable, "-m", "stepsim.cli.main", *arguments]
    watched = [sys.executable, "-c", MEASURE, str(stdout), *command]
    outcome = json.loads(subprocess.run(watched, check=True, capture_output=True, text=True).stdout)
    if outcome["code"] not in (0, 1):  # 1: does not fit, which is an answer
        raise SystemExit(f"stepsim {' '.join(arguments)} ended with exit code {outcome['code']}")
    return outcome["elapsed_s"], outcome["memory_bytes"]


def bare_events_per_s(processes: int = 64, events: int = 200_000) -> float:
    """What SimPy reaches with nothing in its events: processes that wait a while, again and again."""

    def wait(env: simpy.Environment, times: int) -> Iterator[simpy.Event]:
        for _ in range(times):
            yield env.timeout(1.0)

    env = simpy.Environment()
    for _ in range(processes):
        env.process(wait(env, events // processes))
    began = time.perf_counter()
    env.run()
    return events / (time.perf_counter() - began)


def line(title: str, took_s: float, target_s: float, memory: str = "") -> str:
    return f"{title:<44}{took_s:8.2f} s{target_s:8.2f} s{took_s / target_s:8.2f}   {memory}"


def main() -> None:
    started = time.perf_counter()
    bare = max(bare_events_per_s() for _ in range(REPEATS))
    answers: list[dict[str, Any]] = []
    print(f"{'best of ' + str(REPEATS):<44}{'took':>10}{'target':>10}{'ratio':>8}   memory")
    with tempfile.TemporaryDirectory() as folder:
        stdout = Path(folder) / "stdout"
        for benchmark in BENCHMARKS:
            runs = [measure(benchmark.arguments, stdout) for _ in range(REPEATS)]
            memory_bytes = max(run[1] for run in runs)
            memory = f"{memory_bytes / 1e6:,.0f} MB ({memory_bytes / MEMORY_TARGET_BYTES:.2f} of the target)"
            print(line(benchmark.title, min(run[0] for run in runs), benchmark.target_s, memory))
            if "--json" not in benchmark.arguments:
                continue
            answers.append(json.loads(stdout.read_text()))
            timing = answers[-1]["timing"]
            if benchmark.in_process_target_s:
                print(line("  in process", timing["total_s"], benchmark.in_process_target_s))
            print("    " + ", ".join(f"{part.removesuffix('_s')} {s:.2f} s" for part, s in timing.items()))
    print(f"bare SimPy: {bare / 1e3:,.0f} thousand events/s")
    for answer in answers:
        rate = answer["events"] / answer["timing"]["replay_s"]
        what = f"replay of {answer['ranks']:,} GPUs, {answer['events']:,} events"
        print(f"{what}: {rate / 1e3:,.0f} thousand events/s, {rate / bare:.2f} of bare SimPy")
    print(f"{time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
