"""Who does the replays: this process, and a pool of forked ones; a Ray cluster is sim/plan/search/on_ray.py.

Knows tasks and their order, not what they are. Results come in the order of the tasks, and workers are ahead
of the one that is awaited by a few, so that whoever takes them may stop early.
"""

from __future__ import annotations

import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

Task = TypeVar("Task", contravariant=True)
Done = TypeVar("Done")

AHEAD = 2
"""Tasks in flight for each worker: the next one is at hand when one is done."""

POOL_ABOVE_S = 0.1
"""Work of this process before it starts a pool: forks and pipes take about a third of that."""


class Workers(Protocol[Task, Done]):
    """Runs one function on tasks."""

    def run(self, tasks: Iterable[Task], *, every: bool = False) -> Generator[Done, None, None]:
        """Results in the order of ``tasks``, each computed when it is asked for or a little before; where
        ``every`` one will be asked for, as soon as somebody has nothing else to do, and in any order."""
        ...

    def begin(self, tasks: Iterable[Task]) -> None:
        """Begin with tasks that will be asked for, where that takes no time here."""
        ...

    def spared(self) -> list[Done]:
        """What was computed ahead and not asked for, each once."""
        ...

    def close(self) -> None:
        """Let everything go; what is in flight is dropped."""
        ...


@dataclass
class Local(Generic[Task, Done]):
    """This process, and from some work on a pool of ``jobs`` forked ones beside it."""

    function: Callable[[Task], Done]
    jobs: int
    after_s: float = POOL_ABOVE_S
    _spent_s: float = 0.0
    _spare: list[tuple[Task, Future[Done]]] = field(default_factory=list, repr=False)
    _pool: ProcessPoolExecutor | None = field(default=None, repr=False)

    def run(self, tasks: Iterable[Task], *, every: bool = False) -> Generator[Done, None, None]:
        waiting = iter(tasks)
        for task in waiting:
            if self.jobs > 1 and self._spent_s >= self.after_s and (pool := self._started()):
                yield from self._by_pool(pool, itertools.chain([task], waiting), every)
                return
            began = time.perf_counter()
            done = self.function(task)
            self._spent_s += time.perf_counter() - began
            yield done

    def begin(self, tasks: Iterable[Task]) -> None:
        if (pool := self._pool) is not None:
            self._spare += [(task, self._begun(pool, task)) for task in tasks]

    def spared(self) -> list[Done]:
        done = [future for _, future in self._spare if future.done()]
        self._spare = [one for one in self._spare if not one[1].done()]
        return [future.result() for future in done if not future.cancelled() and future.exception() is None]

    def close(self) -> None:
        if self._pool is not None:
            _end(self._pool)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor | None:
        if self._pool is None and _may_fork():
            self._pool = ProcessPoolExecutor(
                self.jobs,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_begin_worker,
                initargs=(self.function,),
            )
        return self._pool

    def _by_pool(
        self, pool: ProcessPoolExecutor, tasks: Iterable[Task], every: bool
    ) -> Generator[Done, None, None]:
        flying: deque[tuple[Task, Future[Done]]] = deque()
        try:
            for task in tasks:
                flying.append((task, self._begun(pool, task)))
                if len(flying) > AHEAD * self.jobs and not every:
                    yield flying.popleft()[1].result()
            while flying:
                if every:
                    flying.rotate(-_first_done([future for _, future in flying]))
                yield flying.popleft()[1].result()
        finally:
            self._spare += [one for one in flying if not one[1].cancel()]

    def _begun(self, pool: ProcessPoolExecutor, task: Task) -> Future[Done]:
        """What a worker has done or is about to do, or begins with now."""
        for place, (known, future) in enumerate(self._spare):
            if known == task:
                del self._spare[place]
                return future
        with warnings.catch_warnings():  # of threads, of which this process has none of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            return pool.submit(_work, task)


def _first_done(futures: Sequence[Future[Any]]) -> int:
    """The place of one that is done, when there is one."""
    wait(futures, return_when=FIRST_COMPLETED)
    return next(place for place, future in enumerate(futures) if future.done())


_function: Callable[[Any], Any] | None = None


def _begin_worker(function: Callable[[Any], Any]) -> None:
    """Ctrl-C is for the process that started this one, which prints what it has and ends it."""
    global _function
    _function = function
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that was killed cannot end its workers, and these would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(task: Any) -> Any:
    assert _function is not None
    return _function(task)


def _end(pool: ProcessPoolExecutor) -> None:
    """Do not wait for what nobody wants any more."""
    processes = [*(getattr(pool, "_processes", None) or {}).values()]
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _may_fork() -> bool:
    """Forks are safe on Linux, and where no other thread can hold a lock."""
    return sys.platform == "linux" and threading.active_count() == 1
