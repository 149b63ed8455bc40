"""``stepsim validate --nccl``: predicted collectives beside logs of nccl-tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .collective_logs import Logs, observed, of_tables
from .output import clear_status, console, echo_json, save_text, status_line, wrote
from .refusals import refused_document, refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.validation.collectives import CollectiveCase, CollectiveRow


def validate_logs(logs: Logs, *, leave_out: bool, jobs: int, as_json: bool, markdown: Path | None) -> None:
    """Print rows and summary of all logs; the page has both ways of predicting where both were asked for."""
    from ..calibration.validation.collective_grids import collectives_markdown, log_grid
    from ..calibration.validation.collectives import collectives_document, compare
    from ..calibration.validation.tables import print_grid

    cases, unstated = logs.cases, logs.unstated
    tell_refused(logs.refused)
    shipped, one_host = compare(cases), _by_gpu(logs.tables)
    held_out = _without_each(cases, unstated, jobs) if leave_out else None
    clear_status()
    rows = shipped + one_host if held_out is None else held_out
    if markdown:
        save_text(markdown, collectives_markdown(shipped, held_out, unstated, one_host))
    if as_json:
        echo_json(collectives_document(rows) | {"refused": refused_document(logs.refused)})
    else:
        print_grid(
            log_grid(rows, "Errors by log" + (", each left out of the fit" if leave_out else "")), console()
        )
        if logs.refused:
            print_grid(refused_files(logs.refused), console())
    if markdown:
        wrote("page", markdown)


def _by_gpu(tables: Sequence[CollectiveCase]) -> tuple[CollectiveRow, ...]:
    """Rows of what fits do not see of tables, under the names of their GPUs and collectives."""
    from dataclasses import replace

    from ..calibration.validation.collectives import compare

    hidden = [case for case in of_tables(tables, hidden=True) if case.points]
    names = {case.log: f"{case.cluster.gpu.name}, {case.kind}" for case in hidden}
    rows = [replace(row, log=names[row.log]) for row in compare(hidden)]
    return tuple(sorted(rows, key=lambda row: row.log))


def _without_each(
    cases: Sequence[CollectiveCase], unstated: Sequence[str], jobs: int
) -> tuple[CollectiveRow, ...]:
    """Rows of each case by a fit on all others; no fit learns from those with unstated settings."""
    from ..calibration.fit.collective_constants import constants_of, fits_without
    from ..calibration.validation.collectives import compare, predicted_s
    from ..hardware.collectives import collectives_document

    if len(cases) < 2:
        raise ValueError("--leave-out needs two logs or more: a fit without the only one knows nothing")
    if show := status_line():
        show(f"fitting {len(cases)} times, each without one log")
    document, learnt = collectives_document(), observed(cases, unstated)
    names = [case.log for case in cases]
    fits = fits_without(learnt, predicted_s, document, names=names, jobs=jobs)
    return compare(cases, lambda case: constants_of(fits[case.log], document))
