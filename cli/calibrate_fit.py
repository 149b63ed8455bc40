"""``stepsim calibrate fit``: a profile of one's own from measurements of any kind."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption
from .output import clear_status, console, echo_json, output_file, save_text, say, status_line, wrote
from .refusals import refused_document, refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.fit.own.collectives import OwnCurve
    from ..calibration.fit.own.kernels import FittedKernels
    from ..calibration.readers.measured import Measured
    from ..calibration.readers.named_gpus import StatedGpu
    from ..calibration.validation.grids import Grid
    from ..hardware.files import Refusal

POOR = 0.5
"""A part whose p90 error is above this follows its measurements worse than the shipped curves follow most
published ones (docs/accuracy.md, docs/collectives.md): the command's answer is no."""
NO = 1

FilesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Tables (.csv), torch traces (.json, .json.gz), Nsight Systems (.sqlite), nccl-tests logs; "
        "archives of all but databases.",
    ),
]
OutOption = Annotated[Path, typer.Option("--out", metavar="FILE.yaml", help="The profile to write.")]
GpuOption = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        metavar="NAME|FILE.yaml",
        help="GPU of files that name none: of the catalogue, or a file that describes one.",
    ),
]
InterconnectOption = Annotated[
    str | None, typer.Option("--interconnect", metavar="NAME", help="Network of logs that name none.")
]
ReplicasOption = Annotated[
    int, typer.Option(min=0, max=100_000, help="Bootstraps for the intervals of kernel constants.")
]


def fit(
    files: FilesArgument,
    out: OutOption = Path("my.profile.yaml"),
    gpu: GpuOption = None,
    interconnect: InterconnectOption = None,
    replicas: ReplicasOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Fit a profile on measurements of one GPU, for the field calibration of a scenario.

    Kernels give efficiency curves, collectives a curve for each group that was measured. What the files do
    not show stays as shipped. A file that cannot be used is named and left out. Exit code 1: the profile is
    written, but a part of it misses a tenth of its own measurements by more than half.
    """
    output_file("--out", out, (".yaml", ".yml"), files)

    from ..calibration.fit.own.collectives import fit_collectives
    from ..calibration.fit.own.kernels import fit_kernels
    from ..calibration.fit.profile_file import profile_text
    from ..calibration.readers.measured import one_gpu
    from ..calibration.readers.read import read_measured
    from ..hardware.calibrated.read import read_profile_file

    stated = stated_gpu(gpu)
    measured, refused = read_measured(files, stated, interconnect)
    tell_refused(refused)
    name = one_gpu(measured)
    chip = name if isinstance(stated, str | None) else stated
    points = [point for one in measured for point in one.kernels]
    collectives = [point for one in measured for point in one.collectives]
    if not points and not collectives:
        raise ValueError(_nothing_to_fit(measured))
    if show := status_line():
        show(f"fitting {len(points)} kernels and {len(collectives)} collectives")
    kernels = fit_kernels(chip, points, replicas=replicas) if points else None
    source = ", ".join(Path(one.file).name for one in measured if one.collectives)
    curves, notes = fit_collectives(chip, collectives, source)
    clear_status()
    if not curves and (kernels is None or not kernels.fitted):
        raise ValueError(f"too little for a fit: {'; '.join([*notes, *(kernels.notes if kernels else ())])}")
    save_text(out, profile_text(name, _made(measured), kernels, curves))
    read_profile_file(out)  # what is written can be read
    poor = _show(name, measured, kernels, curves, notes, refused, as_json)
    wrote("profile", out)
    if poor:
        _tell_poor(poor)
        raise typer.Exit(NO)


def _nothing_to_fit(measured: Sequence[Measured]) -> str:
    """Why no file holds a kernel or a collective that can be fitted."""
    reasons = sorted({reason for one in measured for reason in one.passed_over})
    return f"nothing in these files can be fitted: {'; '.join(reasons) or 'they are empty'}"


def _tell_poor(parts: Sequence[str]) -> None:
    """Name on stderr the parts of a profile that miss their own measurements."""
    for part in parts:
        say(f"poor fit: {part}", err=True)
    typer.echo(
        "more than a tenth of these measurements is further than half from what the profile says: look "
        "for a group, shape or clock that differs among them before you use it",
        err=True,
    )


def stated_gpu(gpu: str | None) -> StatedGpu | None:
    """What ``--gpu`` states: a name of the catalogue, or the GPU that a file describes."""
    from ..hardware.calibrated.overlay import is_file
    from ..sim.scenario.machine_file import gpu_of_file

    return gpu_of_file(Path(gpu)) if gpu and is_file(gpu) else gpu


def _made(measured: Sequence[Measured]) -> dict[str, str]:
    """Where the profile comes from: this command, and what the files say of theirs."""
    facts: dict[str, list[str]] = {}
    for one in measured:
        for name, text in one.facts.items():
            if text not in facts.setdefault(name, []):
                facts[name].append(text)
    return made_here() | {name: "; ".join(texts) for name, texts in facts.items()}


def made_here() -> dict[str, str]:
    """What a profile of this machine is made by: this command, and the day."""
    from .. import __version__

    return {
        "by": f"stepsim {__version__}: {shlex.join(['stepsim', *sys.argv[1:]])}",
        "on": datetime.now(UTC).date().isoformat(),
    }


def _show(
    gpu: str,
    measured: Sequence[Measured],
    kernels: FittedKernels | None,
    curves: Sequence[OwnCurve],
    notes: Sequence[str],
    refused: Sequence[Refusal],
    as_json: bool,
) -> list[str]:
    """Print what was fitted; gives the parts that do not even follow their own measurements."""
    from ..calibration.validation.tables import print_grid

    parts = [*_kernel_parts(kernels), *_collective_parts(curves)]
    poor = [f"{part['part']}: p90 {100 * error:.0f} %" for part in parts if (error := _p90(part)) > POOR]
    notes = [*(kernels.notes if kernels else ()), *notes]
    passed: dict[str, int] = {}
    for one in measured:
        for reason, count in one.passed_over.items():
            passed[reason] = passed.get(reason, 0) + count
    if as_json:
        document = {"gpu": gpu, "fitted": parts, "notes": notes, "passed_over": passed, "poor": poor}
        echo_json(document | {"refused": refused_document(refused)})
        return poor
    print_grid(_grid(gpu, parts), console())
    if refused:
        print_grid(refused_files(refused), console())
    for note in notes:
        say(f"note: {note}")
    for reason, count in passed.items():
        say(f"passed over: {count} x {reason}")
    return poor


def _p90(part: dict[str, Any]) -> float:
    """The error of nine in ten: of measurements that the fit did not see, where there are some."""
    held_out, own = part["held_out_p90"], part["p90_residual"]
    return float(own or 0.0) if held_out is None else float(held_out)


def _kernel_parts(kernels: FittedKernels | None) -> list[dict[str, Any]]:
    if kernels is None:
        return []
    profile = kernels.profile
    records = {f"gemm {rate.dtype}": rate.provenance for rate in profile.gemm.rates}
    records |= {f"attention {curve.implementation}": curve.provenance for curve in profile.attention}
    memory = {part: profile.memory.provenance for part in kernels.fitted if part.startswith("memory")}
    return [_part(part, (records | memory)[part]) for part in kernels.fitted]


def _collective_parts(curves: Sequence[OwnCurve]) -> list[dict[str, Any]]:
    return [
        _part(f"{one.curve.kind}, {one.curve.ranks} ranks, {one.curve.domains} domains", one.curve.provenance)
        | {
            "latency_s": one.curve.alpha_s,
            "gamma_s": one.curve.gamma_s,
            "bytes_per_s": one.curve.bytes_per_s,
        }
        for one in curves
    ]


def _part(name: str, record: Any) -> dict[str, Any]:
    return {
        "part": name,
        "points": record.points,
        "median_residual": record.median_residual,
        "p90_residual": record.p90_residual,
        "held_out_median": record.held_out_median,
        "held_out_p90": record.held_out_p90,
    }


def _grid(gpu: str, parts: Sequence[dict[str, Any]]) -> Grid:
    from ..calibration.validation.grids import Grid
    from ..sim.figures import percent

    names = ("median_residual", "p90_residual", "held_out_median", "held_out_p90")
    rows = tuple(
        (
            str(part["part"]),
            str(part["points"]),
            *("-" if part[name] is None else percent(part[name]) for name in names),
        )
        for part in parts
    )
    columns = ("fitted", "points", "median", "p90", "held out", "held out p90")
    return Grid(title=f"Profile of {gpu}: residuals", columns=columns, rows=rows)
