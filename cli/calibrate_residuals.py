"""``stepsim calibrate residuals``: what intervals read, from measurements that fits did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .collective_logs import keep_blas_to_one_thread, observed, read_cases
from .output import echo_json, wrote
from .progress import progress
from .refusals import tell_refused
from .validate import CORES
from .views import JsonOption

if TYPE_CHECKING:
    from ..calibration.cases.case import Case
    from ..calibration.fit.steps.interval_terms import StepRow
    from ..calibration.validation.run import Report
    from ..hardware.deviations import Deviation
    from ..sim.evidence.measured_steps import MeasuredSteps

PACKAGE = Path(__file__).parents[1]
DEVIATIONS = PACKAGE / "hardware" / "deviations.yaml"
STEPS = PACKAGE / "sim" / "evidence" / "measured_steps.yaml"


def residuals(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[CASES.yaml...]", help="Files of measured cases.")
    ] = None,
    kernels: Annotated[
        list[Path] | None,
        typer.Option("--kernels", metavar="FILE", help="Measured kernels (kind: kernels). Repeatable."),
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--log", metavar="FILE", help="A log of nccl-tests. Repeatable.")
    ] = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="FILE.json",
            help="Predict high trust with constants that never saw its family (calibrate steps --save).",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.", show_default="one a core")] = CORES,
    as_json: JsonOption = False,
    write: Annotated[bool, typer.Option("--write", help="Write them into the files shipped here.")] = False,
) -> None:
    """Learn from regions left out of fits how far predictions may be off, and how that grows with distance.

    Kernels and logs give hardware/deviations.yaml; cases, which read it, sim/evidence/measured_steps.yaml.
    What no file is given for stays as it is shipped. With --write, give cases in a second call: they are
    predicted with the residuals as they were when it began.
    """
    if not (files or kernels or logs):
        raise ValueError("give files of measured cases, --kernels FILE or --log FILE: nothing to learn from")
    if held_out and not files:
        raise ValueError("--held-out is of measured cases: give their files")
    keep_blas_to_one_thread()
    found: dict[str, Deviation] = {}
    reach: Mapping[str, Any] | None = None
    with progress() as show:
        if kernels:
            show("fitting kernels without each region")
            found |= _of_kernels(kernels)
        if logs:
            show("fitting collectives without each region")
            of_logs, reach = _of_logs(logs)
            found |= of_logs
        steps = _of_cases(files, held_out, jobs, show) if files else None
    document = _changed(found, reach)
    if write:
        from ..calibration.fit.steps.interval_terms import steps_text
        from ..calibration.validation.regions.deviations_file import deviations_text
        from ..hardware.files import write_text

        if found:
            write_text(DEVIATIONS, deviations_text(document), edits=True)
            wrote("residuals", DEVIATIONS)
        if steps:
            write_text(STEPS, steps_text(steps), edits=True)
            wrote("residuals of steps", STEPS)
    if as_json:
        echo_json({"residuals": document if found else None, "steps": asdict(steps) if steps else None})
    else:
        _print(found, steps)


def _of_kernels(files: Sequence[Path]) -> dict[str, Deviation]:
    from ..calibration.readers.measurements import read_measurements
    from ..calibration.validation.regions.kernel_regions import kernel_growth

    return kernel_growth(read_measurements(files))


def _of_logs(files: Sequence[Path]) -> tuple[dict[str, Deviation], dict[str, Any]]:
    from ..calibration.validation.collectives import predicted_s
    from ..calibration.validation.regions.collective_regions import collective_deviations, measured_range
    from ..hardware.collectives import collectives_document

    logs = read_cases(files)
    tell_refused(logs.refused)
    learnt = observed(logs.cases, logs.unstated)
    return collective_deviations(learnt, predicted_s, collectives_document()), measured_range(learnt)


def _of_cases(
    files: Sequence[Path], held_out: Path | None, jobs: int, show: Callable[[str], None]
) -> MeasuredSteps:
    from ..calibration.cases.halves import read_halves
    from ..calibration.fit.steps.interval_terms import fit_interval_terms
    from ..calibration.validation.run import validate

    halves = read_halves(held_out) if held_out else None
    report = validate(
        files,
        jobs=jobs,
        halves=halves,
        wanted=_is_measured,
        progress=lambda done, all_: show(f"{done} of {all_} cases"),
    )
    tell_refused(report.refused)
    return fit_interval_terms(step_rows(report))


def _is_measured(case: Case) -> bool:
    """Whether an interval can learn from it; of low trust, fields are guessed or the run is doubtful."""
    return case.trust != "low" and case.measured.step_time_s is not None


def step_rows(report: Report) -> list[StepRow]:
    """Measured steps of high and medium trust; those of high trust predicted by the other half's constants
    where these are given, since the shipped ones were fitted on them."""
    from math import log

    from ..calibration.fit.steps.interval_terms import StepRow
    from ..sim.evidence.measured_steps import is_outside, spanning

    high = [row for row in report.rows if row.case.trust == "high" and row.prediction.doubt]
    families = tuple(spanning(row.prediction.doubt.regime for row in high if row.prediction.doubt))
    found = []
    for row in report.rows:
        prediction, measured_s = row.prediction, row.case.measured.step_time_s
        if prediction.doubt is None or measured_s is None:
            continue
        predicted_s = report.held_out.get(row.case.id, prediction.step_time_s)
        assert predicted_s is not None
        found.append(
            StepRow(
                family=row.case.family,
                source=row.source,
                error=log(measured_s / predicted_s),
                doubt=prediction.doubt,
                fitted=row.case.trust == "high",
                outside=is_outside(prediction.doubt, families),
            )
        )
    return found


def _changed(found: Mapping[str, Deviation], reach: Mapping[str, Any] | None) -> dict[str, Any]:
    """The shipped document with what was found in it."""
    from ..hardware.deviations import deviations_document

    shipped = deviations_document()
    sigmas = {**shipped["sigmas"], **{name: _entry(one) for name, one in found.items()}}
    return {"sigmas": sigmas, "collectives": dict(reach or shipped["collectives"])}


def _entry(one: Deviation) -> dict[str, Any]:
    return {"sigma": float(f"{one.sigma:.3g}"), "source": one.source}


def _print(found: Mapping[str, Deviation], steps: MeasuredSteps | None) -> None:
    for name, one in found.items():
        typer.echo(f"{name:32} {one.sigma:6.3f}  {one.source}")
    if steps is None:
        return
    for kind, weight in steps.weights.items():
        typer.echo(f"{'weight of ' + kind:32} {weight:6.3f}")
    for name, one in steps.terms.items():
        typer.echo(f"{name:32} {one.sigma:6.3f}  {one.source}")
    typer.echo(f"{'standard deviations':32} {steps.quantile:6.3f}  hold nine in ten")
    for name, share in steps.left_out.items():
        typer.echo(f"{name + ', sources left out':32} {share:6.1%}  held")
