"""What runs in a worker: requests from a pipe, one after the other, and their messages back.

Knows the pipe, and how a worker ends by itself: with its server, after its time, or beyond its memory.
Does not know what is asked.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from .replies import written
from .tasks import answered

BEAT_S = 0.5
"""Between two looks at the server and at the clock."""

MEMORY_BYTES = 6 * 2**30
"""Address space of a worker. 405B on 16,384 GPUs takes under a tenth of it."""

DONE = b""
"""The message after the last one of a request."""


def serve(pipe: Connection) -> None:
    """Answer until the server has gone."""
    if sys.platform != "win32":
        _alone()
    while True:
        try:
            name, body, limit_s = pipe.recv()
        except (EOFError, OSError):
            return
        _end_after(limit_s)
        try:
            answered(name, body, lambda message: pipe.send_bytes(written(message)))
            pipe.send_bytes(DONE)
        except (BrokenPipeError, ConnectionError):
            return
        finally:
            _end_after(None)


_deadline_s = float("inf")


def _alone() -> None:
    """A group of its own, so that it is killed with all that it starts, and limits that need no server."""
    import resource

    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    parent = os.getppid()

    def beat(*_: Any) -> None:
        if os.getppid() != parent or time.monotonic() > _deadline_s:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    signal.signal(signal.SIGALRM, beat)
    signal.setitimer(signal.ITIMER_REAL, BEAT_S, BEAT_S)


def _end_after(limit_s: float | None) -> None:
    global _deadline_s
    _deadline_s = float("inf") if limit_s is None else time.monotonic() + limit_s
