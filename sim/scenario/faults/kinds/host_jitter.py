"""Kernels of every host take longer by chance, a little otherwise in each step.

Of a single step: a campaign knows lasting effects only. One draw for all GPUs of a host: jitter within a host
is correlated, and drawing for each GPU would overstate what the slowest of them costs.
"""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="host_jitter",
    title="hosts are not equally fast",
    effect="slow",
    scopes=("job", "node", "rack", "leaf"),
    detectors=("straggler",),
    damage="none",
    source="2 % is an assumption: with a draw for each of 1,024 to 100,000 ranks it costs 6.5 to 8.8 % "
    "(derived: cv times the mean of the largest of so many normal variates)",
    keys={"cv": 0.02},
)
