"""What every shipped scenario is predicted to do, in a few figures: tests/goldens/runs.json.

    python tests/update_goldens.py

writes the file anew. The figures are rounded to six digits, so that the file changes when a
prediction does and not with the machine. Commit it with the change that explains it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

GOLDENS = Path(__file__).resolve().parent / "goldens" / "runs.json"


def rounded(value: float) -> float:
    """Six significant digits."""
    return float(f"{value:.6g}")


SHORTER = {
    "gpt-1t-a100-korthikanti": 128,
    "gpt-1t-a100-sc21": 768,
    "kimi-k2-gb300": 1024,
    "mt-nlg-530b-a100": 70,
    "mt-nlg-530b-a100-full-recompute": 70,
}
"""Global batches in place of those of steps that take three seconds and more to replay: two to four
microbatches for each stage fill the pipeline and drain it; the rest of a step repeats what is between."""


def summary(name: str) -> dict[str, Any]:
    """The figures of one shipped scenario, of some of its microbatches where the whole step is long."""
    shorter = {"training.global_batch": SHORTER[name]} if name in SHORTER else {}
    result = simulate(load_scenario(name, shorter))
    return {
        "step_time_s": rounded(result.step_time_s),
        "mfu": rounded(result.mfu),
        "bubble_fraction": rounded(result.bubble_fraction),
        "exposed_communication_s": {
            axis: rounded(exposed_s) for axis, exposed_s in result.exposed_communication_s.items()
        },
        "fits": result.fits,
        "peak_memory_bytes": rounded(result.peak_memory_bytes),
        "classes": len(result.ranks),
        "events": result.events,
    }


def main() -> None:
    found = {name: summary(name) for name in scenario_names()}
    GOLDENS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
