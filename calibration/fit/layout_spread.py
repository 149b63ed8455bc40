"""How much each field in which two layouts differ adds to what their predictions are off against each other.

Pairs of runs of one measured sweep tell: their errors' difference over the spread that the parts of their
intervals and the number of fields give it is Student's t with four degrees of freedom, since errors of runs
have heavy tails. The spread of a field is the one with which half of all pairs lie within the t's median;
sweeps count alike. Only pairs of about the same predicted time: a plan holds no others against each other,
and layouts that are slow for a reason are off by more.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from ...sim.evidence.measured_layouts import MeasuredLayouts, differing
from ...sim.figures import significant
from .growth import weighted_quantile

if TYPE_CHECKING:
    from ...sim.result.step import IntervalPart

_HEAD = """\
# What measured sweeps say of layouts beside each other (sim/evidence/measured_layouts.py). Written by
#   stepsim calibrate residuals CASES.yaml... --held-out docs/step-fit.json --write
# Do not edit.
"""

T_MEDIAN = 0.7407
"""Half of the values of Student's t with four degrees of freedom are no further from zero."""


NEAR = 1.2
"""Predicted times of a pair, the longer over the shorter, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """A measured run of a sweep: ``error`` is the logarithm of measured over ``predicted_s``, ``layout`` its
    fields, ``parts`` those of its interval."""

    sweep: str
    layout: Mapping[str, Any]
    predicted_s: float
    error: float
    parts: tuple[IntervalPart, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Squares: of the errors' difference, and of the spread that the parts give it."""

    squared: float
    known: float
    fields: int
    weight: float

    @property
    def needed(self) -> float:
        """The variance of a field with which the pair lies at the median."""
        return (self.squared / T_MEDIAN**2 - self.known) / self.fields


def fit_layout_spread(rows: Sequence[SweepRow]) -> MeasuredLayouts:
    """The spread of a field. ValueError where no sweep has two layouts."""
    sweeps: dict[str, list[SweepRow]] = {}
    for row in rows:
        sweeps.setdefault(row.sweep, []).append(row)
    found = [pair for members in sweeps.values() for pair in _pairs(members)]
    if not found:
        raise ValueError("the spread of layouts needs a sweep: measured runs of one job in two layouts")
    variance = weighted_quantile(sorted((pair.needed, pair.weight) for pair in found), 0.5)
    many = sum(len(members) > 1 for members in sweeps.values())
    return MeasuredLayouts(
        field_sigma=significant(max(variance, 0.0) ** 0.5),
        source=f"stepsim calibrate residuals: {len(found)} pairs of {len(rows)} runs in {many} sweeps",
    )


def layouts_text(layouts: MeasuredLayouts) -> str:
    """sim/evidence/measured_layouts.yaml; the same bytes for the same numbers."""
    document = {"field_sigma": layouts.field_sigma, "source": layouts.source}
    text: str = yaml.safe_dump(document, sort_keys=False, width=116, allow_unicode=True)
    return _HEAD + text


def _pairs(rows: Sequence[SweepRow]) -> Iterator[_Pair]:
    """Pairs of different layouts and about the same time; all of a sweep together weigh one."""
    both = [
        (one, two)
        for one, two in itertools.combinations(rows, 2)
        if differing(one.layout, two.layout) and _are_near(one.predicted_s, two.predicted_s)
    ]
    for one, two in both:
        yield _Pair(
            squared=(one.error - two.error) ** 2,
            known=_apart(one.parts, two.parts),
            fields=differing(one.layout, two.layout),
            weight=1.0 / len(both),
        )


def _are_near(one: float, two: float) -> bool:
    return max(one, two) <= NEAR * min(one, two)


def _apart(one: Sequence[IntervalPart], two: Sequence[IntervalPart]) -> float:
    """The variance of the difference of errors that the parts share: of each the difference alone counts."""
    first = {part.name: part.share * part.sigma for part in one}
    second = {part.name: part.share * part.sigma for part in two}
    return sum((first.get(name, 0.0) - second.get(name, 0.0)) ** 2 for name in first.keys() | second.keys())
