"""The files that ``run`` and ``replay`` can write of one result, and their options.

Knows which view goes by which option; the views themselves are in sim/report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .output import (
    PICTURE_NAME,
    PICTURES,
    console,
    echo_json,
    is_folder,
    output_file,
    output_folder,
    save_picture,
    wrote,
)

if TYPE_CHECKING:
    from ..sim.result.result import Result

TimelineOption = Annotated[
    Path | None, typer.Option("--timeline", metavar=PICTURE_NAME, help="Write the schedule as a picture.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE.json|DIR",
        help="Write a trace for Perfetto and Holistic Trace Analysis: one file, or a folder with a file for "
        "each class of ranks.",
    ),
]
SpansOption = Annotated[
    Path | None, typer.Option("--spans", metavar="FILE.csv|FILE.parquet", help="Write every span as a table.")
]


@dataclass(frozen=True, kw_only=True)
class ViewFiles:
    """Where to write which view; None: not wanted."""

    timeline: Path | None
    trace: Path | None
    spans: Path | None

    def check(self, inputs: Iterable[str | Path]) -> None:
        """ValueError, before any work is done, for a file that cannot or should not be written."""
        inputs = tuple(inputs)
        output_file("--timeline", self.timeline, PICTURES, inputs)
        if self.trace is not None and is_folder(self.trace):
            output_folder("--trace", self.trace, inputs)
        else:
            output_file("--trace", self.trace, (".json", ".gz"), inputs)
        output_file("--spans", self.spans, (".csv", ".parquet"), inputs)

    def write(self, result: Result) -> None:
        """Write the views that are wanted."""
        if self.timeline:
            from ..sim.report.timeline.picture import timeline_svg

            save_picture(self.timeline, timeline_svg(result))
        if self.trace:
            from ..sim.report.trace import write_trace, write_traces

            if is_folder(self.trace):
                write_traces(result, self.trace)
            else:
                write_trace(result, self.trace)
        if self.spans:
            from ..sim.report.spans_file import write_spans

            write_spans(result, self.spans)

    def announce(self) -> None:
        """Say where the views are."""
        for view, path in (("timeline", self.timeline), ("trace", self.trace), ("spans", self.spans)):
            if path:
                wrote(view, path)


AssumptionsOption = Annotated[
    bool, typer.Option("--assumptions", help="Show everything that the prediction rests on, with its source.")
]


def show_result(result: Result, as_json: bool, *, assumptions: bool) -> None:
    """Print ``result`` as the JSON document or as tables."""
    if as_json:
        echo_json(result.to_dict())
    else:
        from ..sim.report.tables import print_result

        print_result(result, console(), assumptions=assumptions)
