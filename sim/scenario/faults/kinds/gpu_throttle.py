"""A GPU or all GPUs of a host compute slower by ``slow_factor``: heat, power, a clock left behind."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="gpu_throttle",
    title="GPU clocked down",
    effect="slow",
    scopes=("node", "gpu", "rank"),
    detectors=("straggler",),
    damage="node",
    source="MegaScale section 5 (arXiv:2402.15627): 0.5 % of hosts about 10 % slow",
    keys={"slow_factor": 1.1},
)
