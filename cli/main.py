"""The command ``stepsim``: which commands there are, and how a user's mistake ends.

Knows nothing of what the commands do. Everything heavy is imported inside the commands, so that
``stepsim --help`` answers at once.
"""

from __future__ import annotations

from typing import Annotated

import typer

from .calibrate import calibrate
from .cluster import cluster
from .collective import collective
from .compare import compare
from .faults import faults
from .list import list_names
from .memory import memory
from .mistakes import reported
from .replay import replay
from .run import run
from .schedule import schedule
from .schema import schema
from .validate import validate

app = typer.Typer(
    name="stepsim",
    help="Predict what one training step of a large language model costs on a GPU cluster.",
    epilog="Exit code: 0 done, 1 the answer is no (does not fit, a check fails), 2 the input is wrong.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command("run")(reported(run))
app.command("replay")(reported(replay))
app.command("compare")(reported(compare))
app.command("memory")(reported(memory))
app.command("cluster")(reported(cluster))
app.command("faults")(reported(faults))
app.command("validate")(reported(validate))
app.command("collective")(reported(collective))
app.add_typer(calibrate, name="calibrate")
app.add_typer(schedule, name="schedule")
app.command("schema")(reported(schema))
app.command("list")(reported(list_names))


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"stepsim {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Entry point of the script ``stepsim`` and of ``python -m stepsim.cli.main``."""
    app(prog_name="stepsim")


if __name__ == "__main__":
    main()
