"""``stepsim replay``: check a saved program, ours or anyone's, and replay it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .mistakes import told
from .output import say
from .progress import progress
from .views import (
    JsonOption,
    MaxEventsOption,
    SpansOption,
    TimelineOption,
    TraceOption,
    ViewFiles,
    show_result,
)

BROKEN = 1


def replay(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM.json[.gz]", help="Written by stepsim run --save-program.")
    ],
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
    timeline: TimelineOption = None,
    trace: TraceOption = None,
    spans: SpansOption = None,
) -> None:
    """Check a program (acyclic, collectives and messages matched) and replay it.

    Exit code 1 when the program is broken: it would not run to its end.
    """
    views = ViewFiles(timeline=timeline, trace=trace, spans=spans)
    views.check([program])

    from ..sim.program.check import BrokenProgram
    from ..sim.replay import replay_program

    try:
        with progress() as status:
            result = replay_program(program, max_events=max_events, progress=status)
    except BrokenProgram as broken:
        say(told(broken), err=True)
        raise typer.Exit(BROKEN) from None
    views.write(result)
    show_result(result, as_json, assumptions=True)
    views.announce()
