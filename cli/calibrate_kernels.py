"""``stepsim calibrate kernels``: measures the kernels of training on the GPU, or CPU, at hand."""

from __future__ import annotations

import shlex
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .output import clear_status, console, echo_json, output_file, say, status_line, wrote

if TYPE_CHECKING:
    from ..calibration.measure.kernel_csv import KernelComparison, KernelRow

DeviceOption = Annotated[
    str | None, typer.Option("--device", metavar="cuda|cpu", help="Where to measure (default: a GPU if any).")
]
BudgetOption = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="When to stop; a later run goes on.")
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="FILE.csv", help="Where the measurements go, line by line.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="FAMILY", help="gemm, attention, memory, launch, corun or triton. Repeatable."
    ),
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="NAME", help="The catalogue's name of this GPU, where it is not found."),
]


def kernels(
    device: DeviceOption = None,
    budget: BudgetOption = "5min",
    out: OutOption = Path("kernels.csv"),
    only: OnlyOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure GEMMs, attention, memory-bound kernels, launches, and a GEMM beside a copy.

    The same command on the same file goes on where it stopped. Needs the extra `calibration`.
    """
    from .. import __version__
    from ..calibration.measure.device import find_device
    from ..calibration.measure.kernel_csv import read_rows
    from ..calibration.measure.points import FAMILIES, sweep
    from ..calibration.measure.session import measure
    from ..hardware.quantities import quantity_of

    output_file("--out", out, (".csv",), [], appended=True)
    budget_s = quantity_of("--budget", budget, "seconds")
    next(sweep("cuda", families=only or FAMILIES))  # refuses an unknown family before torch loads
    here = find_device(device, gpu)
    origin = {"stepsim": __version__, "command": shlex.join(["stepsim", *sys.argv[1:]])}
    outcome = measure(
        here,
        out,
        budget_s=budget_s,
        families=only or FAMILIES,
        origin=origin,
        say=status_line() or (lambda text: say(text, err=True)),
    )
    clear_status()
    rows = read_rows([out]) if out.exists() else ()
    for point, reason in outcome.failed:
        say(f"not measured: {point}: {reason}", err=True)
    counts = f"{outcome.measured} measured, {outcome.before} before, {outcome.left} of the sweep left"
    if as_json:
        failed = [{"id": point, "reason": reason} for point, reason in outcome.failed]
        done = {"measured": outcome.measured, "before": outcome.before, "left": outcome.left}
        echo_json({"device": here.name, "gpu": here.gpu, "file": str(out), **done, "failed": failed})
    else:
        say(f"{here.name}{f' ({here.gpu})' if here.gpu else ''}: {counts}")
        _print(rows)
    wrote("measurements", out)


def _print(rows: tuple[KernelRow, ...]) -> None:
    """Best and median rates by kernel and implementation; a GPU's Triton kernels beside torch's."""
    from statistics import median

    from ..calibration.measure.kernel_csv import triton_against_torch
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.tables import print_grid

    groups: dict[tuple[str, str, str], list[KernelRow]] = defaultdict(list)
    for row in rows:
        groups[row.operation, row.dtype, row.implementation].append(row)
    lines = []
    for (operation, dtype, implementation), group in sorted(groups.items()):
        flops = [row.flops / row.seconds * 1e-12 for row in group]
        moved = [row.hbm_bytes / row.seconds * 1e-9 for row in group]
        micros = median(row.seconds for row in group) * 1e6
        cells = (f"{max(flops):.3g}", f"{median(flops):.3g}", f"{max(moved):.4g}", f"{micros:.4g}")
        lines.append((operation, dtype, implementation, str(len(group)), *cells))
    columns = (
        *("kernel", "dtype", "implementation", "points"),
        *("best TFLOP/s", "median TFLOP/s", "best GB/s", "median us"),
    )
    print_grid(Grid(title="Measured kernels", columns=columns, rows=tuple(lines)), console())
    beside = tuple(
        (one.operation, one.dtype, one.implementation, str(one.shapes), f"{one.median:.2f}", _range(one))
        for one in triton_against_torch(rows)
    )
    if beside:
        names = ("kernel", "dtype", "beside", "shapes", "speed, median", "lowest to highest")
        title = "Triton's kernels beside torch's, whose speed is 1"
        print_grid(Grid(title=title, columns=names, rows=beside), console())


def _range(one: KernelComparison) -> str:
    return f"{one.low:.2f} to {one.high:.2f}"
