"""Where a process of ``stepsim`` begins: Ctrl-C while modules are loaded ends it quietly.

Knows nothing of commands; cli/main.py runs them. It is a module of its own since what it guards is the
loading of all others.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from .exit_codes import INTERRUPTED


def main() -> None:
    """Entry point of the script ``stepsim``."""
    # Whoever starts a process that ignores Ctrl-C, as a shell does in the background, has meant it.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _end)
    from .main import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(_number: int, _frame: FrameType | None) -> None:
    """End at once: nothing is written yet, and an exception inside an import would become another one."""
    os._exit(INTERRUPTED)
