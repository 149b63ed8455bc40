"""One command in a child of this process: how it ended, what it printed, which files it left.

The parent has imported the program, so that a child begins in milliseconds. Knows processes, their limits of
time and memory, and nothing of what a command should print.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HANG_S = 20.0
"""No command that is asked here may take longer; work that would is refused with an estimate."""

ASLEEP = 6
"""Times ``HANG_S`` that a command may take by the clock on the wall."""

MEMORY_BYTES = 6 << 30
"""Address space of a child beyond what its parent holds: past it, MemoryError."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended: ``code`` as a shell reports it (128 + signal), or None after ``HANG_S``."""

    words: tuple[str, ...]
    code: int | None
    stdout: str
    stderr: str
    seconds: float


def outcome(words: Sequence[str], folder: Path, *, hang_s: float = HANG_S) -> Outcome:
    """Run ``stepsim *words`` in a child whose working folder is ``folder``."""
    shown = {name: folder / f".{name}" for name in ("stdout", "stderr")}
    began = time.perf_counter()
    child = os.fork()
    if child == 0:
        _run(words, folder, shown)
    code = _wait(child, hang_s)
    text = {name: _text(path) for name, path in shown.items()}
    return Outcome(words=tuple(words), code=code, seconds=time.perf_counter() - began, **text)


def _text(path: Path) -> str:
    return path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""


def _wait(child: int, hang_s: float) -> int | None:
    """The exit code of ``child``; None after it was killed because its time was over.

    Its own seconds count, since others may want the cores, too; and whoever only sleeps has no end either.
    """
    watched = os.pidfd_open(child)
    began, ended = time.monotonic(), False
    try:
        while not ended and _cpu_s(child) < hang_s and time.monotonic() - began < ASLEEP * hang_s:
            ended = bool(select.select([watched], [], [], 1.0)[0])
        if not ended:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(watched)
    if not ended:
        return None
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _cpu_s(process: int) -> float:
    """Seconds that a process, and those of its children that have ended, were on a core."""
    words = (
        Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    )
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def _run(words: Sequence[str], folder: Path, shown: dict[str, Path]) -> None:
    """The child: never returns."""
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(folder)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(shown[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        held = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_BYTES, held + MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
        sys.argv = ["stepsim", *words]
        code = _main()
    except BaseException:  # whatever gets out of the program is what we look for
        traceback.print_exc()
        code = 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 74
        os._exit(code & 0xFF)


def _main() -> int:
    from stepsim.cli.main import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0
