"""Processes that do the work: warm, few, and killed where nobody waits any more or time is up.

Knows processes and their pipes. Does not know what they are asked, nor HTTP. Each worker serves one request
at a time and keeps what it has computed for the next one; the one used last is asked first, since its
tables are those of the job that is being changed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from . import worker

PRELOAD = f"{__package__}.preload"

GRACE_S = 1.0
"""A worker whose answer is not wanted any more may finish in it, and keep its tables: whoever types fast
asks for much that nobody waits for."""

MOST_WAITING = 32
"""Requests that wait for a worker; more are refused."""

REQUESTS = 400
"""A worker ends after so many: its tables grow."""


class Busy(Exception):
    """Too many requests wait."""


class TimeIsUp(Exception):
    """The worker was killed at the request's limit, or died by itself."""


@dataclass(eq=False)
class WorkerProcess:
    """A process, its pipe and what has come through it: messages, ``DONE`` after each request, None at its
    end."""

    process: BaseProcess
    pipe: Connection
    messages: asyncio.Queue[bytes | None]
    served: int = 0

    def kill(self) -> None:
        """End it and all that it has started."""
        pid = self.process.pid
        if pid is not None and sys.platform != "win32":
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        self.process.kill()


def start_worker() -> WorkerProcess:
    """A new process, forked from one that has loaded everything where the system can."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    if "forkserver" in methods:
        context.set_forkserver_preload([PRELOAD])
    ours, theirs = context.Pipe()
    process = context.Process(target=worker.serve, args=(theirs,))  # type: ignore[attr-defined]
    process.start()
    theirs.close()
    found = WorkerProcess(process=process, pipe=ours, messages=asyncio.Queue())
    threading.Thread(target=_listen, args=(found, asyncio.get_running_loop()), daemon=True).start()
    return found


def _listen(one: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
    """Hand what comes through the pipe to the loop; a thread, since half a message would block the loop."""
    message: bytes | None = b""
    while message is not None:
        try:
            message = one.pipe.recv_bytes()
        except (EOFError, OSError):
            message = None
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(one.messages.put_nowait, message)


@dataclass
class PageWorkers:
    """``size`` workers at most. Used within one event loop, between ``begin`` and ``close``."""

    size: int
    _idle: list[WorkerProcess] = field(default_factory=list)
    _all: set[WorkerProcess] = field(default_factory=set)
    _waiting: int = 0
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    async def begin(self) -> None:
        """Start the workers; whoever asks before they are loaded waits for them."""
        self._free = asyncio.Semaphore(self.size)
        self._idle = [self._started() for _ in range(self.size)]

    async def close(self) -> None:
        """Kill them all."""
        for task in self._ending:
            task.cancel()
        self.kill()
        for one in self._all:
            await asyncio.to_thread(one.process.join, 5.0)

    def kill(self) -> None:
        """Kill them all without waiting: Python would wait for them as it exits."""
        for one in self._all:
            one.kill()

    async def ask(self, name: str, body: Mapping[str, Any], limit_s: float) -> AsyncIterator[bytes]:
        """The messages that answer a request, each as JSON.

        A reader that leaves early has the worker killed. Busy where too many wait, TimeIsUp after
        ``limit_s``.
        """
        if self._waiting >= MOST_WAITING:
            raise Busy
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        one = self._idle.pop() if self._idle else self._started()
        finished = False
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.to_thread(one.pipe.send, (name, dict(body), limit_s))
                while (message := await one.messages.get()) != worker.DONE:
                    if message is None:
                        raise TimeIsUp
                    yield message
            finished = True
        except (TimeoutError, BrokenPipeError) as error:
            raise TimeIsUp from error
        finally:
            one.served += 1
            if finished and one.served < REQUESTS:
                self._idle.append(one)
                self._free.release()
            else:
                task = asyncio.get_running_loop().create_task(self._end(one))
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)

    async def _end(self, one: WorkerProcess) -> None:
        """Let a worker finish what nobody reads, or replace it; its place is free only then."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_S):
                    while (message := await one.messages.get()) is not None:
                        if message == worker.DONE and one.served < REQUESTS:
                            self._idle.append(one)
                            return
            one.kill()
            self._all.discard(one)
            await asyncio.to_thread(one.process.join, 5.0)
            one.pipe.close()
            self._idle.insert(0, self._started())
        finally:
            self._free.release()

    def _started(self) -> WorkerProcess:
        one = start_worker()
        self._all.add(one)
        return one
