"""Independent numbers computed at the same time: in forked children, beside what the caller does meanwhile.

Knows no simulation. A child inherits all that the caller has built, so nothing is sent to it, and what it
finds is one number. Numbers that no child delivers, since there is none or it died or raised, the caller
computes itself: the result is the same, and so is the error.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

Task = Callable[[], float]

MOST_TASKS = 256
"""That children may take: the number of a task is a byte in the queue."""

FOUND = struct.Struct("<Bd")
"""Of a task: its number, and what it gave; less than a pipe writes at once."""


@contextmanager
def in_children(tasks: Sequence[Task], *, worth_it: bool = True) -> Iterator[Callable[[], tuple[float, ...]]]:
    """Start ``tasks`` in children, one for every core but one; call what it gives for all their numbers.

    Whoever is free takes the next task, the caller too once it asks for the numbers. Without ``worth_it``,
    and wherever a fork is not safe, the caller computes all of them.
    """
    children = min(len(tasks), cores() - 1) if worth_it and may_fork() else 0
    if not children:
        yield lambda: tuple(task() for task in tasks)
        return
    queue, fill = os.pipe()
    results, deliver = os.pipe()
    os.write(fill, bytes(range(min(len(tasks), MOST_TASKS))))
    os.close(fill)
    started = [pid for _ in range(children) if (pid := _child(tasks, queue, deliver)) is not None]
    os.close(deliver)
    try:
        yield lambda: _all_of(tasks, queue, results)
    finally:
        os.close(queue)
        os.close(results)
        for pid in started:
            with suppress(ProcessLookupError, ChildProcessError):  # where a host process reaps all children
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _all_of(tasks: Sequence[Task], queue: int, results: int) -> tuple[float, ...]:
    """Help with what nobody has taken, wait for the children, and do what they did not deliver."""
    found: dict[int, float] = {}
    while taken := os.read(queue, 1):
        found[taken[0]] = tasks[taken[0]]()
    while row := os.read(results, FOUND.size):
        number, value = FOUND.unpack(row)
        found[number] = value
    return tuple(found[i] if i in found else task() for i, task in enumerate(tasks))


def _child(tasks: Sequence[Task], queue: int, deliver: int) -> int | None:
    """Fork a child; its process id, or None where there is no room for one."""
    try:
        with warnings.catch_warnings():  # of threads of numpy's libraries, which no task uses
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
    except OSError:
        return None
    if pid:
        return pid
    try:
        while taken := os.read(queue, 1):
            os.write(deliver, FOUND.pack(taken[0], tasks[taken[0]]()))
    finally:
        os._exit(0)  # nothing of the caller's is run or flushed twice, and no traceback printed


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def may_fork() -> bool:
    """Forks are safe on Linux, and where no other thread can hold a lock."""
    return sys.platform == "linux" and threading.active_count() == 1
