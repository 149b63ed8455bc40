"""Checkpoints can neither be written nor read until the storage is back."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="storage_outage",
    title="storage gone",
    effect="storage",
    scopes=("storage", "job"),
    detectors=("notice",),
    damage="none",
    source="1 h: assumption",
    duration_s=3600.0,
)
