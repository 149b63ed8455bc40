"""Measured sweeps: runs of one job in many layouts, those that ran out of memory among them.

Knows what makes two runs one job: the model with its sequence length, the GPUs, the batch, the precision and
the software with its kernels, whoever published them. What is left is what a planner chooses.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .case import Case

CHOSEN = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "fsdp_shard_size", "sequence_parallel", "schedule",
    "stage_split", "micro_batch", "recompute", "cpu_offload",
)  # fmt: skip
"""Fields of a case's layout that a planner chooses; batch and precision belong to the job."""

FEWEST_RUNS = 5
"""Of a sweep that planners are judged by; one at least has a step time."""


def job_of(case: Case) -> str:
    """What a case shares with those that only differ in layout."""
    software = case.software
    return repr(
        (
            case.model,
            case.hardware.gpu,
            case.hardware.gpus,
            case.layout.global_batch,
            case.layout.precision,
            (software.framework, software.year, software.attention, software.fused_kernels),
        )
    )


def layout_fields(case: Case) -> dict[str, Any]:
    """The layout of a case, by the names of a scenario's fields."""
    layout = asdict(case.layout)
    block = {"schedule": "", "micro_batch": "training.", "recompute": "training.", "cpu_offload": "training."}
    return {f"{block.get(name, 'parallelism.')}{name}": layout[name] for name in CHOSEN}
