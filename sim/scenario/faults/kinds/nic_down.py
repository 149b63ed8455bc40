"""A NIC fails. With ``bandwidth_factor`` its traffic fails over to the host's other NICs and steps go on
slower.
"""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="nic_down",
    title="NIC lost",
    effect="crash",
    scopes=("nic", "node"),
    detectors=("nic",),
    damage="node",
    source="noticed in 30 s: ByteRobust table 3",
    keys={"bandwidth_factor": None},
)
