"""``stepsim memory``: the memory bill of a scenario beside the formulas of the textbooks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..hardware.limits import LARGEST
from .options import JsonOption, MaxEventsOption, SetOption
from .output import PICTURE_NAME, PICTURES, console, echo_json, output_file, save_picture, wrote
from .progress import progress
from .sources import (
    FrameworkOption,
    GivenOption,
    SourceArgument,
    SourceFacts,
    VersionOption,
    WithOption,
    load_any,
)

if TYPE_CHECKING:
    from ..sim.result.result import Result
    from ..sim.result.step import StageMemory
    from ..sim.scenario.models import Scenario

DOES_NOT_FIT = 1


def memory(
    scenario: SourceArgument,
    overrides: SetOption = None,
    stage: Annotated[
        int | None,
        typer.Option("--stage", metavar="PP", max=LARGEST, help="A pipeline rank; default: the fullest."),
    ] = None,
    given: GivenOption = None,
    files: WithOption = None,
    framework: FrameworkOption = None,
    version: VersionOption = None,
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar=PICTURE_NAME, help="Write what is held over the step.")
    ] = None,
) -> None:
    """Show what fills the memory of a GPU, term by term, and where the textbook's formulas differ.

    --json and --picture replay the step besides, for when the peak is and what is held over time.
    Exit code 1 when the step does not fit in memory.
    """
    output_file("--picture", picture, PICTURES, [scenario])

    from ..sim.report.memory.document import memory_document
    from ..sim.report.memory.picture import memory_svg
    from ..sim.report.memory.table import print_memory
    from ..sim.result.step import fullest_of

    beside = SourceFacts(given=given or (), files=files or (), framework=framework, version=version)
    loaded = load_any(scenario, overrides or (), beside)
    _check_stage(stage, loaded.parallelism.pp)
    result = _timed(loaded, max_events) if picture or as_json else None
    memory = result.memory if result else _by_order(loaded, max_events)
    if picture and result:
        save_picture(picture, memory_svg(result))
    if as_json and result:
        echo_json(memory_document(result))
    else:
        fullest = fullest_of(memory)
        print_memory(loaded, memory, fullest if stage is None else memory[stage], console())
    if picture:
        wrote("picture", picture)
    if not all(one.fits for one in memory):
        raise typer.Exit(DOES_NOT_FIT)


def _check_stage(stage: int | None, pp: int) -> None:
    if stage is not None and not 0 <= stage < pp:
        raise ValueError(f"--stage {stage}: pipeline ranks are 0 to {pp - 1}")


def _by_order(loaded: Scenario, max_events: int | None) -> tuple[StageMemory, ...]:
    """The bill by the order of actions; by the clock where it depends on how far hosts run ahead."""
    from ..sim.brief.memory import memory_by_order

    found = memory_by_order(loaded)
    return found.high if found.exact else _timed(loaded, max_events).memory


def _timed(loaded: Scenario, max_events: int | None) -> Result:
    """The replayed step, which knows when the peak is and what is held over time."""
    from ..sim.simulate import simulate

    with progress() as say:
        return simulate(loaded, max_events=max_events, progress=say)
