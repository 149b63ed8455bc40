"""``stepsim memory``: the memory bill of a scenario beside the formulas of the textbooks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .output import console, echo_json, output_file, save_text, wrote
from .progress import progress
from .sources import (
    SOURCE_HELP,
    FrameworkOption,
    GivenOption,
    SourceFacts,
    VersionOption,
    WithOption,
    load_any,
)
from .views import JsonOption, MaxEventsOption

DOES_NOT_FIT = 1


def memory(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help=SOURCE_HELP)],
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="FIELD=VALUE", help="Change one field, as in parallelism.tp=4. Repeatable."
        ),
    ] = None,
    stage: Annotated[
        int | None, typer.Option("--stage", metavar="PP", help="A pipeline rank; default: the fullest.")
    ] = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.svg", help="Write what is held over the step.")
    ] = None,
) -> None:
    """Show what fills the memory of a GPU, term by term, and where the textbook's formulas differ.

    Exit code 1 when the step does not fit in memory.
    """
    output_file("--picture", picture, (".svg",), [scenario])

    from ..sim.report.memory.document import memory_document
    from ..sim.report.memory.picture import memory_svg
    from ..sim.report.memory.table import print_memory
    from ..sim.simulate import simulate

    beside = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    loaded = load_any(scenario, overrides or (), beside)
    with progress() as say:
        result = simulate(loaded, max_events=max_events, progress=say)
    if stage is not None and not 0 <= stage < len(result.memory):
        raise ValueError(f"--stage {stage}: pipeline ranks are 0 to {len(result.memory) - 1}")
    if picture:
        save_text(picture, memory_svg(result))
    if as_json:
        echo_json(memory_document(result))
    else:
        fullest = max(result.memory, key=lambda one: one.peak_bytes)
        print_memory(result, fullest if stage is None else result.memory[stage], console())
    if picture:
        wrote("picture", picture)
    if not result.fits:
        raise typer.Exit(DOES_NOT_FIT)
