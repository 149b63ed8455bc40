"""What a command is doing, on stderr: a line that changes on a terminal, elsewhere one every ten seconds.

Meanwhile stdout is kept for the answer: a library that prints there while it works, as Ray does from a thread
of its own when a node is lost, would break the JSON.

A timer interrupts the command for that (SIGALRM, once a second), so that work which reports nothing for a
while is seen to go on, too. Where there is no such signal, or another thread or another user of the timer,
only what is reported is shown.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field

EVERY_S = 10.0
"""Between two lines where nobody looks: in a log."""

LIVE_S = 0.2
"""Between two changes of the line on a terminal."""

BEAT_S = 1.0


@dataclass
class Progress:
    """Called with what is going on; writes it where ``live`` in place, else now and then as a line.

    ``now`` is the clock, in seconds.
    """

    live: bool
    write: Callable[[str], object]
    now: Callable[[], float] = time.monotonic
    text: str = "starting"
    began_s: float = field(init=False)
    wrote_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.now()
        self.wrote_s = self.began_s if not self.live else -LIVE_S

    def __call__(self, text: str) -> None:
        """Show what is being done from now on."""
        from ..hardware.shown import printable_line

        self.text = printable_line(text)
        self.beat()

    def beat(self) -> None:
        """Write what is going on, if it is time to."""
        now = self.now()
        if now - self.wrote_s < (LIVE_S if self.live else EVERY_S):
            return
        self.wrote_s = now
        took = f" ({now - self.began_s:.0f} s)" if now - self.began_s >= EVERY_S else ""
        self.write(f"\r\033[K{self.text}{took}" if self.live else f"stepsim: {self.text}{took}\n")

    def done(self) -> None:
        """Take the line of a terminal away."""
        if self.live:
            self.write("\r\033[K")


@contextmanager
def progress() -> Iterator[Progress]:
    """Progress of what runs inside, gone when that ends; what is printed meanwhile goes to stderr."""
    shown = Progress(live=sys.stderr is not None and sys.stderr.isatty(), write=_to_stderr)
    try:
        with _beating(shown.beat), redirect_stdout(sys.stderr):
            yield shown
    finally:
        shown.done()


@contextmanager
def _beating(beat: Callable[[], None]) -> Iterator[None]:
    """Call ``beat`` every second while something runs."""
    alone = threading.current_thread() is threading.main_thread()
    if not alone or not hasattr(signal, "setitimer") or any(signal.getitimer(signal.ITIMER_REAL)):
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: beat())
    signal.setitimer(signal.ITIMER_REAL, BEAT_S, BEAT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _to_stderr(text: str) -> None:
    """Progress is not worth an error: of a closed stderr, or one that was being written to just then."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, RuntimeError, ValueError):
        return
