"""``stepsim calibrate collectives``: measures collectives here, or fits the shipped constants on logs.

With logs of nccl-tests it fits; without, it measures (measure_collectives.py beside this file).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .collective_logs import Logs, learnt_of_tables, observed, read_logs, sweep_of
from .options import JsonOption
from .output import clear_status, console, echo_json, save_text, status_line, wrote
from .refusals import refused_document, refused_files, tell_refused

if TYPE_CHECKING:
    from ..calibration.fit.collective_constants import Observed
    from ..calibration.fit.collectives import FittedConstant, FittedCurve
    from ..calibration.validation.collectives import CollectiveCase, CollectiveRow
    from ..calibration.validation.grids import Grid

FILE = Path(__file__).parents[1] / "hardware" / "collectives.yaml"

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="LOG...", help="Logs of nccl-tests to fit on; without any, measure here."),
]
SpawnOption = Annotated[
    int | None,
    typer.Option(
        "--spawn", metavar="N", max=1024, help="Measure between N processes here, without torchrun."
    ),
]
BackendOption = Annotated[
    str | None, typer.Option("--backend", metavar="nccl|gloo", help="Default: nccl where there is a GPU.")
]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="FILE.csv", help="Where measurements go, line by line.")
]
KindOption = Annotated[
    list[str] | None,
    typer.Option("--kind", metavar="NAME", help="Measure this collective only. Repeatable."),
]
LargestOption = Annotated[
    str | None,
    typer.Option("--largest", metavar="SIZE", help="Largest payload (64MB with gloo, 1GB with NCCL)."),
]
ScenarioOption = Annotated[
    str | None,
    typer.Option("--scenario", metavar="SCENARIO", help="Measure the groups of its layout too."),
]
BudgetOption = Annotated[
    str, typer.Option("--budget", metavar="TIME", help="When to stop measuring; a later run goes on.")
]
GpuOption = Annotated[str | None, typer.Option("--gpu", metavar="NAME", help="GPU of all the logs.")]
InterconnectOption = Annotated[
    str | None, typer.Option("--interconnect", metavar="NAME", help="Network of all the logs.")
]
ReplicasOption = Annotated[
    int, typer.Option(min=0, max=100_000, help="Bootstraps of whole logs for the constants' intervals.")
]
WriteOption = Annotated[bool, typer.Option("--write", help="Write the constants into the shipped file.")]


def collectives(
    files: FilesArgument = None,
    spawn: SpawnOption = None,
    backend: BackendOption = None,
    out: OutOption = Path("collectives.csv"),
    kind: KindOption = None,
    largest: LargestOption = None,
    scenario: ScenarioOption = None,
    budget: BudgetOption = "5min",
    gpu: GpuOption = None,
    interconnect: InterconnectOption = None,
    replicas: ReplicasOption = 0,
    as_json: JsonOption = False,
    write: WriteOption = False,
) -> None:
    """Measure collectives here for calibrate fit; or, given LOGs of nccl-tests, fit the shipped constants.

    Measuring needs torch, and --spawn N or torchrun. The fit: a curve for each system, and the constants
    that predict systems never measured. A log with settings that it does not state is left out. Constants
    that no log shows stay at NCCL's own. With a table of one host's collectives among the LOGs, only what
    such hosts show is fitted, on both; all else stays as shipped.
    """
    if not files:
        from .measure_collectives import measure_collectives

        measure_collectives(spawn, backend, out, kind or (), largest, scenario, budget)
        return
    if spawn is not None or backend or kind or largest or scenario:
        raise ValueError(
            "LOGs are fitted, not measured: leave out --spawn, --backend, --kind, --largest, --scenario"
        )

    _fit(read_logs(files, gpu, interconnect), replicas, write=write, as_json=as_json)


def _fit(logs: Logs, replicas: int, *, write: bool, as_json: bool) -> None:
    """Fit curves and constants on logs, and show them; ``write``: into the shipped file too."""
    from ..calibration.fit.collective_constants import constant_intervals, constants_of, edited_text
    from ..calibration.fit.collectives import fit_curve, pooled
    from ..calibration.validation.collectives import compare, predicted_s
    from ..hardware.collectives import collectives_document
    from ..hardware.files import read_text

    tell_refused(logs.refused)
    learnt, document = observed(logs.cases, logs.unstated), collectives_document()
    if not learnt:
        raise ValueError("no log states its settings, so that there is nothing to fit")
    if show := status_line():
        show(f"fitting {len(learnt)} logs")
    sweeps = pooled([sweep_of(one.case) for one in learnt])
    curves = [fit_curve(sweep) for sweep in sweeps if len(sweep.points) >= 4]
    learnt += observed(learnt_of_tables(logs.tables), ())
    best = _constants(learnt, document, of_one_host=bool(logs.tables))
    intervals = constant_intervals(learnt, predicted_s, document, best, replicas=replicas)
    rows = compare([one.case for one in learnt], lambda _: constants_of(best, document))
    clear_status()
    if write:
        save_text(FILE, edited_text(read_text(FILE), best), edits=True)
        wrote("constants", FILE)
    if as_json:
        echo_json(_document(curves, intervals, rows) | {"refused": refused_document(logs.refused)})
    else:
        _print(curves, intervals, rows, refused_files(logs.refused))


def _constants(
    learnt: Sequence[Observed[CollectiveCase]], document: Mapping[str, Any], *, of_one_host: bool
) -> dict[str, float]:
    """The constants that fit best; those ``of_one_host`` alone, from the shipped ones, where tables of one
    host's collectives are among the logs."""
    from ..calibration.fit.collective_constants import ONE_HOST, fit_constants, values_at
    from ..calibration.validation.collectives import predicted_s

    if not of_one_host:
        return fit_constants(learnt, predicted_s, document)
    begun = values_at([one.path for one in ONE_HOST], document)
    return fit_constants(learnt, predicted_s, document, start=begun, parameters=ONE_HOST)


def _document(
    curves: Sequence[FittedCurve], constants: Mapping[str, FittedConstant], rows: Sequence[CollectiveRow]
) -> dict[str, Any]:
    from dataclasses import asdict

    from ..calibration.validation.collectives import collectives_document

    return {
        "curves": [
            {
                "kind": one.sweep.kind,
                "architecture": one.sweep.architecture,
                "tier": one.sweep.tier,
                "ranks": one.sweep.ranks,
                "domains": one.sweep.domains,
                "points": len(one.sweep.points),
                "alpha_s": asdict(one.alpha_s),
                "gamma_s": asdict(one.gamma_s),
                "bytes_per_s": asdict(one.bytes_per_s),
                "median_residual": one.median_residual,
                "p90_residual": one.p90_residual,
            }
            for one in curves
        ],
        "constants": {path: asdict(estimate) for path, estimate in constants.items()},
        "residuals": collectives_document(rows)["summary"],
    }


def _print(
    curves: Sequence[FittedCurve],
    constants: Mapping[str, FittedConstant],
    rows: Sequence[CollectiveRow],
    refused: Grid,
) -> None:
    from ..calibration.validation.collective_grids import log_grid
    from ..calibration.validation.grids import Grid
    from ..calibration.validation.tables import print_grid
    from ..sim.figures import percent

    shown = tuple(
        (
            f"{one.sweep.kind}, {one.sweep.architecture}, {one.sweep.tier}, {one.sweep.ranks} ranks",
            _interval(one.alpha_s, 1e6),
            _interval(one.gamma_s, 1e6),
            _interval(one.bytes_per_s, 1e-9),
            percent(one.median_residual),
            percent(one.p90_residual),
        )
        for one in curves
    )
    columns = ("collective and system", "alpha us", "gamma us/√B", "B GB/s", "median", "p90")
    print_grid(Grid(title="Curves alpha + gamma √S + S/B", columns=columns, rows=shown), console())
    fitted = tuple((path, _interval(estimate, 1.0)) for path, estimate in constants.items())
    print_grid(Grid(title="Constants", columns=("constant", "value (5 to 95 %)"), rows=fitted), console())
    print_grid(log_grid(rows, "Residuals of the constants"), console())
    if refused.rows:
        print_grid(refused, console())


def _interval(one: FittedConstant, unit: float) -> str:
    value, low, high = (f"{part * unit:.4g}" for part in (one.value, one.low, one.high))
    return value if low == high else f"{value} ({low} to {high})"
