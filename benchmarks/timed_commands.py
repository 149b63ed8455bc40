"""The commands of Python that run.py times, by the headings of its page, and what each should take.

Knows what is run; does not know how it is measured or told.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

STEP = str(Path(__file__).with_name("step.py"))
MAIN_JOB = "llama3.1-405b-16k"
FIFTY_FOUR_DAYS = ("--set", "run.horizon=54d")


@dataclass(frozen=True)
class Benchmark:
    """A command of Python and what it should take on two cores, by docs/architecture.md.

    ``in_process_target_s`` is for ``timing.total_s`` of its JSON.
    """

    title: str
    command: tuple[str, ...]
    target_s: float | None = None
    in_process_target_s: float | None = None
    once: bool = False


CLI = ("-m", "stepsim.cli.main")
MIXTRAL = tuple(
    word
    for line in (
        "model=mixtral-8x22b",
        "cluster.gpus=64",
        "cluster.interconnect=ib-ndr400-x8",
        "training.global_batch=256",
        "parallelism.ep=8",
    )
    for word in ("--set", line)
)
LARGE = ("--set", "cluster.gpus=131072", "--set", "training.global_batch=16384")
BENCHMARKS = (
    Benchmark("import stepsim", ("-c", "import stepsim"), 0.05),
    Benchmark("stepsim --help", (*CLI, "--help"), 0.2),
    Benchmark("Llama 3 8B on 8 GPUs", (*CLI, "run", "llama3-8b-h100"), 0.6),
    Benchmark("405B on 16,384 GPUs", (*CLI, "run", MAIN_JOB, "--json"), 2.0, 0.4),
    Benchmark("405B on 131,072 GPUs", (*CLI, "run", MAIN_JOB, "--json", *LARGE), 4.0),
    Benchmark("16,384, one slow GPU, one half-rate link", (STEP, "--slow", "1", "--weak", "1"), 3.0),
    Benchmark(
        "131,072, one slow GPU, one half-rate link",
        (STEP, "--gpus", "131072", "--slow", "1", "--weak", "1"),
        8.0,
    ),
    Benchmark(
        "100 times 54 days of failures",
        (*CLI, "faults", MAIN_JOB, "--json", "-n", "100", *FIFTY_FOUR_DAYS),
        10.0,
    ),
)


def slow_gpus(count: int) -> tuple[str, ...]:
    """Faults of so many GPUs of 16,384, whose kernels take 1.1 to 1.5 times as long."""
    drawn = random.Random(0)
    return tuple(
        word
        for gpu in drawn.sample(range(16384), count)
        for word in ("--fault", f"gpu_throttle gpu/{gpu} slow_factor={1.1 + 0.4 * drawn.random():.4f}")
    )


SPREAD = ("--set", "cluster.variation={gpu_speed: {normal: {cv: 0.02}}}")
BOUNDED = (
    *(
        Benchmark(f"{count} slow GPUs", (*CLI, "run", MAIN_JOB, "--json", *slow_gpus(count)), target_s)
        for count, target_s in ((16, 3.0), (64, 5.0), (256, 8.0))
    ),
    Benchmark("A spread of 2 %", (*CLI, "run", MAIN_JOB, "--json", *SPREAD), 5.0),
    Benchmark("A spread of 2 %, 131,072 GPUs", (*CLI, "run", MAIN_JOB, "--json", *LARGE, *SPREAD), 15.0),
)
"""Many slow parts, whose steps are known between bounds (docs/faults.md)."""

ALL_AXES = ("--set", "software=megatron-core-2025", "--axes", "all")
"""Options of a plan over all axes, for a framework that has them all: over 100,000 layouts
(docs/decisions/0236)."""

PLANS = tuple(
    Benchmark(title, (*CLI, "plan", scenario, "--json", *words), target_s, once=True)
    for title, scenario, words, target_s in (
        (
            "Llama 3 70B on 128 H100",
            "llama3-70b-h100",
            ("--set", "cluster.gpus=128", "--set", "training.global_batch=256"),
            3.0,
        ),
        (
            "GPT-3 175B on 1,024 H100",
            "gpt3-175b-h100",
            ("--set", "cluster.gpus=1024", "--set", "training.global_batch=1536"),
            4.0,
        ),
        ("Llama 3.1 405B on 16,384 H100", MAIN_JOB, (), 10.0),
        (
            "Llama 3.1 405B on 16,384 H100, all axes",
            MAIN_JOB,
            ALL_AXES,
            10.0,
        ),
        ("DeepSeek-V3 on 2,048 H800", "deepseek-v3-2048-h800", (), 15.0),
        ("Mixtral 8x22B on 64 H100", "llama3-8b-h100", MIXTRAL, 5.0),
    )
)
"""Whole plans, their proof included (docs/plan.md)."""

GROWTH = tuple(
    Benchmark(f"{gpus:,} GPUs", (STEP, "--gpus", str(gpus))) for gpus in (64, 512, 4096, 16384, 131072)
)
FAULTS = (0, 1, 4)
MANY_FAULTS = (16, 64)
"""Slow GPUs; many take minutes, and are run once."""


def slow_gpus_in_full(counts: Iterable[int]) -> list[Benchmark]:
    """Steps with so many slow GPUs, all of whose ranks are replayed; more than four take minutes."""
    return [
        Benchmark(
            f"{count} slow GPU{'' if count == 1 else 's'}", (STEP, "--slow", str(count)), once=count > 4
        )
        for count in counts
    ]
