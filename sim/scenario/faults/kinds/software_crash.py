"""The software ends with an error; the same hosts start again. It may do so again:
``recovery.crash_loop``.
"""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="software_crash",
    title="software crash",
    effect="crash",
    scopes=("job", "rank"),
    detectors=("error",),
    damage="none",
    source="54 in 54 days of Llama 3; noticed in about 60 s: ByteRobust section 2",
)
