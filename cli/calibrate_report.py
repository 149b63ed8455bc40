"""``stepsim calibrate report``: what a profile rests on, and what of a scenario it does not cover."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import JsonOption, refuse_where
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, say, wrote
from .refusals import refused_document, refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.readers.measured import Measured
    from ..calibration.readers.named_gpus import StatedGpu
    from ..calibration.validation.grids import Grid
    from ..hardware.profile import GpuProfile
    from ..sim.evidence.coverage import Coverage

_TOOLS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
    "broadcast": "broadcast_perf",
    "sendrecv": "sendrecv_perf",
}

ProfileArgument = Annotated[
    str, typer.Argument(metavar="PROFILE", help="A profile file, or the name of a shipped profile.")
]
ScenarioArgument = Annotated[
    str | None, typer.Argument(metavar="SCENARIO", help="Whose operations to look for in it.")
]
PointsOption = Annotated[
    list[Path] | None,
    typer.Option("--points", metavar="FILE", help="Measurements to draw it against. Repeatable."),
]
GpuFileOption = Annotated[
    Path | None,
    typer.Option("--gpu", metavar="FILE.yaml", help="What describes the profile's GPU, of no catalogue."),
]
SvgOption = Annotated[
    Path | None,
    typer.Option("--picture", "--svg", metavar=PICTURE_NAME, help="Write the picture of fit and points."),
]


def report(
    profile: ProfileArgument,
    scenario: ScenarioArgument = None,
    points: PointsOption = None,
    gpu_file: GpuFileOption = None,
    svg: SvgOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a profile against measurements, what of a scenario it does not cover, and how to measure that.

    With --points, residuals of every part, and with --picture their picture.
    """
    output_file("--picture", svg, PICTURES, [*(points or ()), profile])

    from ..calibration.readers.measured import one_gpu
    from ..calibration.readers.read import read_measured
    from ..hardware.calibrated.models import CPU

    gpu = _gpu_of(profile)
    chip = _described(profile, gpu, gpu_file) if points or svg else gpu
    measured, refused = read_measured(points, None if gpu == CPU else chip) if points else ((), ())
    tell_refused(refused)
    measured_gpu = one_gpu(measured) if measured else gpu
    wrong = {
        f"is of {gpu}, but the points are of {measured_gpu}": measured_gpu != gpu,
        "is of processes without a GPU; no scenario runs there": gpu == CPU and scenario,
        "give a SCENARIO to look for in it, or measurements beside it with --points": not (
            scenario or points or svg
        ),
    }
    refuse_where({f"{profile}: {text}": holds for text, holds in wrong.items()})
    residuals = list(_residuals(profile, chip, measured))
    if svg:
        save_picture(svg, _picture(profile, chip, measured))
    found = _coverage(profile, scenario) if scenario else ()
    outside = [one for one in found if one.outside]
    commands = _commands(outside, scenario or "")
    if as_json:
        echo_json(
            {
                "gpu": gpu,
                "residuals": residuals,
                "inside": len(found) - len(outside),
                "outside": [asdict(one) for one in outside],
                "commands": commands,
                "refused": refused_document(refused),
            }
        )
    else:
        _print(residuals, found, outside, commands, refused_files(refused))
    if svg:
        wrote("picture", svg)


def _gpu_of(profile: str) -> str:
    from ..hardware.calibrated.overlay import is_file, load_profile, short_names
    from ..hardware.calibrated.read import read_profile_file
    from ..hardware.catalogue import UnknownName

    if is_file(profile):
        return read_profile_file(Path(profile)).gpu
    name = short_names().get(profile.lower(), profile)
    try:
        return load_profile(name).gpu
    except UnknownName:
        return load_profile(_key_of(name)).gpu


def _described(profile: str, gpu: str, file: Path | None) -> StatedGpu:
    """The GPU of the profile, itself where ``file`` describes it."""
    from ..hardware.calibrated.models import CPU
    from ..hardware.gpus import gpu_names
    from ..sim.scenario.machine_file import gpu_of_file

    if file is not None:
        chip = gpu_of_file(file)
        if chip.name != gpu:
            raise ValueError(f"{file}: describes {chip.name}, but {profile} is of {gpu}")
        return chip
    if gpu != CPU and gpu not in gpu_names():
        raise ValueError(f"{profile}: is of {gpu}, which no catalogue has: give what describes it with --gpu")
    return gpu


def _key_of(name: str) -> str:
    """The catalogue's key of a GPU that is called ``name``; the name where it means none or several."""
    from ..hardware.gpus import gpu_called

    try:
        return gpu_called(name)
    except ValueError:
        return name


def _as_measured(profile: str, gpu: StatedGpu) -> GpuProfile:
    """The profile at the clock of its measurements."""
    from dataclasses import replace

    from ..hardware.calibrated.overlay import calibrated_profile, is_file

    whole = calibrated_profile(gpu, [profile])
    clock = 1.0 if is_file(profile) else whole.measured_clock_fraction
    return replace(whole, clock_fraction=clock)


def _kernel_points(
    profile: str, gpu: StatedGpu, measured: Sequence[Measured]
) -> dict[str, list[tuple[float, float]]]:
    """(measured, predicted) seconds of every kernel, by operation."""
    from dataclasses import replace

    from ..calibration.fit.curve_fit import predicted_seconds
    from ..calibration.readers.named_gpus import chip_of

    found: dict[str, list[tuple[float, float]]] = {}
    kernels = [point for one in measured for point in one.kernels]
    if kernels:
        own = _as_measured(profile, gpu)
        # A memory-bound kernel is priced by the pointwise rate; a copy is held against the stream's.
        memory = replace(own.memory, pointwise_efficiency=own.memory.stream_efficiency)
        copies = replace(own, memory=memory)
        for point in kernels:
            by = copies if point.operation == "stream" else own
            seconds = predicted_seconds(point, chip_of(gpu), by)
            found.setdefault(point.operation, []).append((point.seconds, seconds))
    return found


def _curves(profile: str) -> tuple[Any, ...]:
    from ..hardware.calibrated.overlay import collective_curves, is_file
    from ..hardware.calibrated.read import read_profile_file

    return collective_curves(read_profile_file(Path(profile))) if is_file(profile) else ()


def _sizes_of(curve: Any, measured: Sequence[Measured]) -> list[tuple[float, float]]:
    return [
        (point.bytes, point.seconds)
        for one in measured
        for point in one.collectives
        if (point.kind, point.ranks, point.domains) == (curve.kind, curve.ranks, curve.domains)
    ]


def _residuals(profile: str, gpu: StatedGpu, measured: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    import numpy as np

    def row(name: str, pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
        errors = np.array([predicted / seconds - 1 for seconds, predicted in pairs])
        return {
            "part": name,
            "points": len(pairs),
            "median": float(np.median(np.abs(errors))),
            "p90": float(np.quantile(np.abs(errors), 0.9)),
            "signed_median": float(np.median(errors)),
        }

    for name, pairs in _kernel_points(profile, gpu, measured).items():
        yield row(name, pairs)
    for curve in _curves(profile):
        if sizes := _sizes_of(curve, measured):
            pairs = [(seconds, curve.solo_s(size)) for size, seconds in sizes]
            yield row(f"{curve.kind}, {curve.ranks} ranks, {curve.domains} domains", pairs)


def _picture(profile: str, gpu: StatedGpu, measured: Sequence[Measured]) -> str:
    from ..calibration.readers.named_gpus import name_of
    from ..calibration.validation.calibration_picture import CurvePoints, calibration_svg

    curves = [
        CurvePoints(name=f"{one.kind} of {one.ranks}", seconds=one.solo_s, points=_sizes_of(one, measured))
        for one in _curves(profile)
    ]
    return calibration_svg(f"{profile}: {name_of(gpu)}", _kernel_points(profile, gpu, measured), curves)


def _coverage(profile: str, scenario: str) -> tuple[Coverage, ...]:
    from ..hardware.calibrated.overlay import calibrated_profile
    from ..sim.evidence.coverage import coverage
    from ..sim.lowering.lower import lower
    from ..sim.scenario.load import load_scenario
    from ..sim.scenario.machine import gpu_of
    from ..sim.simulate import build_cluster

    loaded = load_scenario(scenario)
    own = calibrated_profile(gpu_of(loaded.cluster), [profile])
    return coverage(lower(loaded, build_cluster(loaded), profile=own).plan)


def _commands(outside: Sequence[Coverage], scenario: str) -> list[str]:
    """What to run for the operations outside: nothing that is inside is measured again."""
    commands = []
    if families := sorted({one.kind for one in outside if one.kind in ("gemm", "attention", "memory")}):
        only = " ".join(f"--only {family}" for family in families)
        commands.append(f"stepsim calibrate kernels {only} --out kernels.csv")
    groups: dict[str, float] = {}
    for one in outside:
        if one.kind in _TOOLS:
            groups[one.kind] = max(groups.get(one.kind, 0.0), one.bytes)
    if groups:
        kinds = " ".join(f"--kind {kind}" for kind in sorted(groups))
        largest = f"{max(groups.values()):.0f} B"
        commands.append(
            f"torchrun --nnodes HOSTS --nproc-per-node GPUS -m stepsim.cli.main calibrate collectives "
            f"{kinds} --scenario {scenario} --largest '{largest}' --out collectives.csv"
        )
        alone = sorted({(one.kind, one.ranks, groups[one.kind]) for one in outside if one.kind in groups})
        commands += [
            f"mpirun -np {ranks} {_TOOLS[kind]} -b 8 -e {size:.0f} -f 2 > {kind}_{ranks}.txt"
            for kind, ranks, size in alone
        ]
    if commands:
        commands.append("stepsim calibrate fit FILE... --out my.profile.yaml")
    return commands


def _print(
    residuals: Sequence[dict[str, Any]],
    found: Sequence[Coverage],
    outside: Sequence[Coverage],
    commands: Sequence[str],
    refused: Grid,
) -> None:
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.tables import print_grid
    from ..sim.figures import percent, seconds, signed_percent

    if residuals:
        rows = tuple(
            (
                r["part"],
                str(r["points"]),
                percent(r["median"]),
                percent(r["p90"]),
                signed_percent(r["signed_median"]),
            )
            for r in residuals
        )
        columns = ("part", "points", "median", "p90", "signed")
        print_grid(Grid(title="Residuals over the points", columns=columns, rows=rows), console())
    if refused.rows:
        print_grid(refused, console())
    if found:
        title = f"{len(found) - len(outside)} of {len(found)} operations were measured; the others"
        lines = ((one.kind, one.shape, one.outside, seconds(one.seconds)) for one in outside)
        names = ("operation", "shape", "why it is outside", "alone")
        print_grid(Grid(title=title, columns=names, rows=tuple(dict.fromkeys(lines)), labels=3), console())
    for command in commands:
        say(f"  {command}")
