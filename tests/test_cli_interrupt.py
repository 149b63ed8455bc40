"""Ctrl-C that arrives where Python cannot raise is not lost."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


LOADING = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupting())
from stepsim.cli.start import main

main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["--help"]),
        ("stepsim.cli.commands", ["--help"]),
        ("stepsim.cli.run", ["run", "--help"]),
        ("stepsim.sim.simulate", ["run", "llama3-8b-h100"]),
    ],
)
def test_an_interrupt_while_modules_load_shows_no_traceback(module: str, words: list[str]) -> None:
    command = [sys.executable, "-c", LOADING.replace("MODULE", repr(module)), *words]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 130
    assert b"Traceback" not in ended.stderr
