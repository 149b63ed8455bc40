"""What the project holds its accuracy to, what was measured, and whether it holds: one line each.

The limits are the project's own acceptance figures; they are stated here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ....sim.evidence.interval import LEVEL
from ....sim.figures import percent
from ...cases.errors import Errors, errors_of
from ..grids import Grid
from ..intervals import EXPERTS, OUTSIDE, intervals_by_group, intervals_by_range
from ..run import Report, ValidatedCase
from ..summary import confusion
from .choice_tables import proposed
from .choices import PROPOSED, measured_sweeps
from .fit_probabilities import likelier_outcomes
from .held_out import held_out_errors
from .nanotron import by_nodes, fast
from .own_steps import after_own_runs
from .ranking import median_and_ninth_decile, sweeps
from .regimes import Against, against, by_regime, rated
from .source_left_out import by_source_left_out

STEP_MEDIAN, STEP_P90 = 0.06, 0.18
"""Errors of the step time for families left out of the fit, high trust."""
SOURCE_MEDIAN, SOURCE_ROWS = 0.10, 10
"""The worst source's median error, among sources of so many rows."""
RANK_MEDIAN, RANK_NINTH = 0.95, 0.90
"""Spearman's rank correlation in sweeps: the median, and what nine in ten reach."""
NANOTRON_FAST, NANOTRON_NODES = 0.10, 0.20
"""Median errors of nanotron: of runs with an MFU of 10 % and more, and for the worst number of hosts."""
OOM_BALANCED, MEMORY_MEDIAN = 0.95, 0.05
"""Balanced accuracy of who runs out of memory, and the median error of the peak memory."""
FACTOR = 3.0
"""How many times smaller errors are than those of the better baseline."""
UNSEEN_MEDIAN, UNSEEN_P90, UNSEEN_WIDTH, UNSEEN_INSIDE = 0.05, 0.12, 0.28, (0.88, 0.93)
"""For sources left out: errors of the step time, the median width of intervals, and what these hold."""
OWN_MEDIAN, OWN_WIDTH = 0.035, 0.16
"""The targets of median error and interval width once one run of the source has been measured."""
CHOICE_OOM, CHOICE_MEDIAN, CHOICE_P90, THREE_P90 = 0.03, 0.01, 0.08, 0.04
"""A plan's first choice: how often it runs out of memory, and what it loses to the best; p90 of three."""
HELD_HIGH, HELD_MEDIUM, HELD_EXPERTS, HELD_OUTSIDE = (0.90, 0.98), 0.88, 0.85, 0.85
"""Measured steps inside of the interval: by trust, with experts, and outside of what was measured."""
FEWEST_HELD = 10
"""Steps that a share of intervals is judged on: of fewer no share lies between nine in ten and all."""
OOM_SOURCES = ("aleph_alpha_layouts", "hf_nanotron_h100", "hf_nanotron_h100_oom")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyTarget:
    """``holds`` is None where nothing was measured."""

    what: str
    asked: str
    measured: str
    holds: bool | None


def targets(report: Report) -> tuple[AccuracyTarget, ...]:
    """Every target, in the order of the page."""
    return (
        *_step_times(report),
        *_sources(report),
        *_unseen_sources(report),
        *_own_runs(report),
        *_ranks(report.rows),
        *_nanotron(report.rows),
        *_memory(report.rows),
        *_baselines(report.rows),
        *_intervals(report.rows),
        *_choices(report.rows),
    )


def targets_grid(found: Sequence[AccuracyTarget], *, strong: str = "**") -> Grid:
    """The targets as text; what does not hold stands between the marks of ``strong``."""
    words = {True: "holds", False: f"{strong}does not hold{strong}", None: "not measured"}
    rows = tuple((one.what, one.asked, one.measured, words[one.holds]) for one in found)
    return Grid(title="Targets", columns=("figure", "asked", "measured", "verdict"), rows=rows, labels=4)


def _at_most(what: str, limit: float, value: float | None, note: str = "") -> AccuracyTarget:
    measured = "-" if value is None else percent(value, 1) + note
    return AccuracyTarget(
        what=what,
        asked=f"at most {100 * limit:g} %",
        measured=measured,
        holds=None if value is None else value <= limit,
    )


def _step_times(report: Report) -> Iterator[AccuracyTarget]:
    seen = errors_of(
        (r.case.family, r.error) for r in report.rows if r.case.trust == "high" and r.error is not None
    )
    unseen = held_out_errors(report, ("high",))
    name = "step time, high trust, families left out of the fit"
    for part, limit in (("median", STEP_MEDIAN), ("p90", STEP_P90)):
        beside = f" ({percent(getattr(seen, part))} with the shipped constants)" if seen else ""
        yield _at_most(f"{name}: {part}", limit, getattr(unseen, part) if unseen else None, beside)


def _sources(report: Report) -> Iterator[AccuracyTarget]:
    high = [row for row in report.rows if row.case.trust == "high" and row.error is not None]
    found: dict[str, Errors] = {}
    for source in sorted({row.source for row in high}):
        own = [row for row in high if row.source == source]
        shipped = errors_of((row.case.family, row.error or 0.0) for row in own)
        errors = held_out_errors(report, ("high",), source) or shipped
        if errors and errors.cases >= SOURCE_ROWS:
            found[source] = errors
    what = f"worst median of a source with {SOURCE_ROWS} rows of high trust or more"
    if found:
        worst = max(found, key=lambda source: found[source].median)
        yield _at_most(what, SOURCE_MEDIAN, found[worst].median, f" ({worst})")
    else:
        yield _at_most(what, SOURCE_MEDIAN, None)


def _unseen_inside(name: str, inside: float | None) -> AccuracyTarget:
    low, high = UNSEEN_INSIDE
    return AccuracyTarget(
        what=f"{name}: measured steps inside the {percent(LEVEL, 0)} interval",
        asked=f"{percent(low, 0)} to {percent(high, 0)}",
        measured="-" if inside is None else percent(inside),
        holds=None if inside is None else low <= inside <= high,
    )


def _unseen_sources(report: Report) -> Iterator[AccuracyTarget]:
    """Sources of which nothing was seen, high and medium trust."""
    one = next(iter(by_source_left_out(report)), None) if report.source_left_out else None
    name = "step time, high and medium trust, source left out"
    yield _at_most(f"{name}: median", UNSEEN_MEDIAN, one.left_out.median if one else None)
    yield _at_most(f"{name}: p90", UNSEEN_P90, one.left_out.p90 if one else None)
    yield _at_most(f"{name}: median width of intervals", UNSEEN_WIDTH, one.width if one else None)
    yield _unseen_inside(name, one.inside if one else None)


def _own_runs(report: Report) -> Iterator[AccuracyTarget]:
    """Sources of which one run was measured, high and medium trust."""
    one = next(iter(after_own_runs(report)), None) if report.source_left_out else None
    name = "step time, high and medium trust, one run of the source measured"
    yield _at_most(f"{name}: median", OWN_MEDIAN, one.median if one else None)
    yield _at_most(f"{name}: median width of intervals", OWN_WIDTH, one.width if one else None)
    yield _unseen_inside(name, one.inside if one else None)


def _ranks(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    for trusts in (("high",), ("high", "medium")):
        found = sweeps(rows, trusts)
        middle, ninth = median_and_ninth_decile(found)
        reach = sum(one.spearman >= RANK_NINTH for one in found)
        name = f"rank correlation in sweeps, {' and '.join(trusts)} trust"
        yield AccuracyTarget(
            what=f"{name}: median",
            asked=f"at least {RANK_MEDIAN}",
            measured=f"{middle:.3f} over {len(found)} sweeps" if found else "-",
            holds=middle >= RANK_MEDIAN if found else None,
        )
        yield AccuracyTarget(
            what=f"{name}: reached by nine in ten",
            asked=f"at least {RANK_NINTH}",
            measured=f"{reach} of {len(found)} reach it; nine in ten reach {ninth:.3f}" if found else "-",
            holds=reach >= 0.9 * len(found) if found else None,
        )


def _nanotron(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    cell, nodes = fast(rows), by_nodes(rows)
    name = "nanotron, high and medium trust"
    note = f" ({percent(cell.row_median)} over rows)" if cell else ""
    yield _at_most(
        f"{name}, MFU of at least 10 %: median", NANOTRON_FAST, cell.errors.median if cell else None, note
    )
    worst = max(nodes, key=lambda one: one.errors.median, default=None)
    failing = [one.name for one in nodes if one.errors.median > NANOTRON_NODES]
    beyond = f"above the limit on {', '.join(failing) or 'none'}"
    note = f" on {worst.name} ({percent(worst.row_median)} over rows); {beyond}" if worst else ""
    yield _at_most(
        f"{name}, worst number of hosts: median", NANOTRON_NODES, worst.errors.median if worst else None, note
    )


def _memory(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    judged = [row for row in rows if row.source in OOM_SOURCES]
    sources = "balanced accuracy over aleph_alpha_layouts and hf_nanotron_h100*"
    for name, found in (
        ("out of memory or not, by the peak", confusion(judged)),
        ("out of memory or not, by what is likelier", likelier_outcomes(rows, OOM_SOURCES)),
    ):
        accuracy = found.balanced_accuracy
        wrong = f"{found.ok_oom} that ran and {found.oom_ok} that did not are mistaken"
        yield AccuracyTarget(
            what=f"{name}, {sources}",
            asked=f"at least {percent(OOM_BALANCED, 0)}",
            measured=f"{percent(accuracy)}: {wrong}" if accuracy is not None else "-",
            holds=None if accuracy is None else accuracy >= OOM_BALANCED,
        )
    for name, wanted in (
        ("all sources, high and medium trust", [r for r in rows if r.case.trust != "low"]),
        ("nanotron, all trusts", [r for r in rows if r.source.startswith("hf_nanotron_h100")]),
    ):
        pairs = [(r.case.family, r.memory_error) for r in wanted if r.memory_error is not None]
        errors = errors_of(pairs)
        note = f" ({percent(median(abs(error) for _, error in pairs))} over rows)" if pairs else ""
        yield _at_most(f"peak memory, {name}: median", MEMORY_MEDIAN, errors.median if errors else None, note)


def _baselines(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    found = rated(rows)
    regimes: list[Against] = [one for trust in ("high", "medium") for one in by_regime(found, trust)]
    lost = [f"{one.name} ({one.trust})" for one in regimes if not one.better]
    yield AccuracyTarget(
        what="better than both baselines in every regime with ten families or more",
        asked="every regime",
        measured=f"{len(regimes) - len(lost)} of {len(regimes)}"
        + (f"; not in {', '.join(lost)}" if lost else ""),
        holds=not lost if regimes else None,
    )
    for trusts in (("high",), ("high", "medium")):
        name = " and ".join(trusts)
        whole = against(name, name, [one for one in found if one[0].case.trust in trusts])
        yield AccuracyTarget(
            what=f"error against the better baseline, {name} trust",
            asked=f"{FACTOR:g} times smaller",
            measured=f"{whole.factor:.1f} times" if whole else "-",
            holds=whole.factor >= FACTOR if whole else None,
        )


def _intervals(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    groups = intervals_by_group(rows) | intervals_by_range(rows)
    for name, low, high in (
        ("high trust", *HELD_HIGH),
        ("medium trust", HELD_MEDIUM, 1.0),
        (EXPERTS, HELD_EXPERTS, 1.0),
        (OUTSIDE, HELD_OUTSIDE, 1.0),
    ):
        one = groups.get(name)
        width = f" of {one.cases}; median width {percent(one.median_width)}" if one else ""
        asked = f"{percent(low, 0)} to {percent(high, 0)}" if high < 1 else f"at least {percent(low, 0)}"
        trusts = "" if name.endswith("trust") else ", high and medium trust"
        yield AccuracyTarget(
            what=f"measured steps inside the {percent(LEVEL, 0)} interval, {name}{trusts}",
            asked=asked,
            measured=f"{percent(one.coverage)}{width}" if one else "-",
            holds=low <= one.coverage <= high if one and one.cases >= FEWEST_HELD else None,
        )


def _choices(rows: Sequence[ValidatedCase]) -> Iterator[AccuracyTarget]:
    sweeps = measured_sweeps(rows, ("high", "medium"))
    found = proposed(sweeps) if sweeps else None
    name = f"first choice of a plan, fit probability of {PROPOSED:g}"
    note = f" of {len(sweeps)} sweeps; nothing proposed in {percent(found.silent)}" if found else ""
    out = found.out_of_memory if found else None
    yield _at_most(f"{name}: ran out of memory", CHOICE_OOM, out, note)
    yield _at_most(f"{name}: lost, median", CHOICE_MEDIAN, found.first[0] if found else None)
    yield _at_most(f"{name}: lost, p90", CHOICE_P90, found.first[1] if found else None)
    yield _at_most("best of three choices: lost, p90", THREE_P90, found.best_of_three[1] if found else None)
