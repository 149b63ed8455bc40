"""docs/accuracy.md: how near the predictions are to measured runs, written by the program itself.

Deterministic: the same report and the same history give the same page.
"""

from __future__ import annotations

from pathlib import Path

from ....hardware.files import read_text
from ..grids import LEGEND, outcome_grid, overall_grid, refused_grid, regime_grid, source_grid, worst_grid
from ..intervals import RANGES, interval_grid, intervals_by_group, intervals_by_range, range_grid
from ..markdown import section
from ..run import Report
from ..summary import ACCEPTANCE_SOURCES, TRUSTS, summarize
from .choice_tables import choice_sections
from .choices import measured_sweeps
from .doubtful import doubtful_grid
from .tables import (
    baseline_grid,
    gpu_left_out_grid,
    held_out_grid,
    nanotron_grid,
    own_steps_grid,
    published_grid,
    ranking_grid,
    source_left_out_grid,
)
from .targets import targets, targets_grid

HISTORY = Path(__file__).parents[3] / "docs" / "accuracy-history.md"
"""Explanations written by hand; what is still wrong ends the page. An installed package has none."""

STILL_WRONG = "<!-- docs/accuracy.md ends with all that follows -->\n\n"

HEAD = f"""\
# Accuracy

Made by `make validate`, which runs

    stepsim validate ../shared/data/{{cases,second/cases}}/*.yaml --markdown docs/accuracy.md

and predicts every measured run of these files from its configuration alone. Do not edit this page;
explanations belong in [accuracy-history.md](accuracy-history.md).

A family is one model and layout. Errors are averaged within a family first, so that a sweep of hundreds of
rows counts as little as a single run. The acceptance set is the rows of high trust that are dense, in
16 bit and without context parallelism, of
{", ".join(f"`{source}`" for source in ACCEPTANCE_SOURCES)}.
Every case of every file is counted: predicted, or refused with the reason.
"""


def accuracy_markdown(report: Report, history: Path = HISTORY, *, picture: Path | None = None) -> str:
    """The page, ending with what the file ``history`` says is still wrong, where there is such a file.

    ``picture`` is drawn of the same report (scatter.py), into the folder of the page.
    """
    summary = summarize(report)
    by_range = intervals_by_range(report.rows)
    parts = [
        HEAD,
        section(targets_grid(targets(report))),
        section(overall_grid(summary)),
        f"{LEGEND[0].upper()}{LEGEND[1:]}\n",
        unseen_sources(report),
        own_runs(report),
        unseen_gpus(report),
        cross_validation(report),
    ]
    if picture is not None:
        parts.append(f"![Predicted over measured step times, by source]({picture.name})\n")
    parts += [section(source_grid(summary, trust)) for trust in TRUSTS[:2]]
    parts += [
        section(regime_grid(summary)),
        section(baseline_grid(report.rows)),
        section(ranking_grid(report.rows, ("high",))),
        section(ranking_grid(report.rows, ("high", "medium"))),
        RANKING if any(row.error is not None for row in report.rows) else "",
        *choices_told(report),
        section(nanotron_grid(report.rows)),
        section(published_grid(report.rows)),
        section(interval_grid(intervals_by_group(report.rows))),
        section(range_grid(by_range, RANGES)) if by_range else "",
        RANGE_WORDS if by_range else "",
        section(outcome_grid(summary)),
        section(worst_grid(report)),
        section(refused_grid(summary)),
        section(doubtful_grid(report.rows)),
    ]
    if summary.internal_errors:
        parts.append(
            f"{summary.internal_errors} of the refused cases met a mistake of the simulator itself.\n"
        )
    if history.is_file():
        parts.append(read_text(history).partition(STILL_WRONG)[2])
    return "\n".join(part for part in parts if part)


RANGE_WORDS = """\
High and medium trust, but where low trust is named: of those rows several fields are guessed or the run
itself is doubtful, which no interval of a prediction can know. Outside a measured range: no measured step
of high trust has the same software, GPU and precision with as long a sequence on as many GPUs, or a
twentieth of the step and more is kernels or collectives beyond what was measured of them. Differences: of
software, GPU and precision, one each, and doublings of sequence length and of GPUs, to the measured step
that is least unlike. Source left out: by residuals that never saw the row's source
(`sim/evidence/measured_steps.yaml`). How intervals are made is in
[calibration.md](calibration.md#how-sure-a-prediction-is).
"""


RANKING = """\
A sweep is one model on one number of GPUs, layouts varying; what is ranked is the time for one sequence of
the batch. Pairs that measured within 3 % of each other do not count (Spearman's coefficient is a sum over
pairs). Best lost: how much longer than the fastest measured layout the one that was predicted fastest takes.
"""


def choices_told(report: Report) -> list[str]:
    """What choices of layouts lose, and whether fit probabilities hold, each table with its words."""
    sweeps = measured_sweeps(report.rows, ("high", "medium"))
    return [text for grid, words in choice_sections(sweeps, report.rows) for text in (section(grid), words)]


UNSEEN_WORDS = """\
What a user can expect whose cluster and stack nobody here has measured. Each source is predicted with the
constants that all other sources give, and with intervals that know no measured step of its own; the presets
stay, which are read off code. Noise: by how much steps of one configuration differ, where several clusters or
several runs have measured it, from their median. Where no other source gives a constant: launches of eager
PyTorch by published measurements, the clock of a GPU's kin. Score: Winkler's of the intervals, in parts of
the prediction; less is better. Errors over families; the rest over rows.
"""


def unseen_sources(report: Report) -> str:
    """Errors on sources that neither constants nor intervals saw, where these are given; else empty."""
    if not report.source_left_out:
        return ""
    return f"{section(source_left_out_grid(report))}\n{UNSEEN_WORDS}"


OWN_WORDS = """\
What measured steps of a user's own are worth (`stepsim calibrate steps --own`). Each GPU of each source is
the user's cluster in turn: up to 20 of its runs are taken as the one that was measured, or the first of a
few, and all others are predicted with the factors that these show, and by spreads between sources that
never saw it; linear about the critical path, where the command simulates. Before: as above, no run
measured. Intervals: the narrower of what the runs leave open and of those above. Like a measured run:
within two doublings of the sizes of model, layout and batch, a choice that differs counting as one. After the
run most alike: each run after that one of its cluster which is nearest to it in these, and is not the same
once more; that is what a user has who asks about changes to a job that runs. Errors over families; the rest
over rows.
"""


def own_runs(report: Report) -> str:
    """What a few measured runs of a source are worth for its others, where sources were left out; else
    empty."""
    grid = own_steps_grid(report) if report.source_left_out else None
    return f"{section(grid)}\n{OWN_WORDS}" if grid and grid.rows else ""


GPU_WORDS = """\
Each type of GPU from its datasheet alone: no kernel and no step of any GPU with its chip is used. Kernels run
at the efficiencies of the nearest other chip, and at the clock that its steps have shown
(`calibration/cases/gpu_left_out.py`). Curves of collectives stay, which logs have given. Refused: attention
kernels that the other chip lacks.
"""


def unseen_gpus(report: Report) -> str:
    """Errors on GPUs as if nobody had measured them, where that was predicted; else empty."""
    if not report.gpu_left_out:
        return ""
    return f"{section(gpu_left_out_grid(report))}\n{GPU_WORDS}"


def cross_validation(report: Report) -> str:
    """Errors on families that the fit did not see, where its constants are given; else empty."""
    if report.halves is None:
        return ""
    fit = report.halves
    words = (
        f"Constants fitted on step times: {fit.fitted}, on {fit.cases} cases in {fit.families} families "
        "([step-fit.md](step-fit.md)). Left out: each half of the families predicted with the constants that "
        "the other half gives.\n"
    )
    return f"{section(held_out_grid(report))}\n{words}"
