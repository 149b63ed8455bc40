"""A GPU is lost: it falls off the bus, its HBM or its system processor fails. Its host leaves the job."""

from __future__ import annotations

from .kind import FaultKind

KIND = FaultKind(
    name="gpu_fatal",
    title="GPU lost (XID 79, 48, HBM, GSP)",
    effect="crash",
    scopes=("gpu", "node", "rank"),
    detectors=("gpu",),
    damage="node",
    source="Llama 3 table 5 (arXiv:2407.21783); noticed in 10 s by inspection: ByteRobust table 3 "
    "(arXiv:2509.16293)",
)
