"""``stepsim validate``: predictions beside measured runs and measured collectives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import CORES, JsonOption, ProcessesOption
from .output import (
    PICTURE_NAME,
    PICTURES,
    console,
    echo_json,
    output_file,
    save_picture,
    save_text,
    there,
    wrote,
)
from .progress import progress
from .refusals import refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.validation.run import Report

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of measured cases.")]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE.md", help="Write the report as a page.")
]
AppendOption = Annotated[
    list[Path],
    typer.Option("--append", metavar="FILE.md", help="With --markdown: put this page after the report."),
]
PictureOption = Annotated[
    Path | None,
    typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Draw predicted over measured times."),
]
HeldOutOption = Annotated[
    Path | None,
    typer.Option(
        "--held-out",
        metavar="FILE.json",
        help="Predict high trust also with constants that never saw its family (calibrate steps --save).",
    ),
]
NcclOption = Annotated[bool, typer.Option("--nccl", help="The files are logs of nccl-tests.")]
KernelsOption = Annotated[
    bool,
    typer.Option(
        "--kernels", help="The files are of measured kernels (kind: kernels), or tables of many (CSV)."
    ),
]
GpuOption = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="With --nccl: GPU of all the logs.")
]
InterconnectOption = Annotated[
    str | None,
    typer.Option("--interconnect", metavar="NAME", help="With --nccl: network of all the logs."),
]
LeaveOutOption = Annotated[
    bool,
    typer.Option(
        "--leave-out",
        help="With --nccl or --kernels: predict each log, or family of shapes, by a fit without it.",
    ),
]


def validate(
    files: FilesArgument,
    as_json: JsonOption = False,
    jobs: ProcessesOption = CORES,
    markdown: MarkdownOption = None,
    append: AppendOption = [],  # noqa: B006  typer wants a list; nobody changes it
    svg: PictureOption = None,
    held_out: HeldOutOption = None,
    nccl: NcclOption = False,
    kernels: KernelsOption = False,
    gpu: GpuOption = None,
    interconnect: InterconnectOption = None,
    leave_out: LeaveOutOption = False,
) -> None:
    """Predict measured cases and show the errors, by source and regime.

    Cases that the simulator cannot express are counted as refused, with the reason; a file that cannot be
    used is named and left out. Five layouts or more of one job are a sweep: how they are ranked, and what
    choosing among them by prediction would have lost. With --nccl, predict
    the time of every size in logs of nccl-tests; with --kernels, of every measured kernel. A file that names
    a run of another framework (run, given, measured) is predicted from that run's own files.
    """
    output_file("--markdown", markdown, (".md",), files)
    if append and not markdown:
        raise ValueError("--append needs --markdown: the page that it is put after")
    output_file("--picture", svg, PICTURES, files)
    _check_options(
        picture=svg,
        held_out=held_out,
        nccl=nccl,
        kernels=kernels,
        leave_out=leave_out,
        system=bool(gpu or interconnect),
    )
    there("--append", append)
    if kernels:
        _kernels(files, leave_out=leave_out, as_json=as_json, markdown=markdown)
        return
    if nccl:
        from .collective_logs import read_logs
        from .validate_collectives import validate_logs

        logs = read_logs(files, gpu, interconnect)
        validate_logs(logs, leave_out=leave_out, jobs=jobs, as_json=as_json, markdown=markdown)
        return

    from ..calibration.cases.own_run import is_run

    if any(own := [is_run(file) for file in files]):
        if not all(own):
            raise ValueError("some files are own runs (run or scenario, measured), and others are not")
        _own_runs(files, as_json)
        return
    report = _predicted(files, held_out, jobs)
    _write(report, markdown, append, svg)
    _tell(report, as_json=as_json)
    if markdown:
        wrote("page", markdown)
    if svg:
        wrote("picture", svg)


def _write(report: Report, markdown: Path | None, append: Sequence[Path], picture: Path | None) -> None:
    """The page of errors, with the pages of ``append`` behind it, and the picture, where asked for."""
    if markdown:
        from ..calibration.validation.judge.accuracy_page import accuracy_markdown
        from ..hardware.files import read_text

        pages = [read_text(page) for page in append]
        save_text(markdown, "\n".join((accuracy_markdown(report, picture=picture), *pages)))
    if picture:
        from ..calibration.validation.scatter import scatter_svg

        save_picture(picture, scatter_svg(report))


def _check_options(
    *, picture: Path | None, held_out: Path | None, nccl: bool, kernels: bool, leave_out: bool, system: bool
) -> None:
    """ValueError for options that do not go together; ``system``: the logs' GPU or network is said."""
    if nccl and kernels:
        raise ValueError("--nccl and --kernels: the files are of one kind; give one of both")
    if picture and nccl:
        raise ValueError("--picture draws step times; collective --log draws a collective")
    if picture and kernels:
        raise ValueError("--picture draws step times; stepsim calibrate report --points draws kernels")
    if leave_out and not (nccl or kernels):
        raise ValueError("--leave-out needs --nccl or --kernels: only measurements can be left out of a fit")
    if held_out and (nccl or kernels):
        raise ValueError("--held-out is of step times; give --leave-out with --nccl or --kernels")
    if system and not nccl:
        raise ValueError("--gpu and --interconnect are of logs of nccl-tests: give --nccl, too")


def _kernels(files: list[Path], *, leave_out: bool, as_json: bool, markdown: Path | None) -> None:
    """Measured kernels: tables of many, with points beside them, or points alone."""
    from ..calibration.readers.kernel_tables import is_kernel_table
    from .validate_kernels import validate_kernels
    from .validate_tables import validate_tables

    tables = [file for file in files if file.is_file() and is_kernel_table(file)]
    if tables:
        points = [file for file in files if file not in tables]
        validate_tables(tables, points, as_json=as_json, markdown=markdown)
    else:
        validate_kernels(files, leave_out=leave_out, as_json=as_json, markdown=markdown)


def _predicted(files: list[Path], held_out: Path | None, jobs: int) -> Report:
    """All cases of ``files`` beside their predictions; what was refused is told."""
    from ..calibration.cases.halves import read_halves
    from ..calibration.validation.run import validate as predict_all

    halves = read_halves(held_out) if held_out else None
    with progress() as status:
        report = predict_all(
            files, jobs=jobs, halves=halves, progress=lambda done, all_: status(f"{done} of {all_} cases")
        )
    tell_refused(report.refused)
    return report


def _tell(report: Report, *, as_json: bool) -> None:
    """What all cases say together, and each sweep by itself."""
    from ..calibration.validation.judge.choices import sweeps_as_planned
    from ..calibration.validation.judge.each_sweep import (
        EACH,
        each_sweep_grid,
        judged_sweeps,
        sweeps_document,
    )

    sweeps = judged_sweeps(sweeps_as_planned(report.rows))
    if as_json:
        from ..calibration.validation.document import report_document

        echo_json(report_document(report) | {"sweeps": sweeps_document(sweeps)})
        return
    from ..calibration.validation.judge.targets import targets, targets_grid
    from ..calibration.validation.tables import print_grid, print_report

    print_report(report, console())
    if measured := [one for one in targets(report) if one.holds is not None]:  # most are of other sources
        print_grid(targets_grid(measured, strong=""), console())
    if sweeps:
        print_grid(each_sweep_grid(sweeps), console())
        console().print(" ".join(EACH.split()), style="dim")
    if report.refused:
        print_grid(refused_files(report.refused), console())


def _own_runs(files: list[Path], as_json: bool) -> None:
    """Users' own runs, from the files of the framework that ran them."""
    from ..calibration.validation.own_runs import judge_run, runs_grid

    judged = [judge_run(file) for file in files]
    if as_json:
        echo_json(
            {
                "runs": [
                    {
                        "file": one.file,
                        "measured_step_time_s": one.measured.step_time_s,
                        "step_time_s": one.step_time_s,
                        "error": one.time_error,
                        "measured_memory_bytes": one.measured.memory_bytes,
                        "memory_bytes": one.memory_bytes,
                        "memory_error": one.memory_error,
                    }
                    for one in judged
                ]
            }
        )
        return
    from ..calibration.validation.tables import print_grid

    print_grid(runs_grid(judged), console())
