"""``stepsim validate --kernels TABLE.csv``: predicted kernels beside tables of many GPUs and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from .output import console, echo_json, save_text, wrote

if TYPE_CHECKING:
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.regions.table_errors import ShapeErrors, TableErrors
    from ..hardware.profile import Harness

_HEAD = """\
# Accuracy of kernels

Made by `make validate`, which runs

    stepsim validate --kernels ../shared/data/kernel_tables/{gemm,attention_forward}.csv \\
        ../shared/data/kernels.yaml --markdown docs/kernel-errors.md

and predicts every kernel of the tables that ai-dynamo/aiconfigurator (NVIDIA, Apache-2.0) measured. Do not
edit this page. One shape in four was left out of every fit, by a hash of the shape; the columns `left out`
are of those. Errors of GEMMs are of the time that their harness measured: `beside` says what the
prediction allows for what that does besides the GEMM (quantising an 8- or 4-bit GEMM's input; for
attention, writing keys and values to a paged cache), `call` the least that its host takes for a call.
Errors of attention are of each shape over the median ratio of its GPU; that ratio is `level`. `slowdown` is
by how much the table's kernel is slower than the one that the curve is of: prefill from a paged cache.
Operands lie in L2 as far as a round of calls fits in it; `row` is what a quantising kernel waits for each,
or what a token adds that is written to a cache,
`odd rows` what is added where their number is no multiple of four. Calls are few and short, so that the power
limit acts on them as `kernels/power.py` and the length of the call have it, and less where a harness leaves
weights without data (vLLM's large ones of 16 bit).

"""


_POINTS = """
The shipped curves on single points of kernels that the tables lack, by direction and kind: grouped GEMMs
as experts run them, attention backward, latent attention, other implementations (SimuMax, FlashAttention,
DeepGEMM, ml-engineering; `../shared/data/kernels.yaml`). Fits saw most of them; docs/calibration.md has their
errors with families left out.
"""


def validate_tables(
    files: Sequence[Path], points: Sequence[Path], *, as_json: bool, markdown: Path | None
) -> None:
    """Print errors by GPU and kernel, of shapes that the fits saw and of those that were left out; and of the
    ``points`` that other files hold."""
    from ..calibration.readers.kernel_tables import read_kernel_tables
    from ..calibration.validation.markdown import section
    from ..calibration.validation.regions.table_errors import table_errors
    from ..calibration.validation.tables import print_grid
    from .validate_kernels import priced_points, shipped_grid

    found = table_errors(read_kernel_tables(files))
    if not found:
        raise ValueError("no kernel of the files can be priced, so that there is nothing to compare")
    singles = [point for file in points for point in priced_points(file)[0]]
    grids = [table_grid(found), *([shipped_grid(singles)] if singles else [])]
    if as_json:
        echo_json({"kernels": [asdict(one) for one in found]})
    else:
        for grid in grids:
            print_grid(grid, console())
    if markdown:
        save_text(markdown, _HEAD + _POINTS.join(section(grid) for grid in grids))
        wrote("page", markdown)


def table_grid(found: Sequence[TableErrors]) -> Grid:
    """Figures by GPU and kernel, as text."""
    from ..calibration.validation.grids import Grid

    columns = (
        "GPU", "kernel", "shapes", "median", "p90", "left out", "median", "p90", "level", "beside", "call",
        "row", "odd rows", "slowdown",
    )  # fmt: skip
    rows = tuple(
        (one.gpu, one.kernel, *_shown(one.fitted), *_shown(one.unseen), _level(one), *_harness(one.harness))
        for one in found
    )
    return Grid(title="Errors by GPU and kernel", columns=columns, rows=rows, labels=2)


def _shown(errors: ShapeErrors | None) -> tuple[str, str, str]:
    from ..sim.figures import count, percent

    if errors is None:
        return "-", "-", "-"
    return count(errors.points), percent(errors.median), percent(errors.p90)


def _level(one: TableErrors) -> str:
    errors = one.unseen or one.fitted
    return f"{errors.level:.3f}" if errors else "-"


def _harness(harness: Harness) -> tuple[str, str, str, str, str]:
    beside = f"{harness.beside_s * 1e6:.1f} us + bytes at {harness.beside_efficiency:.2f} of HBM"
    nothing = harness.beside_s == 0 and harness.beside_efficiency == 1
    return (
        "-" if nothing else beside,
        f"{harness.call_s * 1e6:.0f} us" if harness.call_s else "-",
        f"{harness.row_s * 1e9:.2g} ns" if harness.row_s > 0.05e-9 else "-",
        _unaligned(harness),
        f"{harness.slowdown:.2f}" if harness.slowdown != 1 else "-",
    )


def _unaligned(harness: Harness) -> str:
    """What rows add that are no multiple of four: to the kernels beside, to the GEMM, to a bound call."""
    added_us, slower = harness.unaligned_s * 1e6, harness.unaligned_slowdown - 1.0
    parts = [
        f"{added_us:.0f} us" if added_us >= 0.5 else "",
        f"{100 * slower:.0f} %" if slower >= 0.005 else "",
        f"call {harness.unaligned_call_s * 1e6:.0f} us" if harness.unaligned_call_s >= 0.5e-6 else "",
    ]
    return ", ".join(part for part in parts if part) or "-"
