"""The tables of a validation, as text in rows and columns: which figures, in which order, written how.

Knows no terminal and no markup; tables.py and markdown.py draw these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ...sim.figures import count, percent, seconds, signed_percent
from ..cases.errors import Errors
from .run import Report, ValidatedCase
from .summary import Figures, Summary

NONE = "-"
WORST = 20

FIGURE_COLUMNS = (
    "cases", "refused", "families", "median", "p90", "signed", "by GPU", "by regime", "memory", "mem. p90",
)  # fmt: skip
LEGEND = (
    "median, p90: absolute error of the step time, averaged within each family, then over families; "
    "signed: median of the families' mean error; "
    "by GPU, by regime: the median on the same cases if MFU were a constant of GPU and precision, or of the "
    "regime (median of the other families of that trust); memory: absolute error of the peak memory."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table. The first ``labels`` columns are text, the rest are figures and stand to the right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1


def overall_grid(summary: Summary) -> Grid:
    """A row of figures for the acceptance set, one for the cases of each trust, and one for all cases."""
    groups = {"acceptance set": summary.acceptance}
    groups |= {f"{trust} trust" if trust != "all" else "all": one for trust, one in summary.overall.items()}
    return _figures_grid("All sources", "set", groups.items())


def source_grid(summary: Summary, trust: str) -> Grid:
    """Figures of each source that has rows of that trust."""
    return _figures_grid(f"By source, {trust} trust", "source", _of_trust(summary.sources, trust))


def regime_grid(summary: Summary) -> Grid:
    """A row of figures for each regime (scale, kind of model, ...) in which cases of high trust lie."""
    return _figures_grid("By regime, high trust", "regime", _of_trust(summary.regimes, "high"))


def outcome_grid(summary: Summary) -> Grid:
    """Fits or out of memory, measured against predicted, for every source where either occurred."""
    rows = []
    for name, figures in (*_of_trust(summary.sources, "all"), *_of_trust({"all": summary.overall}, "all")):
        o = figures.outcomes
        if o.ok_oom or o.oom_ok or o.oom_oom:
            balanced = NONE if o.balanced_accuracy is None else percent(o.balanced_accuracy)
            rows.append((name, *map(count, (o.ok_ok, o.ok_oom, o.oom_oom, o.oom_ok)), balanced))
    columns = ("source", "ran, fits", "ran, said OOM", "OOM, said OOM", "OOM, said fits", "balanced accuracy")
    return Grid(title="Out of memory, measured and predicted", columns=columns, rows=tuple(rows))


def worst_grid(report: Report) -> Grid:
    """The rows of high trust with the largest error of the step time; of any trust where none is high."""
    timed = [row for row in report.rows if row.error is not None]
    high = [row for row in timed if row.case.trust == "high"]
    worst = sorted(high or timed, key=lambda row: (-abs(row.error or 0.0), row.case.id))[:WORST]
    return Grid(
        title=f"Worst rows, {'high' if high else 'any'} trust",
        columns=("id", "regime", "predicted", "measured", "error"),
        rows=tuple(map(_worst_row, worst)),
        labels=2,
    )


def refused_grid(summary: Summary) -> Grid:
    """Why cases were refused, most frequent reason first."""
    rows = tuple((reason, count(times)) for reason, times in summary.refused.items())
    return Grid(title="Refused cases by reason (N: any number)", columns=("reason", "cases"), rows=rows)


def _of_trust(groups: Mapping[str, Mapping[str, Figures]], trust: str) -> list[tuple[str, Figures]]:
    return [(name, levels[trust]) for name, levels in groups.items() if trust in levels]


def _figures_grid(title: str, label: str, groups: Iterable[tuple[str, Figures]]) -> Grid:
    rows = tuple((name, *_cells(figures)) for name, figures in groups)
    return Grid(title=title, columns=(label, *FIGURE_COLUMNS), rows=rows)


def _cells(figures: Figures) -> tuple[str, ...]:
    time, memory = figures.step_time, figures.memory
    return (
        count(figures.cases),
        count(figures.refused) if figures.refused else NONE,
        count(time.families) if time else NONE,
        _median(time),
        percent(time.p90) if time else NONE,
        signed_percent(time.signed_median) if time else NONE,
        _median(figures.mfu_by_gpu),
        _median(figures.mfu_by_regime),
        _median(memory),
        percent(memory.p90) if memory else NONE,
    )


def _median(errors: Errors | None) -> str:
    return percent(errors.median) if errors else NONE


def _worst_row(row: ValidatedCase) -> tuple[str, ...]:
    predicted_s, measured_s = row.prediction.step_time_s, row.case.measured.step_time_s
    assert predicted_s is not None
    assert measured_s is not None
    assert row.error is not None
    return row.case.id, row.regime, seconds(predicted_s), seconds(measured_s), signed_percent(row.error)
