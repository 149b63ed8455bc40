"""Whether runs fit as often as predictions say: fit probabilities beside how runs ended.

Each run's probability is by a fit that saw no run of its family, or none of its framework. Only frameworks of
which failures are reported count: elsewhere, that a run ran is why it was published.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...fit.memory_spread import MemoryRow, probabilities_left_out, reporting
from ..run import ValidatedCase
from ..summary import Confusion

EDGES = (0.0, 0.02, 0.1, 0.3, 0.7, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitBin:
    """Runs whose fit probability lies from ``low`` to ``high``: their mean, and the share that ran."""

    low: float
    high: float
    runs: int
    predicted: float
    ran: float


def memory_rows(rows: Sequence[ValidatedCase]) -> list[tuple[int, MemoryRow]]:
    """What predicted rows of high and medium trust say of memory, each with its place."""
    found = []
    for place, row in enumerate(rows):
        room = row.prediction.room
        if row.case.trust == "low" or room is None:
            continue
        error = row.memory_error
        one = MemoryRow(
            family=row.case.family,
            framework=row.prediction.framework,
            room=room[0],
            moving=room[1],
            error=None if error is None else -math.log1p(error),
            ran=row.case.measured.outcome == "ok",
        )
        found.append((place, one))
    return found


def left_out_probabilities(rows: Sequence[ValidatedCase]) -> list[float | None]:
    """The fit probability of each row by runs of other families; the shipped one where no fit can be made."""
    places = memory_rows(rows)
    found = [row.prediction.fit_probability for row in rows]
    for (place, _), probability in zip(
        places, probabilities_left_out([row for _, row in places]), strict=True
    ):
        if not math.isnan(probability):
            found[place] = probability
    return found


def likelier_outcomes(rows: Sequence[ValidatedCase], sources: Collection[str]) -> Confusion:
    """Measured outcomes of some ``sources`` against those that fit probabilities make likelier."""
    pairs = zip(rows, left_out_probabilities(rows), strict=True)
    counts = Counter(
        (row.case.measured.outcome, fits >= 0.5)
        for row, fits in pairs
        if fits is not None and row.source in sources
    )
    return Confusion(
        ok_ok=counts["ok", True],
        ok_oom=counts["ok", False],
        oom_ok=counts["oom", True],
        oom_oom=counts["oom", False],
    )


def fit_bins(
    rows: Sequence[ValidatedCase], left_out: Callable[[Sequence[MemoryRow]], Sequence[float]]
) -> list[FitBin]:
    """Every bin with runs, their probabilities by a fit from which something of theirs was ``left_out``."""
    places = memory_rows(rows)
    known = [row for _, row in places]
    failing = reporting(known)
    pairs = [
        (probability, row.ran)
        for row, probability in zip(known, left_out(known), strict=True)
        if row.framework in failing and not math.isnan(probability)
    ]
    found = []
    for low, high in itertools.pairwise(EDGES):
        own = [(p, ran) for p, ran in pairs if low <= p < high or p == high == 1.0]
        if own:
            found.append(
                FitBin(
                    low=low,
                    high=high,
                    runs=len(own),
                    predicted=sum(p for p, _ in own) / len(own),
                    ran=sum(ran for _, ran in own) / len(own),
                )
            )
    return found
