"""The command ``stepsim``: how a process begins and ends, and how a user's mistake does.

Knows nothing of what the commands do. Everything heavy is imported inside the commands, so that
``stepsim --help`` answers at once.
"""

from __future__ import annotations

import _thread
import gc
import os
import sys
import threading
import warnings
from typing import Any

import typer

from .commands import application
from .exit_codes import BAD_INPUT
from .late_methods import compile_methods_late
from .mistakes import reported_error


def __getattr__(name: str) -> typer.Typer:
    """``app``, the application of all commands, made when somebody asks for it (PEP 562)."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = application([])
    globals()[name] = made
    return made


_COLLECT_AFTER = 400_000
"""Objects; a small step with all modules makes 130,000, nearly all of which stay."""


def main() -> None:
    """Entry point of the script ``stepsim`` and of ``python -m stepsim.cli.main``."""
    sys.unraisablehook = _interrupt_again
    # What loading modules makes stays: looking through it is a tenth of a short command.
    gc.set_threshold(_COLLECT_AFTER, 3, 20)
    compile_methods_late()
    # pydantic would look through all installed distributions for plug-ins of its own, and we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # numpy is not loaded yet. A fit's matrices are so small that threads of BLAS cost more than they bring:
    # on a busy machine they wait for one another several times as long as one alone would compute.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _print_deprecations()
    code = _code()
    # As it ends, Python would look through all that is there for circles, to give back memory that ends, too:
    # a sixth of a small step.
    gc.freeze()
    sys.exit(code)


def _print_deprecations() -> None:
    """Print each of our deprecation warnings once, as one line on stderr; other warnings as Python does."""
    warnings.filterwarnings("once", message="stepsim: ", category=DeprecationWarning)
    show_others = warnings.showwarning

    def show(message: Warning | str, *place: Any, **more: Any) -> None:
        if str(message).startswith("stepsim: "):
            typer.echo(str(message), err=True)
        else:
            show_others(message, *place, **more)

    warnings.showwarning = show


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
        code = application(sys.argv[1:])(prog_name="stepsim", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as end:
        # typer ends with 1, "the answer is no", where the reader of a help page has left.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return reported_error(end.__context__)
    except (Exception, KeyboardInterrupt) as error:
        if getattr(error, "show", None) is None:
            return reported_error(error)
        return _option_refused(error)
    return code if isinstance(code, int) else 0


def _option_refused(error: BaseException) -> int:
    """Say a mistake in the options, or show the help that a bare command gives; the exit code."""
    from ..hardware.shown import printable
    from .option_mistakes import option_mistake

    line = option_mistake(error)
    if line is None:
        error.show()  # type: ignore[attr-defined]  # of typer's own errors, whose type it keeps to itself
    else:
        typer.echo(printable(line), err=True)
    return int(getattr(error, "exit_code", BAD_INPUT))


if __name__ == "__main__":
    main()
