"""A process dies of a CUDA error; the GPU is sound and the same hosts start again."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="gpu_transient",
    title="CUDA error that a restart cures",
    effect="crash",
    scopes=("rank", "gpu", "node", "job"),
    detectors=("error",),
    damage="none",
    source="ByteRobust section 2: explicit failures are noticed in about 60 s; restart in place",
)
