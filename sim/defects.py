"""Whose mistake an error is: the user's, who gets its message, or ours, who must hear of it.

Messages for users are written where they are raised. So an error is the user's if its class is one of ours,
or if it is a ValueError that a ``raise`` statement of ours has thrown; ``int("x")`` or ``array.index(x)``
that fails inside one of our lines is a check that we forgot, and so is whatever a library raises.
"""

from __future__ import annotations

import dis
import re
import traceback
from pathlib import Path
from types import TracebackType

PACKAGE = Path(__file__).parents[1]
FOLDERS = ("calibration", "cli", "hardware", "kernels", "page", "schedules", "sim")
"""Ours; the folder of the package may hold others, as its tests and an environment with its libraries."""

_RAISE = dis.opmap["RAISE_VARARGS"]
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line \d+, in .*\n +(?P<line>.*)')


def is_of_the_user(error: BaseException) -> bool:
    """Whether ``error`` says what is wrong with the input."""
    if type(error).__module__.partition(".")[0] == __name__.partition(".")[0]:
        return isinstance(error, ValueError)
    if not isinstance(error, ValueError):
        return False
    steps = list(_FRAME.finditer(str(error.__cause__ or "")))
    return _raised_by_a_worker(steps) if steps else _raised_by_us(error.__traceback__)


def defect_text(error: BaseException) -> str:
    """What a user reads of a mistake of ours: what it is, where, and what to do about it."""
    steps = traceback.extract_tb(error.__traceback__)
    ours = [step for step in steps if _is_ours(step.filename)]
    where = ""
    if ours:
        name = Path(ours[-1].filename).relative_to(PACKAGE)
        where = f" ({name}:{ours[-1].lineno}, in {ours[-1].name})"
    said = str(error)
    shown = f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
    return (
        f"stepsim: this is a defect of stepsim, and not your mistake: {shown}{where}\n"
        "Please report it where you have stepsim from, with the command, the files that it reads, the output "
        "of stepsim --version, and what the command prints with STEPSIM_TRACEBACK=1 in its environment."
    )


def _raised_by_us(place: TracebackType | None) -> bool:
    """Whether the innermost step is a ``raise`` in a file of ours."""
    if place is None:
        return False
    while place.tb_next is not None:
        place = place.tb_next
    code = place.tb_frame.f_code
    return _is_ours(code.co_filename) and code.co_code[place.tb_lasti] == _RAISE


def _raised_by_a_worker(steps: list[re.Match[str]]) -> bool:
    """The same for an error of another process, whose traceback comes as text, the cause of the error."""
    last = steps[-1]
    return _is_ours(last["file"]) and last["line"].startswith("raise ")


def _is_ours(file: str) -> bool:
    path = Path(file)
    return path.is_relative_to(PACKAGE) and path.relative_to(PACKAGE).parts[0] in FOLDERS
