"""A rack, or all racks of a power feed, lose power."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="rack_power",
    title="rack without power",
    effect="crash",
    scopes=("rack", "power"),
    detectors=("host",),
    damage="domain",
    source="mended in 4 h: assumption",
    repair_s=14400.0,
)
