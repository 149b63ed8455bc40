"""Small runs of a precision, and the bytes and launches of their kernels."""

from __future__ import annotations

from typing import Any

from small_scenarios import every_op, lowered, scenario

from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software.software import grouped

H, F, S, B, LAYERS = 2048, 8192, 1024, 2, 4


def run_of(
    precision: str, software: dict[str, Any] | None = None, preset: str = "megatron-core-2025", **fields: Any
) -> Scenario:
    """A GPT-like model on B200, which has every type."""
    sizes = {"hidden_size": H, "num_attention_heads": 16, "ffn_hidden_size": F, "num_layers": LAYERS}
    work = {"seq_length": S, "micro_batch": B, "microbatches": 2, "precision": precision}
    gpu = {"gpu": "B200-SXM-180GB", "interconnect": "ib-ndr400-x8"}
    kernels = {"host_s_per_kernel": 1e-6, "tp_comm_overlap": False}  # else the host is slower than they are
    stack = {"software": {"preset": preset, **grouped(kernels | (software or {}))}}
    return scenario(**{**sizes, **work, **gpu, **stack, **fields})


def bytes_of(run: Scenario, name: str) -> float:
    """HBM bytes of all ops of that name."""
    ops = every_op(lowered(run).programs.classes[0])
    return sum(n * op.work.bytes for op, n in ops if isinstance(op.work, Compute) and op.name == name)
