"""A link or a rail runs at ``bandwidth_factor`` of its rate until it is re-seated."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="link_degraded",
    title="link or rail below its rate",
    effect="slow",
    scopes=("link", "rail", "nic"),
    detectors=("straggler",),
    damage="none",
    source="assumption: half rate, re-seated in 4 h",
    keys={"bandwidth_factor": 0.5, "latency_add": 0.0, "slow_factor": None},
    duration_s=14400.0,
)
