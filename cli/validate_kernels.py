"""``stepsim validate --kernels``: predicted kernels beside measured ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import clear_status, console, echo_json, save_text, status_line, wrote
from .refusals import refused_document, refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.readers.measurements import Measurement
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.regions.kernel_errors import KernelError, KernelErrors
    from ..hardware.files import Refusal

    Summary = Mapping[str, Mapping[str, KernelErrors]]


def validate_kernels(files: Sequence[Path], *, leave_out: bool, as_json: bool, markdown: Path | None) -> None:
    """Print rows and summary of every point that kernels/ can price; what it cannot is named."""
    from ..calibration.fit.kernels import all_measurements
    from ..calibration.validation.regions.kernel_errors import (
        kernel_summary,
        left_out_rows,
        repeats,
        shipped_rows,
    )
    from ..calibration.validation.tables import print_grid
    from ..hardware.files import read_each

    found, refused = read_each(files, priced_points)
    tell_refused(refused)
    asked = [point for points, _ in found for point in points]
    skipped = {id_: reason for _, reasons in found for id_, reason in reasons.items()}
    _check(asked)
    if leave_out and (show := status_line()):
        show("fitting without each family of shapes")
    rows = (
        left_out_rows(asked, all_measurements(_usable(files, refused))) if leave_out else shipped_rows(asked)
    )
    clear_status()
    summary = kernel_summary(rows)
    grid = kernel_grid(summary, leave_out=leave_out)
    if markdown:
        save_text(markdown, _page(grid, skipped))
    if as_json:
        echo_json(_document(rows, summary, skipped) | {"refused": refused_document(refused)})
    else:
        print_grid(grid, console())
        if refused:
            print_grid(refused_files(refused), console())
        for (gpu, kernel), one in repeats(asked).items():
            console().print(
                f"{gpu} {kernel}: {one.points} points measure a kernel that others measure too; "
                f"by those: median {one.median:.1%}, p90 {one.p90:.1%}"
            )
        if skipped:
            console().print(f"{len(skipped)} points not priced: {', '.join(sorted(set(skipped.values())))}")
    if markdown:
        wrote("page", markdown)


def shipped_grid(points: Sequence[Measurement]) -> Grid:
    """Figures of the shipped curves on points of kernels, by GPU and kernel; of attention by direction."""
    from dataclasses import replace

    from ..calibration.validation.regions.kernel_errors import kernel_summary, shipped_rows

    names = {point.id: _kernel_name(point) for point in points}
    rows = [replace(row, kernel=names[row.id]) for row in shipped_rows(points)]
    return kernel_grid(kernel_summary(rows), leave_out=False)


def _kernel_name(point: Measurement) -> str:
    """What a point measured: of attention with its implementation, direction, and head dimensions where those
    of keys and values differ (latent attention), which its family ends in."""
    from ..kernels.kernel import Attention

    kernels = [kernel for kernel in point.kernels if isinstance(kernel, Attention)]
    if not kernels:
        return point.operation
    ways = " and ".join(kernel.direction for kernel in kernels)
    latent = " latent" if "(192, 128" in point.family else ""
    return f"attention {kernels[0].implementation}{latent} {ways}"


def kernel_grid(summary: Summary, *, leave_out: bool) -> Grid:
    """Figures by GPU and kernel, as text."""
    from ..calibration.validation.grids import Grid
    from ..sim.figures import count, percent, signed_percent

    shown = tuple(
        (
            gpu,
            kernel,
            one.how,
            count(one.points),
            percent(one.median),
            percent(one.p90),
            signed_percent(one.signed_median),
        )
        for gpu, kernels in summary.items()
        for kernel, one in kernels.items()
    )
    title = "Errors of kernel times" + (", each predicted without its family" if leave_out else "")
    columns = ("GPU", "kernel", "predicted by", "points", "median", "p90", "signed")
    return Grid(title=title, columns=columns, rows=shown, labels=3)


def priced_points(path: Path) -> tuple[list[Measurement], dict[str, str]]:
    """The points of a file, and by id why another one has no prediction."""
    from ..calibration.readers.measurements import read_points
    from ..calibration.validation.regions.kernel_errors import shipped_rows
    from ..hardware.calibrated.overlay import profile_names
    from ..hardware.catalogue import unknown_name

    points, skipped = read_points([path])
    priced = []
    for point in points:
        if point.gpu not in profile_names():
            unknown = unknown_name("profiled GPU", point.gpu, profile_names())
            raise ValueError(f"{path}: {point.id}: gpu: {unknown}")
        try:
            shipped_rows([point])
        except ValueError as lack:  # the GPU's profile has no such kernel
            skipped[point.id] = str(lack)
        else:
            priced.append(point)
    return priced, skipped


def _usable(files: Sequence[Path], refused: Sequence[Refusal]) -> list[Path]:
    names = {one.file for one in refused}
    return [path for path in files if str(path) not in names]


def _check(points: Sequence[Measurement]) -> None:
    """ValueError for no points, or two of one id."""
    if not points:
        raise ValueError("no point of the files can be priced, so that there is nothing to compare")
    seen: set[str] = set()
    for point in points:
        if point.id in seen:
            raise ValueError(f"{point.id}: two points have this id; rename one")
        seen.add(point.id)


def _document(rows: Sequence[KernelError], summary: Summary, skipped: Mapping[str, str]) -> dict[str, Any]:
    return {
        "rows": [
            {
                "id": row.id,
                "gpu": row.gpu,
                "kernel": row.kernel,
                "measured_s": row.measured_s,
                "predicted_s": row.predicted_s,
                "error": row.error,
                "in_range": row.in_range,
            }
            for row in rows
        ],
        "summary": {
            gpu: {name: asdict(one) for name, one in kernels.items()} for gpu, kernels in summary.items()
        },
        "skipped": [{"id": id_, "reason": reason} for id_, reason in skipped.items()],
    }


def _page(grid: Grid, skipped: Mapping[str, str]) -> str:
    head = "| " + " | ".join(grid.columns) + " |\n|" + "---|" * grid.labels
    head += "--:|" * (len(grid.columns) - grid.labels)
    rows = "\n".join("| " + " | ".join(row) + " |" for row in grid.rows)
    note = (
        f"\n{len(skipped)} points not priced: {', '.join(sorted(set(skipped.values())))}\n" if skipped else ""
    )
    return f"# {grid.title}\n\n{head}\n{rows}\n{note}"
