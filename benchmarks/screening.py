"""How fast layouts are screened, in a process of its own: enumeration, table of layers, memory and bound.

    python benchmarks/screening.py llama3-70b-h100 gpt3-175b-h100 llama3.1-405b-16k --all

prints a JSON object a scenario: layouts, how many fit, seconds of the processor by part, layouts a second and
core. ``--all``: all axes that the scenario's framework has as options.
"""

from __future__ import annotations

import argparse
import json
import time

from stepsim.sim.plan.axes import Axes
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.scenario.load import load_scenario


def run(name: str, every_axis: bool) -> dict[str, float | str]:
    """The screening of a shipped scenario's layouts."""
    scenario = load_scenario(name)
    began = time.process_time()
    space = space_of(scenario, axes=Axes.ALL if every_axis else Axes.LAYOUT)
    enumerate_s = time.process_time() - began
    found = screen(space)
    screen_s = time.process_time() - began - enumerate_s
    return {
        "scenario": name,
        "layouts": len(space),
        "fit": int((found.needed_bytes <= found.capacity_bytes).sum()),
        "enumerate_s": enumerate_s,
        "screen_s": screen_s,
        "layouts_per_s": len(space) / (enumerate_s + screen_s),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("scenario", nargs="+")
    options.add_argument("--all", action="store_true", dest="every_axis")
    given = options.parse_args()
    for name in given.scenario:
        print(json.dumps(run(name, given.every_axis)))


if __name__ == "__main__":
    main()
