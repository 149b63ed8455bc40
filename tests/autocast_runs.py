"""Runs under torch.autocast, and what their kernels move and keep."""

from __future__ import annotations

from typing import Any

from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.layer_builder import KernelPricing
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.recompute import recomputed_parts
from stepsim.sim.lowering.state.activations import layer_bytes
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.models import Scenario

AUTOCAST = {"software.kernels.autocast": True}
PLAIN = {"mlp": "gelu", "norm": "layernorm", "position": "learned", "dropout": 0.0, "biases": True}
LLAMA = {"mlp": "swiglu", "norm": "rmsnorm", "position": "rope", "dropout": 0.0, "biases": False}


def job(*, model: dict[str, Any] = PLAIN, **fields: Any) -> Scenario:
    return scenario(**{"software": "generic-fsdp", "tied_embeddings": True, **model} | fields)


def moved(run: Scenario, name: str) -> tuple[float, int]:
    """Bytes that the first rank's kernels of that name move in a step, and how often they are there."""
    (program,) = lowered(run).programs.classes
    found = [
        (count * op.work.bytes, count)
        for op, count in every_op(program)
        if op.name == name and isinstance(op.work, Compute)
    ]
    return sum(size for size, _ in found), sum(count for _, count in found)


def kept(run: Scenario) -> float:
    """Bytes that a layer keeps for backward of one microbatch."""
    return layer_bytes(local_shape_of(run), run.software, recomputed_parts(run.training)).kept


COSTS = KernelPricing(
    seconds=lambda kernel: float(getattr(kernel, "launches", 1)),
    transfer=lambda axis, kind, size: Transfer(latency_s=0.0, bytes=size, ceiling_bytes_per_s=1.0),
    host_s=1.0,
    host_collective_s=1.0,
)
"""A kernel takes a second for each of its launches."""
