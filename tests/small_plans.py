"""A job whose space of layouts is small enough to replay whole, and a planner's answer without its clock."""

from __future__ import annotations

from typing import Any

from stepsim.sim.plan.search.layout_plan import LayoutPlan
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario

DOCUMENT: dict[str, Any] = {
    "name": "small",
    "model": {
        "num_layers": 8,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "ffn_hidden_size": 4096,
        "vocab_size": 32000,
        "mlp": "gelu",
    },
    "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8, "interconnect": "ib-hdr200-x8"},
    "parallelism": {"tp": 2, "pp": 2, "zero": 0},
    "training": {"global_batch": 32, "micro_batch": 2, "seq_length": 1024, "precision": "bf16"},
    "schedule": "1f1b",
    "software": "megatron-2022-sp",
}

FIX = {
    "parallelism.cp": 1,
    "parallelism.stage_split": "uniform",
    "parallelism.sequence_parallel": False,
    "training.recompute": "none",
}
"""What leaves some tens of layouts."""


def small(**changes: Any) -> Scenario:
    """The job, with other fields by their dotted names with ``__`` for the dot."""
    return load_scenario(DOCUMENT, {name.replace("__", "."): value for name, value in changes.items()})


def answer(plan: LayoutPlan) -> dict[str, Any]:
    """All that a plan says but how long it took, and what a journal knew."""
    said = plan.to_dict()
    del said["timing"], said["remembered"]
    return said
