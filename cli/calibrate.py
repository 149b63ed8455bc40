"""``stepsim calibrate``: constants from measurements. Its commands, and the fit on step times of ``steps``,
whose constants it writes into the profiles and presets that ship."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .calibrate_collectives import collectives
from .calibrate_fit import fit
from .calibrate_kernels import kernels
from .calibrate_layer import layer
from .calibrate_own import own_steps
from .calibrate_report import report
from .calibrate_residuals import residuals
from .mistakes import reported
from .options import CORES, JsonOption, MeasuredCasesArgument, ProcessesOption
from .output import clear_status, echo_json, output_file, save_text, say, status_line, wrote

if TYPE_CHECKING:
    from ..calibration.fit.steps.report import StepFit

PACKAGE = Path(__file__).parents[1]
PROFILES = PACKAGE / "hardware" / "profiles"
PRESETS = PACKAGE / "sim" / "scenario" / "software" / "presets.yaml"

calibrate = typer.Typer(
    help="Measure, and fit constants to measurements.", no_args_is_help=True, rich_markup_mode=None
)

OwnOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--own", metavar="RUN.yaml", help="A run of your own and what a step of it took. Repeatable."
    ),
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="FILE.yaml", help="With --own: the profile to write.")
]
GpuOption = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="NAME", help="Fit this GPU's constants only.")
]
SoftwareOption = Annotated[
    list[str] | None, typer.Option("--software", metavar="NAME", help="Fit this preset's constants only.")
]
MarkdownOption = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE.md", help="Write the fit as a page.")
]
NearOption = Annotated[
    bool, typer.Option("--near", help="Search from the shipped constants only: a tenth of the time.")
]
SaveOption = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE.json", help="Keep both halves' constants, for validate --held-out."),
]
WriteOption = Annotated[
    bool, typer.Option("--write", help="Write the constants into the profiles and presets shipped here.")
]


def steps(
    files: MeasuredCasesArgument = None,
    own: OwnOption = None,
    out: OutOption = Path("steps.profile.yaml"),
    gpu: GpuOption = None,
    software: SoftwareOption = None,
    jobs: ProcessesOption = CORES,
    as_json: JsonOption = False,
    markdown: MarkdownOption = None,
    near: NearOption = False,
    save: SaveOption = None,
    write: WriteOption = False,
) -> None:
    """Fit the constants that only step times show: of GPUs and of software presets, never of a run.

    With --gpu or --software, given any number of times, all other constants stay as they are shipped.
    With --own, nothing shipped changes: a few steps of your own give a profile for the field calibration of a
    scenario, by which predictions of your other jobs move and are surer.
    """
    if own:
        others = (files, gpu, software, markdown, near, save, write)
        if any(others):
            raise ValueError("--own takes runs of your own alone: leave out CASES, and all options but --out")
        own_steps(own, out, as_json)
        return
    if not files:
        raise ValueError("give files of measured cases, or a run of your own with --own RUN.yaml")
    output_file("--markdown", markdown, (".md",), files)
    output_file("--save", save, (".json",), files)

    from ..calibration.fit.steps.report import fit_steps
    from ..hardware.gpus import get_gpu
    from ..sim.scenario.software import get_software

    gpus = [get_gpu(name).name for name in gpu or ()]
    presets = [get_software(name).name for name in software or ()]
    fit = fit_steps(files, gpus=gpus, presets=presets, jobs=jobs, near=near, say=status_line() or _to_stderr)
    clear_status()
    _save_fit(fit, markdown, save)
    if write:
        write_constants(fit, PROFILES, PRESETS)
    _tell_fit(fit, as_json)
    if markdown:
        wrote("page", markdown)
    if save:
        wrote("constants of both halves", save)


def _save_fit(fit: StepFit, markdown: Path | None, save: Path | None) -> None:
    """Write the page of a fit, and the constants of both halves of the cases, where a file is named."""
    if markdown:
        from ..calibration.fit.steps.page import fit_markdown

        save_text(markdown, fit_markdown(fit))
    if save:
        from ..calibration.cases.halves import write_halves

        write_halves(save, fit.saved)


def _tell_fit(fit: StepFit, as_json: bool) -> None:
    """Print the fit, as a document or as text."""
    if as_json:
        from ..calibration.fit.steps.files import fit_document

        echo_json(fit_document(fit))
    else:
        from ..calibration.fit.steps.page import fit_text

        say(fit_text(fit))


calibrate.command("steps")(reported(steps))
calibrate.command("collectives")(reported(collectives))
calibrate.command("fit")(reported(fit))
calibrate.command("report")(reported(report))
calibrate.command("residuals")(reported(residuals))
calibrate.command("kernels")(reported(kernels))
calibrate.command("layer")(reported(layer))


@calibrate.callback()
def _calibrate() -> None:
    """Measure, and fit constants to measurements."""


def write_constants(fit: StepFit, profiles: Path, presets: Path) -> None:
    """Write what was fitted into the folder of profiles and the file of presets."""
    from ..calibration.fit.profile_file import write_profile
    from ..calibration.fit.steps.files import edited_presets, gpu_provenance
    from ..hardware.calibrated.overlay import load_profile
    from ..hardware.files import read_text

    edited = edited_presets(read_text(presets), fit)  # a mistake here shall leave the profiles as they are
    for gpu in fit.gpus:
        constants = fit.constants.gpus[gpu.name]
        profile = replace(
            load_profile(gpu.name),
            clock_fraction=constants.clock_fraction,
            corun_slowdown=constants.corun_slowdown,
            step_time_fit=gpu_provenance(gpu.coverage),
            clock_from_steps=True,
            step_time_residual=gpu.coverage.held_out,
        )
        write_profile(profile, profiles)
        wrote("profile", profiles / f"{gpu.name}.yaml")
    save_text(presets, edited, edits=True)
    wrote("presets", presets)


def _to_stderr(text: str) -> None:
    say(text, err=True)
