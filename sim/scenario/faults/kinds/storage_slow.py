"""Checkpoints are written and read at ``bandwidth_factor`` of the rate."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="storage_slow",
    title="storage slow",
    effect="storage",
    scopes=("storage", "job"),
    detectors=("notice",),
    damage="none",
    source="half rate for 1 h: assumption",
    keys={"bandwidth_factor": 0.5},
    duration_s=3600.0,
)
