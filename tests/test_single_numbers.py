"""Kernels of one number beside a cast: a maximum cleared, copied, made a scale; a random state unpacked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from small_scenarios import lowered
from test_precision import run_of

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.kernel import MemoryBound
from stepsim.kernels.memory_bound import NUMBER_S, memory_bound_seconds
from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.quantise import quantise


@pytest.mark.parametrize(
    ("precision", "software", "forward", "backward"),
    [
        ("fp8", {"fp8_scaling": "delayed"}, 0, 0),
        ("fp8", {"fp8_scaling": "current"}, 2, 2),  # cleared, made a scale
        ("mxfp8", {}, 0, 0),
        ("nvfp4", {"fused_amax": True}, 2, 2),  # cleared, copied for the other layout
        ("nvfp4", {"fused_amax": True, "stochastic_casts": True}, 2, 3),  # and the state unpacked
        ("nvfp4", {"fused_amax": False}, 1, 1),
    ],
)
def test_a_cast_writes_single_numbers_besides(
    precision: str, software: dict[str, Any], forward: int, backward: int
) -> None:
    """Kernels of one thread, clears and copies: a number of each cast, whatever the tensor's size."""
    plan = lowered(run_of(precision, software)).plan
    priced: list[MemoryBound] = []

    def seconds(kernel: Any) -> float:
        priced.append(kernel)
        return 1.0

    for gradients in (False, True):
        costs = replace(plan.blocks.costs, seconds=seconds)
        builder = LayerBuilder(costs=costs, local=plan.local, software=plan.scenario.software)
        quantise(builder, 1e6, gradients=gradients)
    assert [kernel.numbers for kernel in priced] == [forward, backward]


def test_one_number_takes_no_longer_than_a_whole_kernel() -> None:
    for gpu_name in ("B200-SXM-180GB", "H100-SXM5-80GB"):
        gpu, profile = get_gpu(gpu_name), load_profile(gpu_name)
        none, kernel, number = (
            memory_bound_seconds(MemoryBound(hbm_bytes=0.0, launches=n, numbers=m), gpu, profile)
            for n, m in ((0, 0), (1, 0), (0, 1))
        )
        assert none < profile.kernel_latency_s < number <= kernel
        assert number <= profile.kernel_latency_s + NUMBER_S
