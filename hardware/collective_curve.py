"""A measured collective as a curve over its payload.

Knows the form ``t = alpha + gamma sqrt(S) + S/B`` (latency, filling of a pipeline with the best
chunk size, bandwidth) and the group that was measured. Does not know other groups: what is carried
to them is for the simulator to decide.

Where the library changes its algorithm, or a buffer outgrows a cache, the time leaves that form: a curve
may carry by how much at measured sizes.

Sources: Hockney 1994 (alpha and B); ``calibration/fit/collectives.py`` fits all three.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from .provenance import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCurve:
    """``kind`` over ``ranks`` GPUs in ``domains`` NVLink domains (hosts, where no rack is wired).

    ``gamma_s`` is in seconds per square root of a byte. Payload is the whole buffer as nccl-tests
    counts it; sizes from ``low_bytes`` to ``high_bytes`` were measured. ``corrections`` are (bytes, measured
    over the form) in ascending order; between them it is interpolated in the logarithm of the size.
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
    corrections: tuple[tuple[float, float], ...] = ()

    def solo_s(self, payload_bytes: float) -> float:
        """Seconds of the group alone on its links."""
        form_s = self.alpha_s + self.gamma_s * math.sqrt(payload_bytes) + payload_bytes / self.bytes_per_s
        return form_s * self._correction(payload_bytes)

    def _correction(self, payload_bytes: float) -> float:
        """Measured over the form at that size; beyond the measured sizes that of the nearest."""
        known = self.corrections
        above = bisect_right(known, payload_bytes, key=lambda one: one[0])
        if not known:
            return 1.0
        if above in (0, len(known)):
            return known[min(above, len(known) - 1)][1]
        (low, at_low), (high, at_high) = known[above - 1], known[above]
        share = math.log(payload_bytes / low) / math.log(high / low)
        return at_low + share * (at_high - at_low)

    def covers(self, payload_bytes: float) -> bool:
        """Whether that size lies between measured ones."""
        return self.low_bytes <= payload_bytes <= self.high_bytes
