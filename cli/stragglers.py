"""``stepsim stragglers``: what slow workers cost a job, by a what-if analysis of its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, say, wrote
from .progress import progress

if TYPE_CHECKING:
    from ..calibration.readers.operation_log import OperationLog


def stragglers(
    log: Annotated[
        Path,
        typer.Argument(metavar="LOG.parquet|LOG.csv", help="A log of operations, as NDTimeline writes it."),
    ],
    layout: Annotated[
        Path | None,
        typer.Option("--layout", metavar="META.yaml", help="The job's layout, which the log must have."),
    ] = None,
    heat_map: Annotated[
        Path | None,
        typer.Option("--heat-map", metavar=PICTURE_NAME, help="Write the slowdown by worker and stage."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """What stragglers cost a logged job: S, S_t, M_W and M_S, and which worker is to blame.

    Each operation is replayed as it was or as its kind usually is (Lin et al., OSDI'25).
    """
    output_file("--heat-map", heat_map, PICTURES, [log, *([layout] if layout else [])])

    from ..calibration.explain import stragglers as figures
    from ..calibration.readers.operation_log import read_operation_log

    with progress() as tell:
        tell("reading the log")
        read = read_operation_log(log)
        if layout is not None:
            _check_layout(layout, read)
        tell("replaying what if")
        found = figures.stragglers(read)
    if heat_map:
        from ..calibration.explain.heat_map import heat_map_svg

        save_picture(heat_map, heat_map_svg(found))
    if as_json:
        echo_json(figures.document(found))
    else:
        from ..calibration.validation.tables import print_grid

        for sentence in figures.sentences(found):
            say(sentence)
        for grid in figures.grids(found):
            print_grid(grid, console())
    if heat_map:
        wrote("heat map", heat_map)


def _check_layout(path: Path, log: OperationLog) -> None:
    """ValueError where the log is not of the job that ``path`` describes (dp_size, pp_size)."""
    from ..hardware.files import load_yaml, read_text

    document = load_yaml(read_text(path), path)
    if not isinstance(document, dict) or not {"dp_size", "pp_size"} <= document.keys():
        raise ValueError(f"{path}: no layout of a job: it has no dp_size and pp_size")
    for field, has in (("dp_size", log.dp_rank), ("pp_size", log.stage)):
        sizes = len(set(has.tolist()))
        if document[field] != sizes:
            raise ValueError(f"{path}: {field}: {document[field]!r}, and the log {log.file} has {sizes}")
