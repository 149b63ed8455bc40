"""The memory bill as one JSON object."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...result.result import Result
from ...result.step import MOVING
from .bill import bill


def memory_document(result: Result) -> dict[str, Any]:
    """Every pipeline rank's bill with the textbook's figures, and what it holds over the step by term.

    ValueError for a replayed program, which has no scenario.
    """
    run = result.scenario
    if run is None:
        raise ValueError("a replayed program has no memory bill: give the scenario")
    return {
        "scenario": run.name,
        "fits": result.fits,
        "fit_probability": result.fit_probability,
        "peak_memory_bytes": float(result.peak_memory_bytes),
        "stages": [
            {
                "pp": stage.pp,
                "parameters": float(stage.parameters),
                "layers_in_flight": stage.layers_in_flight,
                "peak_bytes": float(stage.peak_bytes),
                "needed_bytes": float(stage.needed_bytes),
                "capacity_bytes": float(stage.capacity_bytes),
                "fits": stage.fits,
                "peak_action": stage.peak_action,
                "peak_s": float(stage.peak_s),
                "terms": [
                    {
                        "name": line.name,
                        "bytes": float(line.bytes),
                        "textbook_bytes": None if line.textbook_bytes is None else float(line.textbook_bytes),
                        "formula": line.formula,
                        "why": line.why,
                    }
                    for line in bill(run, stage)
                ],
                "communicators": [
                    {name: size for name, size in asdict(one).items() if size} | {"total": one.total}
                    for one in stage.communicators
                ],
                "timeline": {
                    "seconds": [float(at_s) for at_s, _ in stage.moving],
                    **{name: [float(sizes[i]) for _, sizes in stage.moving] for i, name in enumerate(MOVING)},
                },
            }
            for stage in result.memory
        ],
    }
