"""``stepsim replay``: check a saved program, ours or anyone's, and replay it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .views import JsonOption, SpansOption, TimelineOption, TraceOption, ViewFiles, show_result


def replay(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM.json", help="Written by stepsim run --save-program.")
    ],
    as_json: JsonOption = False,
    timeline: TimelineOption = None,
    trace: TraceOption = None,
    spans: SpansOption = None,
) -> None:
    """Check a program (acyclic, collectives and messages matched) and replay it."""
    views = ViewFiles(timeline=timeline, trace=trace, spans=spans)
    views.check([program])

    from ..sim.replay import replay_program

    result = replay_program(program)
    views.write(result)
    show_result(result, as_json)
    views.announce()
