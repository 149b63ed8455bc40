"""``stepsim replay``: check a saved program, or execution traces of Chakra, and replay them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .mistakes import user_error_text
from .options import JsonOption, MaxEventsOption
from .output import say
from .progress import progress
from .views import SpansOption, TimelineOption, TraceOption, ViewFiles, show_result

if TYPE_CHECKING:
    from ..sim.result.result import Result

BROKEN = 1
_BEGINNING = 1024


class Kernels(StrEnum):
    """What kernels of a trace take."""

    DURATION = "duration"
    FLOPS = "flops"


def replay(
    program: Annotated[
        Path,
        typer.Argument(
            metavar="PROGRAM.json[.gz]|DIR|FILE.et",
            help="Written by stepsim run --save-program; or MLCommons Chakra execution traces, ours (run "
            "--chakra) or anyone's: a folder or archive of them, or one.",
        ),
    ],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", metavar="SCENARIO", help="Price collectives and messages of traces on its cluster."
        ),
    ] = None,
    kernels: Annotated[
        Kernels | None,
        typer.Option(
            "--kernels", help="With --cluster: kernels take what the trace says, or what their FLOPs cost."
        ),
    ] = None,
    max_events: MaxEventsOption = None,
    as_json: JsonOption = False,
    timeline: TimelineOption = None,
    trace: TraceOption = None,
    spans: SpansOption = None,
) -> None:
    """Check a program or execution traces (acyclic, collectives and messages matched) and replay them.

    Exit code 1 when the program is broken: it would not run to its end.
    """
    views = ViewFiles(timeline=timeline, trace=trace, spans=spans)
    views.check([program])

    from ..sim.program.check import BrokenProgram

    try:
        with progress() as status:
            if is_traces(program):
                result = _traces(program, cluster, kernels, max_events, status)
            else:
                from ..sim.replay import replay_program

                if cluster or kernels:
                    raise ValueError(
                        "--cluster and --kernels are for execution traces: a program has its times"
                    )
                result = replay_program(program, max_events=max_events, progress=status)
    except BrokenProgram as broken:
        say(user_error_text(broken), err=True)
        raise typer.Exit(BROKEN) from None
    views.write(result)
    show_result(result, as_json, assumptions=True)
    views.announce()


def is_traces(path: Path) -> bool:
    """Whether ``path`` is a folder, an archive or a file of execution traces: by its name, a document of JSON
    by its beginning.
    """
    from ..hardware.files import is_archive, read_bytes

    name = path.name.lower()
    if path.is_dir() or is_archive(path) or name.endswith((".et", ".et.gz")):
        return True
    return name.endswith(".json") and b'"schema"' in read_bytes(path)[:_BEGINNING]


def _traces(
    path: Path,
    cluster: str | None,
    kernels: Kernels | None,
    max_events: int | None,
    status: Callable[[str], None],
) -> Result:
    from ..sim.chakra.replay import replay_traces
    from ..sim.scenario.load import load_scenario

    if kernels and not cluster:
        raise ValueError("--kernels: needs --cluster SCENARIO, whose GPU they are priced on")
    return replay_traces(
        path,
        cluster=load_scenario(cluster) if cluster else None,
        rule="flops" if kernels is Kernels.FLOPS else "duration",
        max_events=max_events,
        progress=status,
    )
