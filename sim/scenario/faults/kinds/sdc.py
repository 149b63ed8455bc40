"""A GPU computes wrong results without an error. Steps since the last checkpoint before it are worthless."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="sdc",
    title="silent data corruption",
    effect="silent",
    scopes=("gpu", "node", "rank"),
    detectors=("silent",),
    damage="node",
    source="ByteRobust section 2: one took over 8 h of offline tests to find",
)
