"""How far runs' memory lies from what was predicted, by framework: a shift and a spread of Student's t.

Runs tell two things. A measured peak says what its error was. A run that ran says that its peak, and a
margin, were below the capacity, and one that ran out of memory that they were above: errors that are
censored, which count by the probability of what they show. Left out, runs that were too large to be measured
would make predictions look better than they are (Tobin 1958, Econometrica 26). Where a source reports no run
that ran out of memory, it says nothing that one of its runs ran: those that failed may have been left out.
The margin shows where some runs of a framework were measured and others ran out of memory. Each framework has
its own, around one for all; where no failure of a framework was reported, or nothing of it is known, its
margin is as uncertain as one that nobody has seen.

Every run counts, since a probability is judged run by run. Each framework's values have priors around
those of all, so that one of few runs stays near them (Lange, Little and Taylor 1989, J. Am. Stat. Assoc.
84, for errors of Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import yaml

from ...sim.evidence.measured_memory import HALF, MeasuredMemory, MemorySpread, below
from ...sim.figures import significant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_HEAD = """\
# What measured runs say of predictions of memory (sim/evidence/measured_memory.py says what each entry is).
# Written by
#   stepsim calibrate residuals CASES.yaml... --held-out docs/step-fit.json --write
# Do not edit.
"""

FEWEST_FAMILIES = 5
"""Families with a measured peak, or that ran out of memory, from which on a framework has its own entry."""

_SHIFT_PRIOR = 0.05
"""Standard deviation of the shift of all, and of a framework's around it: what predicted peaks are off by
(docs/accuracy.md)."""

_MARGIN_PRIOR = 0.05
"""The same of the margin of all, and of a framework's around it. Two frameworks tell theirs, which are 0.06
apart (docs/decisions/0109-margins-of-frameworks.md)."""

_MOVING_PRIOR = 0.1
"""The same of what the share that comes and goes adds: about what allocators are thought to add to it
(``allocator_overhead`` of presets)."""

_SPREAD_START = 0.05
_SPREAD_LOOSE, _SPREADS_ALIKE = math.log(3.0), math.log(1.5)
"""Standard deviations of the logarithm of the spread of all, and of a framework's over it."""

_LOW, _HIGH = math.log(5e-3), math.log(1.0)
_FREEDOM = 4.0
_DENSITY = 12.0
"""Of Student's t with four degrees of freedom: over (4 + t^2)^2.5 its density."""

FOLDS = 10
"""Parts of the families; each is predicted by a fit on the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A run: ``room`` is the logarithm of the capacity over the predicted peak, ``moving`` the share of that
    peak that comes and goes, ``error`` the logarithm of measured over predicted memory, None where it was not
    measured. ``ran``: it did not run out of memory."""

    family: str
    framework: str
    room: float
    moving: float
    error: float | None
    ran: bool


def fit_memory_spread(rows: Sequence[MemoryRow]) -> MeasuredMemory:
    """Fit shifts and spreads of each framework, and of all others. ValueError where no run says anything of
    them."""
    names = sorted(_well_known(rows))
    if not names:
        raise ValueError("the spread of memory needs runs with a measured peak, or that ran out of memory")
    failing = reporting(rows)
    told = sorted((row for row in rows if row.error is not None), key=repr)
    ended = sorted((row for row in rows if row.framework in failing), key=repr)
    table = _table(told, ended, names)
    found = table.likeliest()
    among = float(np.mean((found.shifts[1:] - found.shifts[0]) ** 2))
    doubt = _doubt(found.margins[1:][[name in failing for name in names]] - found.margins[0])
    each = np.stack([found.shifts, found.moving, np.exp(found.logs), found.margins], axis=1).tolist()
    shift, moving, spread, margin = each[0]
    whole = f"all frameworks: {_counts(rows)}; and what frameworks differ by"
    return MeasuredMemory(
        frameworks={
            name: _spread(
                *of_one,
                doubt=0.0 if name in failing else doubt,
                told=_counts([row for row in rows if row.framework == name]),
            )
            for name, of_one in zip(names, each[1:], strict=True)
        },
        other=_spread(shift, moving, math.hypot(spread, math.sqrt(among)), margin, doubt=doubt, told=whole),
    )


def _doubt(apart: Floats) -> float:
    """The standard deviation of a margin that nobody has seen, from how far those that were lie ``apart``
    from that of all. One alone does not say how frameworks differ."""
    return math.sqrt(float(np.mean(apart**2))) if len(apart) > 1 else _MARGIN_PRIOR


def probabilities_left_out(rows: Sequence[MemoryRow]) -> list[float]:
    """The fit probability of each row by a fit that saw no run of its family; nan where none can be made."""
    families = sorted({row.family for row in rows})
    part = {family: place % FOLDS for place, family in enumerate(families)}
    return _by_the_others(rows, [part[row.family] for row in rows])


def probabilities_of_strangers(rows: Sequence[MemoryRow]) -> list[float]:
    """The fit probability of each row of a framework whose failures are reported, by a fit that saw no run of
    that framework; nan of others, and where none can be made."""
    failing = sorted(reporting(rows))
    return _by_the_others(
        rows, [failing.index(row.framework) if row.framework in failing else None for row in rows]
    )


def _by_the_others(rows: Sequence[MemoryRow], parts: Sequence[int | None]) -> list[float]:
    """The fit probability of each row that has a part, by a fit on the rows that are not of that part."""
    found = [math.nan] * len(rows)
    for out in sorted({part for part in parts if part is not None}):
        rest = [row for row, part in zip(rows, parts, strict=True) if part != out]
        if not _well_known(rest):
            continue
        known = fit_memory_spread(rest)
        for place, (row, part) in enumerate(zip(rows, parts, strict=True)):
            if part == out:
                found[place] = known.fits(row.framework, row.room, row.moving)
    return found


def memory_text(memory: MeasuredMemory) -> str:
    """sim/evidence/measured_memory.yaml; the same bytes for the same numbers."""
    document = {
        "frameworks": {name: asdict(one) for name, one in memory.frameworks.items()},
        "other": asdict(memory.other),
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=116, allow_unicode=True)
    return _HEAD + text


def reporting(rows: Iterable[MemoryRow]) -> set[str]:
    """Frameworks of which runs that ran out of memory are reported, too."""
    return {row.framework for row in rows if not row.ran}


def _well_known(rows: Iterable[MemoryRow]) -> set[str]:
    """Frameworks of which enough families say how far predictions are off, not only that they ran."""
    families: dict[str, set[str]] = {}
    for row in rows:
        if row.error is not None or not row.ran:
            families.setdefault(row.framework, set()).add(row.family)
    return {name for name, own in families.items() if len(own) >= FEWEST_FAMILIES}


@dataclass(frozen=True, slots=True)
class _Values:
    """Of all frameworks, then of each: shifts, what moving adds, logarithms of spreads, and margins."""

    shifts: Floats
    moving: Floats
    logs: Floats
    margins: Floats


def _split(free: Floats) -> _Values:
    return _Values(*np.split(free, 4))


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows as arrays: ``values`` are errors where ``seen``, else rooms, ``side`` 1 of runs that ran and -1 of
    those that ran out of memory, ``moving`` from -0.5 to 0.5; ``place`` is the framework of each, 0 of all
    that have no entry. ``size``: of frameworks, with all."""

    values: Floats
    seen: NDArray[np.bool_]
    side: Floats
    moving: Floats
    place: NDArray[np.int64]
    size: int

    def likeliest(self) -> _Values:
        """The values that make the rows likeliest."""
        from scipy.optimize import minimize

        size = self.size
        start = np.concatenate([np.zeros(2 * size), np.full(size, math.log(_SPREAD_START)), np.zeros(size)])
        bounds = [(-1.0, 1.0)] * (2 * size) + [(_LOW, _HIGH)] * size + [(0.0, 1.0)] * size
        found = minimize(self.loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
        return _split(found.x)

    def loss(self, free: Floats) -> tuple[float, Floats]:
        """What is minimised, and its derivatives."""
        now, place = _split(free), self.place
        logs = now.logs[place]
        margins = np.where(self.seen, 0.0, now.margins[place])
        centre = now.shifts[place] + now.moving[place] * self.moving + margins
        scores = (self.values - centre) * np.exp(-logs)
        squares = _FREEDOM + scores**2
        share = np.maximum(below(self.side * scores), 1e-300)
        seen = -logs - (_FREEDOM + 1) / 2 * np.log(squares)
        slope = np.where(
            self.seen,
            -(_FREEDOM + 1) * scores / squares,
            self.side * _DENSITY / (squares * squares * np.sqrt(squares) * share),
        )
        steep = slope * np.exp(-logs)
        prior, by_prior = _prior(free, self.size)
        gradient = by_prior + np.concatenate(
            [
                self._by_framework(steep),
                self._by_framework(steep * self.moving),
                self._by_framework(self.seen + scores * slope),
                self._by_framework(np.where(self.seen, 0.0, steep)),
            ]
        )
        return prior - float(np.sum(np.where(self.seen, seen, np.log(share)))), gradient

    def _by_framework(self, of_rows: Floats) -> Floats:
        return np.bincount(self.place, weights=of_rows, minlength=self.size).astype(np.float64)


def _table(told: Sequence[MemoryRow], ended: Sequence[MemoryRow], names: Sequence[str]) -> _Table:
    """Of measured peaks, and of how runs ended: one that was measured is in both."""
    places = {name: place for place, name in enumerate(names, start=1)}
    rows = [*told, *ended]
    return _Table(
        values=np.array([*(row.error or 0.0 for row in told), *(row.room for row in ended)]),
        seen=np.arange(len(rows)) < len(told),
        side=np.array([1.0 if row.ran else -1.0 for row in rows]),
        moving=np.array([row.moving - HALF for row in rows]),
        place=np.array([places.get(row.framework, 0) for row in rows]),
        size=len(names) + 1,
    )


def _prior(free: Floats, size: int) -> tuple[float, Floats]:
    """Half the squares of how far values are from where their priors have them, and the derivatives."""
    centre = np.zeros(len(free))
    centre[2 * size] = math.log(_SPREAD_START)
    loose = np.full(len(free), _SHIFT_PRIOR)
    loose[size : 2 * size], loose[3 * size :] = _MOVING_PRIOR, _MARGIN_PRIOR
    loose[2 * size], loose[2 * size + 1 : 3 * size] = _SPREAD_LOOSE, _SPREADS_ALIKE
    far = free - centre
    blocks = range(0, 4 * size, size)
    for first in blocks:  # each around all
        far[first + 1 : first + size] = free[first + 1 : first + size] - free[first]
    slopes = far / loose**2
    derivatives = slopes.copy()
    for first in blocks:
        derivatives[first] -= slopes[first + 1 : first + size].sum()
    return float(np.sum((far / loose) ** 2) / 2), derivatives


def _spread(
    shift: float, moving: float, spread: float, margin: float, *, doubt: float, told: str
) -> MemorySpread:
    return MemorySpread(
        shift=significant(shift),
        moving=significant(moving),
        spread=significant(spread),
        margin=significant(margin),
        doubt=significant(doubt),
        source=f"stepsim calibrate residuals: {told}",
    )


def _counts(rows: Sequence[MemoryRow]) -> str:
    measured = sum(row.error is not None for row in rows)
    failed = sum(not row.ran for row in rows)
    families = len({row.family for row in rows})
    return f"{len(rows)} runs of {families} families, {measured} with a measured peak, {failed} out of memory"
