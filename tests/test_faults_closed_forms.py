"""Campaigns against exact expectations, with fixed seeds: the cases of docs/reliability.md with fewer
replications.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from stepsim.sim.reliability.cases import checkpoints, explained, processes, published
from stepsim.sim.reliability.cases.case import CaseVerdict
from stepsim.sim.reliability.cases.page import cases_page
from stepsim.sim.reliability.cases.run import CASES
from stepsim.sim.reliability.study import closed_forms
from stepsim.sim.reliability.study.statistics import mean_of, quantile, ratio_difference, ratio_of, t_quantile

QUICK: dict[str, Callable[[], Iterator[CaseVerdict]]] = {
    "blocking": partial(checkpoints.blocking, 2000, 10),
    "waterfall": partial(checkpoints.where_time_goes, 8000, 10),
    "Daly": partial(checkpoints.daly, 4),
    "asynchronous": partial(checkpoints.asynchronous, 8000, 10),
    "spread": partial(checkpoints.spread, 60, 300),
    "Meta": partial(checkpoints.meta, 4000, 10),
    "spares": partial(processes.spares, 30.0, 6),
    "sizes": partial(processes.sizes, 24),
    "standbys": processes.standbys,
    "slow hosts": partial(processes.slow_hosts, 200),
    "episodes": partial(processes.episodes, 10),
    "guards": processes.guards,
    "identity": partial(processes.identity, 4),
    "peer groups": partial(processes.peer_groups, 20_000),
    "MegaScale": partial(published.megascale, 2),
    "FT-HSDP": partial(published.ft_hsdp, 2),
    "torchft": partial(published.torchft, 2),
    "C4": partial(explained.c4, 4),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(QUICK))
def test_quick_cases_are_within_their_tolerance(name: str) -> None:
    rows = list(QUICK[name]())
    assert rows
    assert [row for row in rows if row.verdict not in ("ok", "explained")] == []


def test_the_page_runs_every_case() -> None:
    """A case that nobody calls would not be on the page."""
    modules = (checkpoints, explained, processes, published)
    public = {
        value
        for module in modules
        for name, value in vars(module).items()
        if callable(value)
        and getattr(value, "__module__", "") == module.__name__
        and not name.startswith("_")
        and not name.endswith("_document")
    }
    assert public == set(CASES)


def test_the_page_says_what_was_missed() -> None:
    row = CaseVerdict(
        number="1",
        title="a|b",
        expected="1",
        found="2",
        tolerance="0",
        verdict="missed",
        source="x",
        note="why",
    )
    page = cases_page([row, row])
    assert "- 2 missed" in page
    assert "a\\|b [1]" in page
    assert "1. why" in page


# Formulas against the numbers of the literature -------------------------------------------------------------


def test_segment_variance_gives_the_published_spread() -> None:
    """54 days at 2.78 h between failures, a checkpoint every 15 min, 10 min down: 0.45 points."""
    args = {"tau": 15.0, "c": 1 / 3, "m": 166.9, "d": 10.0, "r": 0.0}
    segment = 15.0 / closed_forms.ettr_blocking(**args, exposed=False)
    segments = 54 * 1440 / segment
    spread = (
        15.0 / segment * math.sqrt(segments * closed_forms.segment_variance(**args)) / (segments * segment)
    )
    assert spread == pytest.approx(0.0045, rel=0.02)


def test_the_optimum_is_one() -> None:
    for c, m in ((5.0, 1440.0), (1 / 3, 167.0), (5.0, 15.0)):
        best = closed_forms.optimal_interval(c, m)

        def ettr(tau: float, c: float = c, m: float = m) -> float:
            return closed_forms.ettr_blocking(tau=tau, c=c, m=m, d=3.0, r=7.0, exposed=True)

        assert ettr(best) > max(ettr(best * 0.97), ettr(best * 1.03))


def test_waterfall_of_the_formulas_is_whole() -> None:
    parts = closed_forms.waterfall(tau=1800.0, c=60.0, m=3600.0, d=180.0, r=420.0)
    failures = parts.pop("failures")
    assert failures == pytest.approx(0.76013, abs=1e-5)
    assert sum(parts.values()) == pytest.approx(2873.3, abs=0.05)


# Statistics -------------------------------------------------------------------------------------------------


def test_quantiles_of_students_t_are_those_of_tables() -> None:
    for confidence, freedom, known in (
        (0.95, 1, 12.706),
        (0.95, 2, 4.303),
        (0.95, 5, 2.571),
        (0.99, 15, 2.947),
    ):
        assert t_quantile(confidence, freedom) == pytest.approx(known, rel=3e-3)


def test_means_and_half_widths_are_those_by_hand() -> None:
    assert mean_of([1.0, 2.0, 3.0], 0.95).mean == 2.0
    assert mean_of([11.0, 12.0, 13.0], 0.95).half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert mean_of([0.0, 0.0, 3.0], 0.95).low == 0.0
    assert mean_of([-1.0, 0.0, 3.0], 0.95).low < -4.0
    ratio = ratio_of([1.0, 2.0], [2.0, 4.0], 0.95)
    assert (ratio.mean, ratio.half_width) == (0.5, 0.0)
    same = ([1.0, 3.0], [2.0, 5.0])
    assert ratio_difference(same, same, 0.95).half_width == 0.0
    assert [quantile([3.0, 1.0, 2.0], share) for share in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
