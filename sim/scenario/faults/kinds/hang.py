"""No rank makes progress and none reports an error, until a watchdog ends the job."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="hang",
    title="hang without an error",
    effect="hang",
    scopes=("job", "rank"),
    detectors=("error",),
    damage="none",
    source="9.9 % of ByteRobust's incidents; NCCL watchdog 600 s (pytorch#110947)",
)
