"""The scheduler takes the hosts after ``notice``: time for a checkpoint, or not. The job is queued again."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="preemption",
    title="preempted by the scheduler",
    effect="graceful",
    scopes=("job",),
    detectors=("notice",),
    damage="none",
    source="notice of 30 s to 2 min, as clouds give it; requeued by recovery.restart_cost",
    keys={"notice": 60.0},
    duration_s=0.0,
)
