"""How a command ends when its user made a mistake: the message alone on stderr, and exit code 2.

The package raises ValueError for input that is wrong or cannot be modelled, and the system OSError
for files. STEPSIM_TRACEBACK=1 lets both through, for whoever suspects the program instead.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import ParamSpec

import typer

BAD_INPUT = 2
READER_GONE = 141  # what a shell reports for a process that SIGPIPE ended

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with its user's mistakes reported; its signature stays visible to typer."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader (head, a pager) has left: no error, but Python would flush again while it exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(READER_GONE) from None
        except (ValueError, OSError) as mistake:
            if os.environ.get("STEPSIM_TRACEBACK"):
                raise
            typer.echo(f"stepsim: {mistake}", err=True)
            raise typer.Exit(BAD_INPUT) from None

    return guarded
