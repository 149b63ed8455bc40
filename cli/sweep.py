"""``stepsim sweep``: one prediction, or one plan, for each combination of values of any fields."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, ScenarioArgument
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, wrote
from .plan_options import (
    FITS,
    FitsOption,
    JobsOption,
    JournalOption,
    ParquetOption,
    RayOption,
    refuse_idle_fits,
    refuse_idle_journal,
)
from .progress import progress

if TYPE_CHECKING:
    from ..sim.plan.questions.sweep import FieldSweep

NOTHING_FITS = 1


def sweep(
    scenario: ScenarioArgument,
    axes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=A,B,...",
            help="The values of a field, as in cluster.gpus=64,128, or one of them. Repeatable.",
        ),
    ] = None,
    replan: Annotated[
        bool, typer.Option("--replan", help="The best layout for each point, in place of the scenario's own.")
    ] = False,
    fits: FitsOption = FITS,
    jobs: JobsOption = None,
    ray: RayOption = False,
    journal: JournalOption = None,
    as_json: JsonOption = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE.csv", help="Write a row for each point.")
    ] = None,
    parquet: ParquetOption = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar=PICTURE_NAME, help="Draw the sweep over one field or two."),
    ] = None,
) -> None:
    """Predict a scenario for each combination of values of any fields, and how it scales.

    Exit code 1 when no point fits in memory.
    """
    for option, path, suffix in (("--csv", csv, ".csv"), ("--parquet", parquet, ".parquet")):
        output_file(option, path, (suffix,), [scenario])
    output_file("--picture", picture, PICTURES, [scenario])
    refuse_idle_fits(fits, replan)
    refuse_idle_journal(journal, replan)
    output_file("--journal", journal, (".jsonl",), [scenario], appended=True)

    from ..sim.plan.axis_values import varied
    from ..sim.plan.questions.sweep import sweep as swept
    from ..sim.plan.search.plan import wishes_of
    from ..sim.report.plan.sweep import drawn_fields, print_layout_sweep
    from ..sim.scenario.errors import changes_named

    values = varied(axes or (), "--set")
    if picture:
        drawn_fields(values)
    wishes = wishes_of(top=1, objective="step-time", deadline_s=None, budget=None, fits=fits, audit=0)
    with progress() as status, changes_named("--set"):
        found = swept(
            scenario,
            values,
            replan=replan,
            wishes=wishes,
            jobs=jobs,
            ray=ray,
            journal=journal,
            progress=status,
        )
    _write(found, [path for path in (csv, parquet) if path], picture)
    if as_json:
        echo_json(found.to_dict())
    else:
        print_layout_sweep(found, console())
    if not any(point.fits for point in found.points):
        raise typer.Exit(NOTHING_FITS)


def _write(found: FieldSweep, tables: Sequence[Path], picture: Path | None) -> None:
    """The files that were asked for; without one simulated point there is no picture."""
    from ..sim.report.plan.sweep import layout_sweep_svg, write_layout_sweep

    for path in tables:
        write_layout_sweep(found, path)
        wrote("points", path)
    if picture and any(point.figures for point in found.points):
        save_picture(picture, layout_sweep_svg(found))
        wrote("picture", picture)
