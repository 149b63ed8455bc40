"""What a search has shown of its answer, and how far that was checked.

Knows counts alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

TOLERANCE = 1e-9
"""Of a bound against a replay, both sums of floating-point numbers: what tests hold bounds to."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """``optimal``: no layout that fits is better than the ones proposed, by more than ``tolerance``. Where
    that is not ``proven``, none is better than the best by more than that share of its value.

    Of the layouts that the bounds ruled out ``audited`` were replayed all the same; ``better`` of them were
    better than what is proposed, and ``below`` were faster than their own bound. Either would disprove it.
    ``interrupted``: the search did not end by itself.
    """

    legal: int
    fit: int
    replayed: int
    proven: bool
    tolerance: float = TOLERANCE
    audited: int = 0
    better: int = 0
    below: int = 0
    interrupted: bool = False

    @property
    def whole(self) -> bool:
        """Whether the search ended by itself, with a proof."""
        return self.proven and not self.interrupted

    @property
    def optimal(self) -> bool:
        """Whether it is proven, and the audit found nothing against it."""
        return self.proven and not self.better and not self.below

    def sentence(self) -> str:
        """All of it in one line.

        >>> Certificate(legal=12750, fit=3600, replayed=9, proven=True).sentence()
        '12,750 legal, 3,600 fit, 9 replayed: best within the model'
        >>> Certificate(legal=12750, fit=3600, replayed=9, proven=False, tolerance=0.03).sentence()
        '12,750 legal, 3,600 fit, 9 replayed: best of those replayed, no other is more than 3 % better'
        """
        counts = f"{self.legal:,} legal, {self.fit:,} fit, {self.replayed:,} replayed: "
        if not self.fit:
            return f"{self.legal:,} legal, none fits"
        if self.better or self.below:
            verdict = "NOT proven"
        elif self.proven:
            verdict = "best within the model"
        else:
            verdict = "interrupted, best so far" if self.interrupted else "best of those replayed"
            verdict += f", no other is more than {_percent(self.tolerance)} better"
        return counts + verdict + self._audit()

    def _audit(self) -> str:
        if not self.audited:
            return ""
        found = f"{self.better} better" if self.better else "none better"
        below = f", {self.below} faster than their bound" if self.below else ""
        return f"; {self.audited} pruned ones replayed as audit, {found}{below}"


def _percent(share: float) -> str:
    """A share in hundredths, rounded up.

    >>> _percent(0.0301)
    '3.1 %'
    """
    return f"{math.ceil(round(1000 * share, 3)) / 10:g} %"
