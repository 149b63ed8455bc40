"""A link is down for ``duration``. Within the transport's retry budget steps wait; beyond it the job dies."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="link_flap",
    title="link down for seconds",
    effect="pause",
    scopes=("link", "rail", "nic"),
    detectors=("nic",),
    damage="none",
    source="ByteRobust table 3: 30 s, two alerts in 5 min; retry budget of InfiniBand about 30 s "
    "(unverified)",
    duration_s=10.0,
)
