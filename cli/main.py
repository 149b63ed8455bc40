"""The command ``stepsim``: which commands there are, and how a user's mistake ends.

Knows nothing of what the commands do. Everything heavy is imported inside the commands, so that
``stepsim --help`` answers at once.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import threading
from typing import Annotated

import typer

from .calibrate import calibrate
from .cluster import cluster
from .collective import collective
from .compare import compare
from .doctor import doctor
from .examples import with_examples
from .explain import explain
from .export import export_scenario
from .faults import faults
from .hardware import hardware
from .import_files import import_run
from .init import init
from .list import list_names
from .memory import memory
from .mistakes import BAD_INPUT, reported, reported_error
from .plan import plan
from .replay import replay
from .run import run
from .schedule import schedule
from .schema import schema
from .sensitivity import sensitivity
from .serve import serve
from .stragglers import stragglers
from .sweep import sweep
from .validate import validate

app = typer.Typer(
    name="stepsim",
    help="Predict what one training step of a large language model costs on a GPU cluster.",
    epilog="Exit code: 0 done, 1 the answer is no (does not fit, a check fails), 2 the input is wrong or the "
    "machine cannot (disk, memory), 3 a defect of stepsim, 130 interrupted.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.command("run")(reported(run))
app.command("replay")(reported(replay))
app.command("plan")(reported(plan))
app.command("sweep")(reported(sweep))
app.command("sensitivity")(reported(sensitivity))
app.command("compare")(reported(compare))
app.command("explain")(reported(explain))
app.command("stragglers")(reported(stragglers))
app.command("import")(reported(import_run))
app.command("export")(reported(export_scenario))
app.command("memory")(reported(memory))
app.command("cluster")(reported(cluster))
app.command("faults")(reported(faults))
app.command("validate")(reported(validate))
app.command("collective")(reported(collective))
app.add_typer(calibrate, name="calibrate")
app.add_typer(schedule, name="schedule")
app.add_typer(hardware, name="hardware")
app.command("serve")(reported(serve))
app.command("schema")(reported(schema))
app.command("list")(reported(list_names))
app.command("init")(reported(init))
app.command("doctor")(reported(doctor))
with_examples(app)


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
    sys.unraisablehook = _interrupt_again
    # What loading modules makes stays: looking through it is a tenth of a short command.
    gc.set_threshold(50_000, 20, 20)
    # pydantic would look through all installed distributions for plug-ins of its own, and we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(_code())


_AGAIN_S = 0.02
"""After it what could not raise is over."""


def _interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Ctrl-C while Python runs what cannot raise (a finalizer, a callback of a fork) would be lost: it comes
    again when that is done."""
    if lost.exc_type is not None and issubclass(lost.exc_type, KeyboardInterrupt):
        threading.Timer(_AGAIN_S, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(lost)


def _code() -> int:
    """Run the command that was asked for; its exit code, also where typer's own output fails."""
    if sys.stderr is None:  # closed by the caller (2>&-): messages go nowhere, and no file takes its number
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for as long as we run
    if sys.stdout is None:
        typer.echo("stepsim: standard output is closed, so that nothing can be printed", err=True)
        return BAD_INPUT
    try:
        code = app(prog_name="stepsim", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        # typer ends with 1, "the answer is no", where the reader of a help page has left.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return reported_error(end.__context__)
    except (Exception, KeyboardInterrupt) as error:
        show = getattr(error, "show", None)  # a mistake in the options: typer knows how to say it
        if show is None:
            return reported_error(error)
        show()
        return int(getattr(error, "exit_code", BAD_INPUT))
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
