"""``stepsim calibrate residuals``: what intervals read, from measurements that fits did not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .collective_logs import observed, read_logs
from .options import CORES, JsonOption, MeasuredCasesArgument, ProcessesOption
from .output import echo_json, wrote
from .progress import progress
from .refusals import tell_refused

if TYPE_CHECKING:
    from ..calibration.cases.case import Case
    from ..calibration.fit.layout_spread import SweepRow
    from ..calibration.validation.run import Report
    from ..hardware.deviations import Deviation
    from ..sim.evidence.measured_layouts import MeasuredLayouts
    from ..sim.evidence.measured_memory import MeasuredMemory
    from ..sim.evidence.measured_steps import MeasuredSteps

PACKAGE = Path(__file__).parents[1]
DEVIATIONS = PACKAGE / "hardware" / "deviations.yaml"
EVIDENCE = PACKAGE / "sim" / "evidence"
STEPS = EVIDENCE / "measured_steps.yaml"
MEMORY = EVIDENCE / "measured_memory.yaml"
LAYOUTS = EVIDENCE / "measured_layouts.yaml"


def residuals(
    files: MeasuredCasesArgument = None,
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
            help="Predict each source with constants that never saw it (calibrate steps --save).",
        ),
    ] = None,
    jobs: ProcessesOption = CORES,
    as_json: JsonOption = False,
    write: Annotated[bool, typer.Option("--write", help="Write them into the files shipped here.")] = False,
) -> None:
    """Learn from regions left out of fits how far predictions may be off, and how that grows with distance.

    Kernels and logs give hardware/deviations.yaml; cases, which read it, what steps, memory and layouts are
    off by (sim/evidence/measured_*.yaml).
    What no file is given for stays as it is shipped. With --write, give cases in a second call: they are
    predicted with the residuals as they were when it began.
    """
    if not (files or kernels or logs):
        raise ValueError("give files of measured cases, --kernels FILE or --log FILE: nothing to learn from")
    if held_out and not files:
        raise ValueError("--held-out is of measured cases: give their files")
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
        learnt = _of_cases(files, held_out, jobs, show) if files else None
    document = _changed(found, reach)
    if write:
        _write(document if found else None, learnt)
    if as_json:
        told = asdict(learnt) if learnt else {"steps": None, "memory": None, "layouts": None}
        echo_json({"residuals": document if found else None, **told})
    else:
        _print(found, learnt)


@dataclass(frozen=True, kw_only=True)
class OfCases:
    """What measured runs say of step times, of memory, and of layouts beside each other."""

    steps: MeasuredSteps
    memory: MeasuredMemory | None
    layouts: MeasuredLayouts | None


def _write(document: Mapping[str, Any] | None, learnt: OfCases | None) -> None:
    from ..calibration.fit.layout_spread import layouts_text
    from ..calibration.fit.memory_spread import memory_text
    from ..calibration.fit.steps.interval_terms import steps_text
    from ..calibration.validation.regions.deviations_file import deviations_text
    from ..hardware.files import write_text

    texts: dict[Path, tuple[str, str]] = {}
    if document:
        texts[DEVIATIONS] = "residuals", deviations_text(document)
    if learnt:
        texts[STEPS] = "residuals of steps", steps_text(learnt.steps)
        if learnt.memory:
            texts[MEMORY] = "residuals of memory", memory_text(learnt.memory)
        if learnt.layouts:
            texts[LAYOUTS] = "residuals of layouts", layouts_text(learnt.layouts)
    for path, (what, text) in texts.items():
        write_text(path, text, edits=True)
        wrote(what, path)


def _of_kernels(files: Sequence[Path]) -> dict[str, Deviation]:
    from ..calibration.readers.measurements import read_measurements
    from ..calibration.validation.regions.kernel_regions import kernel_growth

    return kernel_growth(read_measurements(files))


def _of_logs(files: Sequence[Path]) -> tuple[dict[str, Deviation], dict[str, Any]]:
    from ..calibration.validation.collectives import predicted_s
    from ..calibration.validation.regions.collective_regions import collective_deviations, measured_range
    from ..hardware.collectives import collectives_document

    logs = read_logs(files)
    tell_refused(logs.refused)
    learnt = observed(logs.cases, logs.unstated)
    return collective_deviations(learnt, predicted_s, collectives_document()), measured_range(learnt)


def _of_cases(
    files: Sequence[Path], held_out: Path | None, jobs: int, show: Callable[[str], None]
) -> OfCases:
    from ..calibration.cases.halves import read_halves
    from ..calibration.fit.layout_spread import fit_layout_spread
    from ..calibration.fit.memory_spread import fit_memory_spread
    from ..calibration.fit.steps.interval_terms import fit_interval_terms
    from ..calibration.fit.steps.source_terms import fit_source_spread
    from ..calibration.fit.steps.unread_spread import fit_unread
    from ..calibration.validation.judge.fit_probabilities import memory_rows
    from ..calibration.validation.judge.own_steps import source_rows
    from ..calibration.validation.judge.source_left_out import step_rows
    from ..calibration.validation.run import validate
    from ..calibration.validation.unread import predicted_unread, unread_moves, unread_rows

    halves = read_halves(held_out) if held_out else None
    report = validate(
        files,
        jobs=jobs,
        halves=halves,
        wanted=_tells,
        progress=lambda done, all_: show(f"{done} of {all_} cases"),
    )
    tell_refused(report.refused)
    steps = fit_interval_terms(step_rows(report))
    show("predicting runs as if nobody had read their trainers")
    predicted = predicted_unread(report, jobs=jobs)
    steps = replace(steps, unread=fit_unread(unread_moves(predicted)) or steps.unread)
    apart = source_rows(report, steps)
    if len({row.source for row in apart}) > 1:
        show("fitting how sources differ")
        steps = replace(steps, sources=fit_source_spread(apart, unread_rows(predicted, apart)))
    of_memory, sweeps = [row for _, row in memory_rows(report.rows)], sweep_rows(report, steps)
    return OfCases(
        steps=steps,
        memory=fit_memory_spread(of_memory)
        if any(r.error is not None or not r.ran for r in of_memory)
        else None,
        layouts=fit_layout_spread(sweeps) if sweeps else None,
    )


def _tells(case: Case) -> bool:
    """Whether one can learn from it; of low trust, fields are guessed or the run is doubtful."""
    return case.trust != "low"


def sweep_rows(report: Report, steps: MeasuredSteps) -> list[SweepRow]:
    """Measured steps of jobs that ran in several layouts."""
    from math import log

    from ..calibration.cases.sweep import job_of, layout_fields
    from ..calibration.fit.layout_spread import SweepRow
    from ..sim.evidence.interval import interval_of

    found: dict[str, list[SweepRow]] = {}
    for row in report.rows:
        prediction, measured_s = row.prediction, row.case.measured.step_time_s
        if prediction.doubt is None or prediction.step_time_s is None or measured_s is None:
            continue
        job = job_of(row.case)
        one = SweepRow(
            sweep=job,
            layout=layout_fields(row.case),
            predicted_s=prediction.step_time_s,
            error=log(measured_s / prediction.step_time_s),
            parts=interval_of(prediction.step_time_s, prediction.doubt, steps).parts,
        )
        found.setdefault(job, []).append(one)
    return [one for members in found.values() if len(members) > 1 for one in members]


def _changed(found: Mapping[str, Deviation], reach: Mapping[str, Any] | None) -> dict[str, Any]:
    """The shipped document with what was found in it."""
    from ..hardware.deviations import deviations_document

    shipped = deviations_document()
    sigmas = {**shipped["sigmas"], **{name: _entry(one) for name, one in found.items()}}
    return {"sigmas": sigmas, "collectives": dict(reach or shipped["collectives"])}


def _entry(one: Deviation) -> dict[str, Any]:
    return {"sigma": float(f"{one.sigma:.3g}"), "source": one.source}


def _print(found: Mapping[str, Deviation], learnt: OfCases | None) -> None:
    for name, one in found.items():
        typer.echo(f"{name:32} {one.sigma:6.3f}  {one.source}")
    if learnt is None:
        return
    steps = learnt.steps
    for kind, weight in steps.weights.items():
        typer.echo(f"{'weight of ' + kind:32} {weight:6.3f}")
    for name, one in steps.terms.items():
        typer.echo(f"{name:32} {one.sigma:6.3f}  {one.source}")
    for kin, one in steps.unread.items():
        typer.echo(f"{'unread, ' + kin:32} {one.sigma:6.3f}  {one.source}")
    for name, value in asdict(steps.sources).items():
        typer.echo(f"{'sources, ' + name:32} {value:6.3f}")
    typer.echo(f"{'standard deviations below':32} {steps.quantile_below:6.3f}")
    typer.echo(f"{'standard deviations above':32} {steps.quantile:6.3f}  hold nine in ten")
    for name, share in steps.left_out.items():
        typer.echo(f"{name + ', sources left out':32} {share:6.1%}  held")
    if learnt.memory:
        for name, spread in (*learnt.memory.frameworks.items(), ("others", learnt.memory.other)):
            told = f"{spread.shift:+6.3f} {spread.spread:6.3f} margin {spread.margin:.3f}"
            typer.echo(f"{'memory, ' + name:32} {told}  {spread.source}")
    if learnt.layouts:
        typer.echo(f"{'a field of a layout':32} {learnt.layouts.field_sigma:6.3f}  {learnt.layouts.source}")
