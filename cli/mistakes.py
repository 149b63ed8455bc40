"""How a command ends when something went wrong: one message on stderr, and an exit code to rely on.

0 done; 1 the answer is no; 2 the input is wrong, or the machine cannot (a full disk, no memory); 3 a defect
of stepsim; 130 interrupted; 141 the reader of the output has left. Which of 2 and 3 an error is is for
sim/defects.py to say. STEPSIM_TRACEBACK=1 prints the traceback besides.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import ParamSpec

import typer

from .exit_codes import BAD_INPUT, DEFECT, INTERRUPTED, READER_GONE

_LONGEST_LINE = 1200  # a known name and all others of its kind fit
_MOST_LINES = 100  # of twenty problems, three or four each

P = ParamSpec("P")


def reported(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with its errors reported; its signature stays visible to typer.

    What it reads and writes is recorded, so that no input is overwritten (hardware/files/scope.py).
    """

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        from ..hardware.files import one_command

        with _noted_interrupts() as interrupts:
            try:
                with one_command():
                    command(*args, **kwargs)
                if sys.stdout is not None:
                    sys.stdout.flush()
            except (Exception, KeyboardInterrupt) as error:
                if _is_ending(error):
                    raise
                raise typer.Exit(reported_error(error, interrupted=bool(interrupts))) from None

    return guarded


@contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Each Ctrl-C as it comes. What it interrupts may answer with an error of its own, which says nothing of
    it: pydantic's SchemaError, where a type was being built."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        signal.default_int_handler(number, frame)

    before = signal.getsignal(signal.SIGINT)
    ours = before is signal.default_int_handler and threading.current_thread() is threading.main_thread()
    if ours:
        signal.signal(signal.SIGINT, note)
    try:
        yield seen
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)


def reported_error(error: BaseException, *, interrupted: bool = False) -> int:
    """Say on stderr what ``error`` means for the user, or that they have ``interrupted``; the exit code."""
    if os.environ.get("STEPSIM_TRACEBACK"):
        import traceback

        _say("".join(traceback.format_exception(error)))
    if isinstance(error, BrokenPipeError):
        drop_output()
        return READER_GONE
    if interrupted or KeyboardInterrupt in (type(error), type(error.__context__)):
        _say("\nstepsim: interrupted")
        return INTERRUPTED
    if isinstance(error, typer.Abort):
        _say("\nstepsim: the input ended before a question was answered; options answer them, too (--help)")
        return BAD_INPUT
    if isinstance(error, MemoryError):
        # Nearly always a size that somebody wrote: so many GPUs, layers or days. The input is to blame.
        _say("stepsim: the memory of this machine is not enough; make the job or what is asked of it smaller")
        return BAD_INPUT
    if isinstance(error, OSError):
        _say(f"stepsim: {_of_the_system(error)}")
        return BAD_INPUT
    from ..sim.defects import defect_text, is_of_the_user

    if is_of_the_user(error):
        _say(user_error_text(error))
        return BAD_INPUT
    _say(defect_text(error))
    return DEFECT


def user_error_text(error: BaseException) -> str:
    """The message of a user's error, no longer than people read: it may quote a value of a megabyte."""
    from ..hardware.shown import clipped, listed

    lines = f"stepsim: {error}".split("\n")
    return listed([clipped(line, _LONGEST_LINE) for line in lines], _MOST_LINES)


def drop_output() -> None:
    """Nobody can have what is still to be printed; without this, Python would try once more as it exits."""
    if sys.stdout is None:
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):  # no file of the system, as under a test
        return
    finally:
        os.close(nowhere)


def _is_ending(error: BaseException) -> bool:
    """Whether it is typer's own way to end: an exit code, or a mistake in the options."""
    return isinstance(error, typer.Exit) or hasattr(error, "exit_code")


def _of_the_system(error: OSError) -> str:
    """Files are named by hardware/files; what has no name here is the output, or a process."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    import errno

    if error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT):
        drop_output()
        return f"cannot write to standard output: {error.strerror}"
    return str(error)


def _say(text: str) -> None:
    from ..hardware.shown import printable

    try:
        typer.echo(printable(text), err=True)
    except OSError:  # stderr cannot be written: the exit code alone has to tell
        return
