"""One exact replay of each of many layouts, as a search asks for them, in a process of its own.

    python benchmarks/layouts.py [--count 200] [--compare 20]

prints a JSON object: milliseconds of the processor for a layout of Llama 3 70B on 128 H100 (median, ninetieth
percentile, longest of so many drawn with a fixed seed from all that are legal), the best of some for Llama
3.1 405B on 16,384, and how far times and memory are from ``simulate`` on some. Layouts that no GPU holds are
replayed too.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

from stepsim.sim.brief.search import Search
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario, scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

LARGEST = "llama3.1-405b-16k"
GPUS, BATCH, LAYERS = 128, 256, 80
REPEATS = 5


def documents() -> Iterator[dict[str, Any]]:
    """Every layout of the 70B model that divides, legal or not."""
    powers = (1, 2, 4, 8)
    stages = [pp for pp in range(1, LAYERS + 1) if LAYERS % pp == 0]
    recomputes, switch = ("none", "selective", "full"), (False, True)
    for tp, cp, pp, vpp, micro_batch in product(powers, powers, stages, stages, powers):
        replicas = GPUS // (tp * cp * pp)
        if replicas * tp * cp * pp != GPUS or LAYERS % (pp * vpp) or (pp == 1 and vpp > 1):
            continue
        if BATCH % (replicas * micro_batch) or (vpp > 1 and BATCH // (replicas * micro_batch) % pp):
            continue
        zeros = (0, 1, 2, 3) if pp == 1 else (0, 1)
        for zero, recompute, sp in product(zeros, recomputes, switch if tp > 1 else (False,)):
            degrees = {"tp": tp, "cp": cp, "pp": pp, "vpp": vpp, "zero": zero, "sequence_parallel": sp}
            training = {"global_batch": BATCH, "micro_batch": micro_batch, "recompute": recompute}
            yield {
                "model": "llama3-70b",
                "cluster": {"gpu": "H100-SXM5-80GB", "gpus": GPUS, "interconnect": "ib-ndr400-x8"},
                "parallelism": degrees,
                "training": {"seq_length": 8192, "precision": "bf16", **training},
                "schedule": "none" if pp == 1 else "interleaved" if vpp > 1 else "1f1b",
                "software": "nemo-2025",
            }


def drawn(count: int) -> Iterator[Scenario]:
    """So many legal layouts, the same in every run."""
    every = list(documents())
    random.Random(0).shuffle(every)
    for document in every:
        if not count:
            return
        try:
            yield scenario_from_document(document, "layout")
        except ScenarioError:
            continue
        count -= 1


def timed_s(search: Search, run: Scenario) -> float:
    """Seconds of the processor for one layout."""
    began = time.process_time()
    search.step_of(run)
    return time.process_time() - began


def difference(search: Search, run: Scenario) -> float:
    """By how much time or memory differ from those of ``simulate``, as a share."""
    found, whole = search.step_of(run), simulate(run)
    return max(
        abs(found.step_time_s / whole.step_time_s - 1),
        abs(found.peak_memory_bytes / whole.peak_memory_bytes - 1),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--compare", type=int, default=20)
    chosen = options.parse_args()
    search, layouts = Search(), list(drawn(chosen.count))
    search.step_of(layouts[0])  # what is loaded once
    times = sorted(timed_s(search, run) for run in layouts)
    largest = load_scenario(LARGEST)
    print(
        json.dumps(
            {
                "layouts": len(times),
                "median_ms": 1e3 * times[len(times) // 2],
                "p90_ms": 1e3 * times[int(0.9 * len(times))],
                "longest_ms": 1e3 * times[-1],
                "largest_ms": 1e3 * min(timed_s(search, largest) for _ in range(REPEATS)),
                "difference": max((difference(search, one) for one in layouts[: chosen.compare]), default=0),
            }
        )
    )


if __name__ == "__main__":
    main()
