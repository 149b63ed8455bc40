"""Prices for tests that count kernels: each takes a second, however often it is launched."""

from __future__ import annotations

from stepsim.sim.lowering.layers.layer_builder import KernelPricing
from stepsim.sim.network.transfer import Transfer

COSTS = KernelPricing(
    seconds=lambda kernel: 1.0,
    transfer=lambda axis, kind, size: Transfer(latency_s=0.0, bytes=size, ceiling_bytes_per_s=1.0),
    host_s=1.0,
    host_collective_s=1.0,
)
