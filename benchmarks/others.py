"""stepsim beside other programs that predict training steps: docs/others.md.

    python benchmarks/others.py --markdown docs/others.md        (make benchmarks)
    python benchmarks/others.py --calculon DIR                   with a checkout of Calculon

Measures ours here and now, in processor time of one core: layouts screened, layouts replayed. What is said of
others was measured or read elsewhere; ``OTHERS`` is the record of that. They are not packages that could be
installed here; Calculon is timed beside ours, layout by layout, where ``--calculon`` names a checkout of it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCENARIOS = ("llama3-70b-h100", "gpt3-175b-h100")


@dataclass(frozen=True, kw_only=True)
class OtherProgram:
    """A row: what is known of a program, and how it is known."""

    name: str
    rate: str
    step: str
    search: str
    read: str


OTHERS = (
    OtherProgram(
        name="Calculon",
        rate="611 to 624",
        step="closed formulas for each layer and each stage",
        search="grid over tp, pp, interleaving, recomputation and options; the best kept; no bound, no proof",
        read="measured at commit caa4b11 on the machine where the screening was built, 200 layouts each of 70B "
        "on 128 and 175B on 1,024 H100: median 1.61 to 1.66 ms; calculon/llm/optimal_execution.py",
    ),
    OtherProgram(
        name="SimuMax",
        rate="not measured",
        step="formulas",
        search="serial grid; microbatch fixed, no context parallelism and no interleaving; experts force tp 1",
        read="read: simumax/core/perf_llm.py, simumax/tuning/strategy_searcher.py",
    ),
    OtherProgram(
        name="Galvatron",
        rate="not measured",
        step="formulas with one factor for overlap (1.1 to 1.3)",
        search="dynamic programming over layers, in C++",
        read="read: search_engine.py",
    ),
    OtherProgram(
        name="Paddle auto_tuner, FlagScale",
        rate="real runs",
        step="none: candidates are run",
        search="grid with rules by hand that rule out",
        read="read: python/paddle/distributed/auto_tuner/prune.py; "
        "flagscale/runner/auto_tuner/prune/history.py",
    ),
)

PAGE = """# Beside other programs

`make benchmarks` on one core of {machine}, Python {python}; processor time. What is said of others was measured or
read as the last column says: none of them can be installed from a package index, so this page does not run them.

| program | layouts a second and core | a step is | search | how we know |
|---|---:|---|---|---|
{rows}

A layout that Calculon judges gets an estimate of its time. One that stepsim screens gets a bound below its time and
its exact memory; only the few that could be best are replayed ([how](plan.md), [why it is a
proof](decisions/0025-plans-are-proven.md)). So the columns compare what a search spends on a layout, not the same
work.

## What is compared where

- How far predictions are from measured runs, ours and those that other simulators published of the same runs:
  [accuracy](accuracy.md#beside-published-simulators-same-runs).
- How long commands take: [speed](speed.md).
"""


def _measured(script: str, *arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(HERE / script), *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def with_calculon(others: Sequence[OtherProgram], folder: Path | None) -> list[OtherProgram]:
    """The record, with the time that Calculon takes on this machine where a checkout of it is at hand."""
    if folder is None:
        return list(others)
    found = _measured("calculon_beside.py", str(folder))
    rates = sorted(1e3 / one["calculon_ms"] for one in found)
    beside = "; ".join(
        f"{one['scenario']}: {one['calculon_ms']:.2f} ms a layout, {one['screening_ms']:.3f} ms by our screening"
        for one in found
    )
    read = f"measured here in the same process at commit {found[0]['calculon_commit']}: {beside}"
    rate = f"{rates[0]:,.0f} to {rates[-1]:,.0f}"
    return [replace(one, rate=rate, read=read) if one.name == "Calculon" else one for one in others]


def page(calculon: Path | None = None) -> str:
    """The page, after some twenty seconds."""
    rates = [found["layouts_per_s"] for found in _measured("screening.py", *SCENARIOS)]
    (replayed,) = _measured("layouts.py", "--count", "60", "--compare", "2")
    ours = (
        OtherProgram(
            name="stepsim, screening",
            rate=f"{round(min(rates), -2):,.0f} to {round(max(rates), -2):,.0f}",
            step="its memory, exact, and a lower bound of its time",
            search="all legal layouts as arrays",
            read="measured here",
        ),
        OtherProgram(
            name="stepsim, replay",
            rate=f"{1e3 / replayed['median_ms']:,.0f} at the median",
            step="replayed event by event: overlap and bubbles come out of it",
            search="best bound first, until the rest is proven slower",
            read="measured here",
        ),
    )
    every = (*ours, *with_calculon(OTHERS, calculon))
    return PAGE.format(
        machine=f"{platform.machine()} with {os.cpu_count()} cores",
        python=platform.python_version(),
        rows="\n".join(f"| {' | '.join(vars(one).values())} |" for one in every),
    )


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description="stepsim beside other programs")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--calculon", type=Path, metavar="DIR", help="a checkout of it, timed beside ours")
    chosen = parser.parse_args()
    text = page(chosen.calculon)
    if chosen.markdown:
        chosen.markdown.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
