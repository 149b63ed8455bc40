"""Ctrl-C that arrives where Python cannot raise is not lost."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import signal, sys, time
from stepsim.cli import main

class Slow:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

sys.unraisablehook = main._interrupt_again
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
try:
    one = Slow()
    del one
    for _ in range(200):
        time.sleep(0.01)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_in_a_finalizer_comes_again() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 130
    assert ended.stderr == b""
