"""Choices of layouts as tables and targets: what planners' choices lost, and how sure a plan may be."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from ....sim.figures import count, percent
from ...fit.memory_spread import probabilities_left_out, probabilities_of_strangers
from ..grids import NONE, Grid
from ..run import ValidatedCase
from .choices import (
    PLANNERS,
    PROPOSED,
    THRESHOLDS,
    Judgement,
    Sweep,
    as_planned,
    at_random,
    by_time,
    certainty_of_sweep,
    judged,
)
from .each_sweep import EACH, each_sweep_grid, judged_sweeps
from .fit_probabilities import fit_bins

EDGES = (0.0, 0.01, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0)

CHOICES = f"""\
A sweep is one job (model, sequence, batch, precision, GPUs, software) measured in five layouts or more,
those that ran out of memory among them. A planner sees the layouts and chooses; what it lost is over the
fastest measured one. As a plan proposes: the fastest with a fit probability of {PROPOSED:g}, then the bold
choice where one is worth a try (`sim/plan/boldness.py`), then the next that are sure to fit; where none is,
the bold choice alone. Nothing proposed: no layout of the sweep reaches the fit probability. By rule of
thumb: the Megatron guides' recipe with the textbook's bill of memory
(`calibration/validation/judge/rule_of_thumb.py`); with stepsim's memory: the recipe among layouts with a fit
probability of {PROPOSED:g}. Fit probabilities are by runs of other families.
"""

FITS = """\
Runs of frameworks of which failures are reported, each by a fit that saw no run of its family. Where failures
are not reported, that a run ran is why it was published.
"""

STRANGERS = """\
The same runs by a fit that saw none of their framework: as one is told of which nobody knows how large its
runs were, nor which of them failed.
"""

CERTAINTY = """\
Of the runs of each sweep that ended: how often the one was fastest that a plan held to be the best with that
probability, its constants drawn anew for all layouts together (`sim/plan/certainty.py`).
"""


def choice_sections(sweeps: Sequence[Sweep], rows: Sequence[ValidatedCase]) -> Iterator[tuple[Grid, str]]:
    """Tables, each with the words that explain it; none without sweeps."""
    if sweeps:
        yield choice_grid(sweeps), CHOICES
        yield threshold_grid(sweeps), ""
        yield each_sweep_grid(judged_sweeps(sweeps)), EACH
        yield certainty_grid(sweeps), CERTAINTY
    if found := fit_grid(rows):
        yield found, FITS
    if found := fit_grid(rows, strangers=True):
        yield found, STRANGERS


def choice_grid(sweeps: Sequence[Sweep]) -> Grid:
    """Planners beside each other."""
    found = [judged(name, sweeps, planner) for name, planner in PLANNERS.items()]
    return Grid(
        title=f"What choices lose, {len(sweeps)} measured sweeps, high and medium trust",
        columns=("planner", *_COLUMNS),
        rows=tuple(map(_row, (*found, at_random(sweeps)))),
    )


def threshold_grid(sweeps: Sequence[Sweep]) -> Grid:
    """What choices lose, by the probability to fit that a layout must have."""
    found = [judged(f"{fits:g}", sweeps, by_time(fits)) for fits in THRESHOLDS]
    return Grid(
        title="What choices lose by the fit probability that is asked for",
        columns=("fit probability", *_COLUMNS),
        rows=tuple(map(_row, found)),
    )


def fit_grid(rows: Sequence[ValidatedCase], *, strangers: bool = False) -> Grid | None:
    """Fit probabilities beside how runs ended, their families left out of the fit, or as ``strangers`` all of
    their framework; None where no failure is reported."""
    found = fit_bins(rows, probabilities_of_strangers if strangers else probabilities_left_out)
    if not found:
        return None
    return Grid(
        title=f"Fit probabilities, {'frameworks' if strangers else 'families'} left out of the fit",
        columns=("predicted", "runs", "mean of the predicted", "ran", "expected to fail", "failed"),
        rows=tuple(
            (
                f"{one.low:g} to {one.high:g}",
                count(one.runs),
                f"{one.predicted:.3f}",
                f"{one.ran:.3f}",
                f"{one.runs * (1 - one.predicted):.1f}",
                count(round(one.runs * (1 - one.ran))),
            )
            for one in found
        ),
    )


def certainty_grid(sweeps: Sequence[Sweep]) -> Grid:
    """How often layouts held to be the best with some probability were."""
    pairs, tied = [], []
    for sweep in sweeps:
        if (found := certainty_of_sweep(sweep)) is None:
            continue
        ran, sure = found
        best = min(range(len(ran)), key=lambda place: ran[place].measured_s or math.inf)
        pairs += [(p, place == best) for place, p in enumerate(sure.probability_best)]
        tied.append(best in sure.ties)
    rows = list(_bins(pairs))
    if tied:
        rows.append(("the best is among the tied", count(len(tied)), NONE, f"{sum(tied) / len(tied):.3f}"))
    return Grid(
        title="Which layout is the best, predicted and measured",
        columns=("probability of being the best", "layouts", "mean of the predicted", "was the best"),
        rows=tuple(rows),
    )


def _bins(pairs: Sequence[tuple[float, bool]]) -> Iterator[tuple[str, ...]]:
    for low, high in itertools.pairwise(EDGES):
        own = [(p, was) for p, was in pairs if low <= p < high or p == high == 1.0]
        if own:
            mean, share = (sum(each) / len(own) for each in zip(*own, strict=True))
            yield f"{low:g} to {high:g}", count(len(own)), f"{mean:.3f}", f"{share:.3f}"


_COLUMNS = (
    "nothing proposed", "out of memory", "lost: median", "p90", "all three out of memory",
    "best of three: median", "p90 of three",
)  # fmt: skip


def _row(one: Judgement) -> tuple[str, ...]:
    return (
        one.name,
        percent(one.silent),
        percent(one.out_of_memory),
        *map(_share, one.first),
        percent(one.three_out_of_memory),
        *map(_share, one.best_of_three),
    )


def _share(lost: float) -> str:
    return NONE if math.isnan(lost) else percent(lost)


def proposed(sweeps: Iterable[Sweep]) -> Judgement:
    """What the choices that a plan proposes lose."""
    return judged("proposed", [*sweeps], as_planned)
