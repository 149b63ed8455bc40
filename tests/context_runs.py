"""Small runs with context parallelism."""

from __future__ import annotations

from typing import Any

from small_scenarios import scenario

from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software

LAYERS = 2
MICROBATCHES = 4


def run_of(comm: str, cp: int, a2a: int | None = None, **fields: Any) -> Scenario:
    """Two layers of 8 heads and 4 groups of keys, 1,024 tokens."""
    software = get_software("megatron-core-2025").with_fields(cp_comm=comm)
    sizes = {
        "num_layers": LAYERS,
        "num_attention_heads": 8,
        "num_query_groups": 8,
        "hidden_size": 512,
        "seq_length": 1024,
        "micro_batch": 1,
        "microbatches": MICROBATCHES,
    }
    software_fields = {"preset": software.name, "exchange": {"cp_comm": comm}}
    return scenario(**{**sizes, "cp": cp, "cp_a2a": a2a, "software": software_fields, **fields})
