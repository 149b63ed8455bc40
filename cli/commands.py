"""Which commands there are, and the application of all of them, or of the one that was asked for.

Loading and describing all commands to typer takes longer than most of a small step: an application of one
command knows nothing of the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

from .examples import with_examples
from .mistakes import reported

_HOMES = {
    "run": "run.run",
    "replay": "replay.replay",
    "plan": "plan.plan",
    "sweep": "sweep.sweep",
    "sensitivity": "sensitivity.sensitivity",
    "compare": "compare.compare",
    "explain": "explain.explain",
    "stragglers": "stragglers.stragglers",
    "import": "import_files.import_run",
    "export": "export.export_scenario",
    "memory": "memory.memory",
    "cluster": "cluster.cluster",
    "faults": "faults.faults",
    "validate": "validate.validate",
    "collective": "collective.collective",
    "calibrate": "calibrate.calibrate",
    "schedule": "schedule.schedule",
    "hardware": "hardware.hardware",
    "serve": "serve.serve",
    "schema": "schema.schema",
    "list": "list.list_names",
    "init": "init.init",
    "doctor": "doctor.doctor",
}
"""The file of each command, and its function, or its own application where it has commands of its own; in the
order in which the help names them."""


def application(words: list[str]) -> typer.Typer:
    """What understands the command line ``words``: of the command that they begin with, or of all."""
    names = words[:1] if words and words[0] in _HOMES else list(_HOMES)
    app = typer.Typer(
        name="stepsim",
        help="Predict what one training step of a large language model costs on a GPU cluster.",
        epilog="Exit code: 0 done, 1 the answer is no (does not fit, a check fails), 2 the input is wrong or "
        "the machine cannot (disk, memory), 3 a defect of stepsim, 130 interrupted.",
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        file, _, function = _HOMES[name].partition(".")
        found = getattr(import_module(f".{file}", __package__), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(reported(found))
    with_examples(app)
    return app


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"stepsim {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop."),
    ] = False,
) -> None:
    """Options that stand before the command."""
