"""The job is stopped on purpose: it finishes its step, writes a checkpoint, is away for ``duration``,
restarts.
"""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="planned_maintenance",
    title="planned stop",
    effect="graceful",
    scopes=("job", "node"),
    detectors=("notice",),
    damage="none",
    source="47 in 54 days of Llama 3",
    duration_s=0.0,
)
