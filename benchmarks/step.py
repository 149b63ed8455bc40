"""One step with trouble, in a process of its own: what the command line does, for faults given by number.

    python benchmarks/step.py --gpus 16384 --slow 1 --weak 1

prints a JSON object: seconds by part, events, classes of ranks. Slow GPUs are drawn with a fixed seed, their
kernels 1.1 to 1.5 times as long; a weak link is a GPU's NIC that sends at half its rate.
"""

from __future__ import annotations

import argparse
import json
import random
import time

from stepsim.sim.engine.collection import collection_paused
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.fold.ranks import Degradation
from stepsim.sim.lowering.lower import lower
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster
from stepsim.sim.step_result import read_result

SCENARIO = "llama3.1-405b-16k"
GPUS, BATCH = 16384, 2048
"""Of the scenario: the batch grows with the GPUs, so that every pipeline has the same work."""
MOST_CLASSES = 100_000


def degradation_by_number(gpus: int, slow: int, weak: int) -> Degradation:
    """So many slow GPUs, and so many whose NICs send at half their rate."""
    drawn = random.Random(0)
    ranks = drawn.sample(range(gpus), slow + weak)
    return Degradation(
        slow={rank: 1.1 + 0.4 * drawn.random() for rank in ranks[:slow]},
        link_share={(rank, "nic.out"): 0.5 for rank in ranks[slow:]},
    )


def run(gpus: int, slow: int, weak: int) -> dict[str, float]:
    """A step of the scenario on so many GPUs, as ``simulate`` goes about it."""
    overrides = [f"cluster.gpus={gpus}", f"training.global_batch={max(1, BATCH * gpus // GPUS)}"]
    if gpus < 128:  # less than a replica of 16 pipeline ranks
        overrides += ["parallelism.pp=8"]
    scenario = load_scenario(SCENARIO, overrides)
    with collection_paused():
        began = time.perf_counter()
        lowered = lower(scenario, build_cluster(scenario))
        lower_s = time.perf_counter() - began
        ready = folded(lowered, degradation_by_number(gpus, slow, weak), max_classes=MOST_CLASSES)
        fold_s = time.perf_counter() - began - lower_s
        record = replay(ready.programs)
        replay_s = time.perf_counter() - began - lower_s - fold_s
        result = read_result(lowered, ready, record, {}, began)
    return {
        "classes": len(ready.programs.classes),
        "events": record.events,
        "ops": sum(len(program.ops) for program in ready.programs.classes),
        "lower_s": lower_s,
        "fold_s": fold_s,
        "replay_s": replay_s,
        "total_s": time.perf_counter() - began,
        "step_time_s": result.step_time_s,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    for name, default in (("gpus", GPUS), ("slow", 0), ("weak", 0)):
        options.add_argument(f"--{name}", type=int, default=default)
    print(json.dumps(run(**vars(options.parse_args()))))


if __name__ == "__main__":
    main()
