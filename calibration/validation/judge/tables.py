"""The judgements as tables: text in rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from ....sim.figures import count, percent, signed_percent
from ...cases.errors import Errors
from ..grids import NONE, Grid
from ..run import Report, ValidatedCase
from .gpu_left_out import by_gpu_left_out
from .held_out import by_source
from .nanotron import Cell, by_band, by_nodes
from .own_steps import after_own_runs
from .published import others
from .ranking import LayoutSweep, median_and_ninth_decile, sweeps
from .regimes import Against, against, by_regime, rated
from .source_left_out import by_source_left_out


def held_out_grid(report: Report) -> Grid:
    """High trust: errors with the shipped constants beside those on families that the fit did not see."""
    rows = tuple(
        (
            one.name,
            count(one.held_out.cases),
            count(one.held_out.families),
            *_two(one.shipped),
            *_two(one.held_out),
            signed_percent(one.held_out.signed_median),
        )
        for one in by_source(report)
    )
    columns = ("set", "cases", "families", "shipped: median", "p90", "left out: median", "p90", "signed")
    return Grid(title="High trust, by grouped cross-validation", columns=columns, rows=rows)


def source_left_out_grid(report: Report) -> Grid:
    """High and medium trust, each source predicted by constants and intervals that never saw it."""
    rows = tuple(
        (
            one.name,
            count(one.left_out.cases),
            count(one.left_out.families),
            *_two(one.shipped),
            *_two(one.left_out),
            signed_percent(one.left_out.signed_median),
            percent(one.inside),
            percent(one.width),
            f"{one.score:.3f}",
            NONE if one.noise is None else percent(one.noise),
        )
        for one in by_source_left_out(report)
    )
    columns = (
        "set", "cases", "families", "shipped: median", "p90", "source left out: median", "p90", "signed",
        "inside 90 %", "median width", "score", "noise",
    )  # fmt: skip
    return Grid(title="Sources of which nothing was seen", columns=columns, rows=rows)


def own_steps_grid(report: Report) -> Grid:
    """High and medium trust, each source before and after runs of its own were measured."""
    rows = tuple(
        (
            one.name,
            count(one.runs),
            count(one.cases),
            count(one.families),
            percent(one.unseen),
            percent(one.unseen_p90),
            percent(one.median),
            percent(one.p90),
            percent(one.inside),
            percent(one.width),
        )
        for one in after_own_runs(report)
    )
    columns = (
        "set", "runs measured", "cases", "families", "before: median", "p90", "after: median", "p90",
        "inside 90 %", "median width",
    )  # fmt: skip
    return Grid(title="Sources of which a few runs were measured", columns=columns, rows=rows)


def gpu_left_out_grid(report: Report) -> Grid:
    """High and medium trust, each GPU type as if its chip had never been measured."""
    rows = tuple(
        (
            one.name,
            one.kin or NONE,
            count(one.left_out.cases),
            count(one.left_out.families),
            *_two(one.shipped),
            *_two(one.left_out),
            signed_percent(one.left_out.signed_median),
            percent(one.inside),
            percent(one.width),
            count(one.refused),
        )
        for one in by_gpu_left_out(report)
    )
    columns = (
        "GPU", "kernels of", "cases", "families", "shipped: median", "p90", "GPU left out: median", "p90",
        "signed", "inside 90 %", "median width", "refused",
    )  # fmt: skip
    return Grid(title="GPUs that nobody has measured", columns=columns, rows=rows, labels=2)


def ranking_grid(rows: Sequence[ValidatedCase], trusts: Sequence[str]) -> Grid:
    """Every sweep, worst first, and what they come to together."""
    found = sweeps(rows, trusts)
    shown = [_sweep(one) for one in found]
    if found:
        middle, ninth = median_and_ninth_decile(found)
        shown.append(
            (
                "all: median; reached by nine in ten",
                NONE,
                NONE,
                f"{middle:.3f}; {ninth:.3f}",
                NONE,
                NONE,
                NONE,
            )
        )
    return Grid(
        title=f"Rank correlation inside layout sweeps, {' and '.join(trusts)} trust",
        columns=("sweep", "source", "rows", "Spearman", "of step times", "best lost", "pair most wrong"),
        rows=tuple(shown),
        labels=2,
    )


def baseline_grid(rows: Sequence[ValidatedCase]) -> Grid:
    """Every regime with families enough, and all together, against both baselines."""
    found = rated(rows)
    shown = [_against(one) for trust in ("high", "medium") for one in by_regime(found, trust)]
    for name, trusts in (("all", ("high",)), ("all", ("medium",)), ("all", ("high", "medium"))):
        members = [one for one in found if one[0].case.trust in trusts]
        if whole := against(name, " and ".join(trusts), members):
            shown.append(_against(whole))
    return Grid(
        title="Against the trivial baselines, regimes with ten families or more",
        columns=("regime", "trust", "cases", "families", "median", "by GPU", "by regime", "factor", "better"),
        rows=tuple(shown),
        labels=2,
    )


def nanotron_grid(rows: Sequence[ValidatedCase]) -> Grid:
    """The nanotron sweep by hosts and by MFU."""
    return Grid(
        title="hf_nanotron_h100, high and medium trust, by hosts and by measured MFU",
        columns=("set", "cases", "families", "median", "p90", "signed", "median over rows"),
        rows=tuple(map(_cell, (*by_nodes(rows), *by_band(rows)))),
    )


def published_grid(rows: Sequence[ValidatedCase]) -> Grid:
    """Errors beside those of the simulators that were published with these runs."""
    shown = tuple(
        (
            one.simulator,
            one.source,
            one.what,
            count(one.cases),
            percent(one.theirs_mean),
            NONE if one.theirs_median is None else percent(one.theirs_median),
            percent(one.ours_mean),
            percent(one.ours_median),
        )
        for one in others(rows)
    )
    columns = ("simulator", "source", "of", "cases", "its mean", "its median", "our mean", "our median")
    return Grid(title="Beside published simulators, same runs", columns=columns, rows=shown, labels=3)


def _two(errors: Errors) -> tuple[str, str]:
    return percent(errors.median), percent(errors.p90)


def _sweep(one: LayoutSweep) -> tuple[str, ...]:
    pair = " / ".join(one.worst_pair)
    return (
        one.name,
        one.source,
        count(one.rows),
        f"{one.spearman:.3f}",
        f"{one.of_steps:.3f}",
        percent(one.best_lost),
        pair,
    )


def _against(one: Against) -> tuple[str, ...]:
    medians = map(percent, (one.simulator, one.by_gpu, one.by_regime))
    verdict = "yes" if one.better else "**no**"
    return one.name, one.trust, count(one.cases), count(one.families), *medians, f"{one.factor:.1f}", verdict


def _cell(one: Cell) -> tuple[str, ...]:
    errors = one.errors
    signed = signed_percent(errors.signed_median)
    return (
        one.name, count(errors.cases), count(errors.families), *_two(errors), signed, percent(one.row_median),
    )  # fmt: skip
