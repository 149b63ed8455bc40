"""A leaf switch fails and takes its hosts along; with a ``bandwidth_factor`` it is routed around instead."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="leaf_switch_down",
    title="leaf switch lost",
    effect="crash",
    scopes=("leaf",),
    detectors=("switch",),
    damage="domain",
    source="noticed in 60 s: ByteRobust table 3; mended in 4 h: assumption",
    keys={"bandwidth_factor": None, "slow_factor": None},
    repair_s=14400.0,
)
