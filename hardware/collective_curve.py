"""A measured collective as a curve over its payload.

Knows the form ``t = alpha + gamma sqrt(S) + S/B`` (latency, filling of a pipeline with the best
chunk size, bandwidth) and the group that was measured. Does not know other groups: what is carried
to them is for the simulator to decide.

Sources: Hockney 1994 (alpha and B); ``calibration/collective_fit.py`` fits all three.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .provenance import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCurve:
    """``kind`` over ``ranks`` GPUs in ``domains`` NVLink domains (hosts, where no rack is wired).

    ``gamma_s`` is in seconds per square root of a byte. Payload is the whole buffer as nccl-tests
    counts it; sizes from ``low_bytes`` to ``high_bytes`` were measured.
    """

    kind: str
    ranks: int
    domains: int
    alpha_s: float
    gamma_s: float
    bytes_per_s: float
    low_bytes: float
    high_bytes: float
    provenance: Provenance

    def solo_s(self, payload_bytes: float) -> float:
        """Seconds of the group alone on its links."""
        return self.alpha_s + self.gamma_s * math.sqrt(payload_bytes) + payload_bytes / self.bytes_per_s

    def covers(self, payload_bytes: float) -> bool:
        """Whether that size lies between measured ones."""
        return self.low_bytes <= payload_bytes <= self.high_bytes
