"""``stepsim replay``: check a saved program, ours or anyone's, and replay it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .mistakes import told
from .output import clear_status, say, status_line
from .views import JsonOption, SpansOption, TimelineOption, TraceOption, ViewFiles, show_result

BROKEN = 1


def replay(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM.json[.gz]", help="Written by stepsim run --save-program.")
    ],
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
        result = replay_program(program, progress=status_line())
    except BrokenProgram as broken:
        clear_status()
        say(told(broken), err=True)
        raise typer.Exit(BROKEN) from None
    views.write(result)
    clear_status()
    show_result(result, as_json)
    views.announce()
