"""A host goes down with all its GPUs."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="node_down",
    title="host lost (kernel, power supply, chassis, maintenance)",
    effect="crash",
    scopes=("node",),
    detectors=("host", "heartbeat"),
    damage="node",
    source="Llama 3 table 5; kernel faults noticed in 2 s: ByteRobust table 3",
)
