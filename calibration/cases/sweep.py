"""Measured sweeps: runs of one job in many layouts, those that ran out of memory among them.

Knows what makes two runs one job: the model with its sequence length, the GPUs, the batch, the precision and
the software with its kernels, whoever published them. What is left is what a planner chooses.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from .case import Case

CHOSEN = (
    "tp", "pp", "vpp", "cp", "ep", "etp", "dp", "zero", "fsdp_shard_size", "sequence_parallel", "schedule",
    "stage_split", "micro_batch", "recompute", "cpu_offload",
)  # fmt: skip
"""Fields of a case's layout that a planner chooses; batch and precision belong to the job."""

PADDED_TO = 1024
"""Rows of an embedding that are one vocabulary. Megatron pads it to a multiple of 128 times tp
(megatron/tokenizer/tokenizer.py, _vocab_size_with_padding), so that layouts of one job have other rows; tp
beyond 8 is rare, and tables of trainers that pad to something else are as near to one another."""

FEWEST_RUNS = 5
"""Of a sweep that planners are judged by; one at least has a step time."""


def job_of(case: Case) -> str:
    """What a case shares with those that only differ in layout."""
    software = case.software
    rows = -(-case.model.vocab_size // PADDED_TO) * PADDED_TO
    return repr(
        (
            replace(case.model, vocab_size=rows),
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
