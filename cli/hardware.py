"""``stepsim hardware check``: what a description of a machine leaves out, and what that costs in
certainty."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .mistakes import reported
from .options import JsonOption
from .output import echo_json

hardware = typer.Typer(
    name="hardware",
    help="Look at descriptions of machines that the catalogue does not have.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@hardware.callback()
def _group() -> None:
    """Look at descriptions of machines that the catalogue does not have."""


def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.yaml",
            help="A scenario, or a file with the gpu, interconnect and node of a cluster.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """List the figures that a description leaves out, what stands in their place, and how much wider that
    makes predictions."""
    from ..sim.report.hardware import check_document, check_lines
    from ..sim.scenario.machine_file import read_machine

    machine = read_machine(file)
    if as_json:
        echo_json(check_document(machine))
    else:
        typer.echo("\n".join(check_lines(machine)))


hardware.command("check")(reported(check))
