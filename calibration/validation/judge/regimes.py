"""Better than a guess? The simulator beside the two trivial baselines, in every regime with families enough.

All three errors are of the same rows: those for which both baselines have a guess.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...cases.errors import errors_of
from ..baselines import Baseline, baselines
from ..run import ValidatedCase

FEWEST_FAMILIES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """Median errors of the simulator and of both baselines on the same rows."""

    name: str
    trust: str
    cases: int
    families: int
    simulator: float
    by_gpu: float
    by_regime: float

    @property
    def factor(self) -> float:
        """How many times smaller the simulator's error is than the better baseline's."""
        return min(self.by_gpu, self.by_regime) / self.simulator if self.simulator else float("inf")

    @property
    def better(self) -> bool:
        """Whether the simulator's error is smaller than that of both baselines."""
        return self.simulator < min(self.by_gpu, self.by_regime)


Rated = tuple[ValidatedCase, Baseline]


def rated(rows: Sequence[ValidatedCase]) -> list[Rated]:
    """Rows with their baselines."""
    return list(zip(rows, baselines(rows), strict=True))


def by_regime(found: Iterable[Rated], trust: str) -> list[Against]:
    """Every regime with ``FEWEST_FAMILIES`` families of that trust."""
    groups: dict[str, list[Rated]] = defaultdict(list)
    for one in found:
        if one[0].case.trust == trust:
            groups[one[0].regime].append(one)
    every = (against(name, trust, members) for name, members in sorted(groups.items()))
    return [one for one in every if one is not None and one.families >= FEWEST_FAMILIES]


def against(name: str, trust: str, found: Iterable[Rated]) -> Against | None:
    """Figures of a set; None where no row has both guesses."""
    both = [
        (row, guess)
        for row, guess in found
        if row.error is not None and guess.gpu_and_precision_s and guess.regime_s
    ]
    errors = [
        _median(both, lambda one: one[0].prediction.step_time_s),
        _median(both, lambda one: one[1].gpu_and_precision_s),
        _median(both, lambda one: one[1].regime_s),
    ]
    if not both:
        return None
    simulator, by_gpu, of_regime = errors
    return Against(
        name=name,
        trust=trust,
        cases=len(both),
        families=len({row.case.family for row, _ in both}),
        simulator=simulator,
        by_gpu=by_gpu,
        by_regime=of_regime,
    )


def _median(found: Sequence[Rated], guess: Callable[[Rated], float | None]) -> float:
    pairs = []
    for one in found:
        seconds, measured = guess(one), one[0].case.measured.step_time_s
        assert seconds is not None
        assert measured is not None
        pairs.append((one[0].case.family, seconds / measured - 1))
    errors = errors_of(pairs)
    return errors.median if errors else 0.0
