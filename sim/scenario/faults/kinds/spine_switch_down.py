"""A spine switch fails, or its ports to one leaf (``spine/0@leaf/4``); others carry its traffic."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="spine_switch_down",
    title="spine switch or port lost",
    effect="slow",
    scopes=("spine",),
    detectors=("switch",),
    damage="none",
    source="noticed in 60 s: ByteRobust table 3; mended in 4 h: assumption",
    keys={"slow_factor": None},
    duration_s=14400.0,
)
