"""Every measured sweep by itself: how its layouts are ranked, and what choosing by prediction loses.

A user's own sweep is judged by the same rules as those of docs/accuracy.md (choices.py); ranks are of the
step times of the runs that ended (ranking.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ....sim.figures import count, percent
from ..grids import NONE, Grid
from .choices import THREE, Sweep, SweepRun, as_planned, lost_by
from .ranking import spearman_of_pairs

SHOWN = 60
"""Sweeps of a table, those that lose the most first."""

EACH = """\
First choice: what a plan proposes of these layouts before it has seen them, and how much longer its step
takes than that of the fastest. Best of three: the same of its first three choices. Rank correlation:
Spearman's, of the step times of the runs that ended, where two within 3 % of each other are no pair. Said
wrongly: runs that ended and were predicted to run out of memory, and the other way round.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedSweep:
    """``runs`` layouts of one job, of which ``ended`` did not run out of memory.

    ``first_choice`` and ``choices`` are ids in the order of a plan, ``fastest`` is the id of the fastest that
    ended. Losses are relative to its step time; None where nothing was proposed, or all proposed layouts ran
    out of memory (``first_choice_outcome``). ``rank_correlation`` is None where no two runs differ by
    more than noise. ``said_out_of_memory`` counts runs that ended although they were predicted to run out of
    memory, ``said_to_fit`` those that ran out although they were predicted to fit.
    """

    job: str
    source: str
    runs: int
    ended: int
    rank_correlation: float | None
    fastest: str
    first_choice: str | None
    first_choice_outcome: str | None
    first_choice_lost: float | None
    choices: tuple[str, ...]
    best_of_three_lost: float | None
    said_out_of_memory: int
    said_to_fit: int


def judged_sweeps(sweeps: Iterable[Sweep]) -> list[JudgedSweep]:
    """Each sweep by itself, those whose first choice loses the most first."""
    found = [_judged(sweep) for sweep in sweeps]
    return sorted(found, key=lambda one: (-_badness(one), one.source, one.job))


def each_sweep_grid(found: Sequence[JudgedSweep]) -> Grid:
    """A row for each sweep."""
    shown = found[:SHOWN]
    more = f" (the worst {SHOWN} of {len(found)})" if len(found) > SHOWN else ""
    return Grid(
        title=f"Choices in each sweep{more}",
        columns=(
            "sweep", "source", "runs", "ended", "rank correlation", "first choice lost", "best of three lost",
            "said wrongly",
        ),
        rows=tuple(map(_row, shown)),
        labels=2,
    )  # fmt: skip


def sweeps_document(found: Iterable[JudgedSweep]) -> list[dict[str, Any]]:
    """The judgement of each sweep for JSON: shares as numbers, None where there is none."""
    return [asdict(one) | {"choices": list(one.choices)} for one in found]


def _judged(sweep: Sweep) -> JudgedSweep:
    ended = [run for run in sweep if run.measured_s is not None]
    choices, lost = as_planned(sweep)[:THREE], lost_by(sweep, as_planned(sweep))
    first = choices[0] if choices else None
    outcomes = [(run.row.case.measured.outcome, run.row.prediction.outcome) for run in sweep]
    return JudgedSweep(
        job=_job(sweep[0]),
        source=sweep[0].row.source,
        runs=len(sweep),
        ended=len(ended),
        rank_correlation=spearman_of_pairs(
            [run.measured_s or math.inf for run in ended], [run.predicted_s for run in ended]
        ),
        fastest=min(ended, key=lambda run: run.measured_s or math.inf).row.case.id,
        first_choice=first.row.case.id if first else None,
        first_choice_outcome=first.row.case.measured.outcome if first else None,
        first_choice_lost=_finite(lost.first),
        choices=tuple(run.row.case.id for run in choices),
        best_of_three_lost=_finite(lost.best_of_three),
        said_out_of_memory=outcomes.count(("ok", "oom")),
        said_to_fit=outcomes.count(("oom", "ok")),
    )


def _job(run: SweepRun) -> str:
    """What the layouts of a sweep have in common, in words."""
    case = run.row.case
    model, hardware = case.model, case.hardware
    sizes = f"{model.num_layers} layers of {model.hidden_size:,}, {case.layout.global_batch:,} sequences"
    return f"{sizes} of {model.seq_length:,}, {hardware.gpus:,} {hardware.gpu}, {case.layout.precision}"


def _finite(lost: float | None) -> float | None:
    return None if lost is None or math.isinf(lost) else lost


def _badness(one: JudgedSweep) -> float:
    if one.first_choice_lost is not None:
        return one.first_choice_lost
    return math.inf


def _row(one: JudgedSweep) -> tuple[str, ...]:
    wrong = one.said_out_of_memory + one.said_to_fit
    correlation = NONE if one.rank_correlation is None else f"{one.rank_correlation:.2f}"
    first = "out of memory" if one.first_choice_outcome == "oom" else _share(one.first_choice_lost)
    nothing = one.first_choice is None
    three = _share(one.best_of_three_lost)
    return (
        one.job,
        one.source,
        count(one.runs),
        count(one.ended),
        correlation,
        "nothing proposed" if nothing else first,
        three if nothing or one.best_of_three_lost is not None else "out of memory",
        count(wrong),
    )


def _share(lost: float | None) -> str:
    return NONE if lost is None else percent(lost)
