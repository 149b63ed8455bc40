"""The processes that do the replays: this one, and a pool of forked ones; a Ray cluster is
sim/plan/search/on_ray.py.

Knows tasks and their order, not what they are. Results come in the order of the tasks, and workers are ahead
of the one that is awaited by a few, so that whoever takes them may stop early.
"""

from __future__ import annotations

import gc
import itertools
import mmap
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from ...children import may_fork

Task = TypeVar("Task", contravariant=True)
Done = TypeVar("Done")

AHEAD = 2
"""Tasks for each worker that are not done: the next one is at hand when one is."""

MOST_LEFT = 4096
"""Tasks after which a mark is used again: many more than are ever in flight."""

POOL_ABOVE_S = 0.1
"""Work of this process before it starts a pool: forks and pipes take about a third of that."""


class Workers(Protocol[Task, Done]):
    """Runs one function on tasks."""

    def run(self, tasks: Iterable[Task], *, every: bool = False) -> Generator[Done, None, None]:
        """Results in the order of ``tasks``, each computed when it is asked for or a little before; where
        ``every`` one will be asked for, as soon as somebody has nothing else to do."""
        ...

    def spared(self) -> list[Done]:
        """What was computed ahead and not asked for, each once."""
        ...

    def close(self) -> None:
        """Let everything go; what is in flight is dropped."""
        ...


def nothing_to_prepare() -> None:
    """Preparation of workers whose functions load nothing."""


@dataclass
class Local(Generic[Task, Done]):
    """This process, and from some work on a pool of ``jobs`` forked ones beside it. ``prepare`` is called
    before these are forked, which then have in common what it loads. ``arrived`` is told what the pool
    has done as soon as it is here, whoever is still awaited: by the pool's own thread."""

    function: Callable[[Task], Done]
    jobs: int
    after_s: float = POOL_ABOVE_S
    prepare: Callable[[], None] = nothing_to_prepare
    arrived: Callable[[Done], None] | None = None
    _spent_s: float = 0.0
    _spare: list[_Flying[Task, Done]] = field(default_factory=list, repr=False)
    _pool: ProcessPoolExecutor | None = field(default=None, repr=False)
    _left: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, MOST_LEFT), repr=False)
    _begun: int = 0

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

    def spared(self) -> list[Done]:
        done = [one for one in self._spare if one.future.done()]
        self._spare = [one for one in self._spare if not one.future.done()]
        ended = [one.future for one in done if not one.future.cancelled() and one.future.exception() is None]
        return [found for future in ended if (found := future.result()) is not LEFT]

    def close(self) -> None:
        if self._pool is not None:
            _end(self._pool)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor | None:
        if self._pool is None and may_fork():
            self.prepare()
            self._pool = ProcessPoolExecutor(
                self.jobs,
                mp_context=multiprocessing.get_context("fork"),
                initializer=_begin_worker,
                initargs=(self.function, self._left),
            )
        return self._pool

    def _by_pool(
        self, pool: ProcessPoolExecutor, tasks: Iterable[Task], every: bool
    ) -> Generator[Done, None, None]:
        flying: deque[_Flying[Task, Done]] = deque()
        try:
            for task in tasks:
                flying.append(self._known(task) or self._submitted(pool, task))
                while not every and flying and not self._waits_for_more(flying):
                    yield self._result(pool, flying.popleft())
            while flying:
                yield self._result(pool, flying.popleft())
        finally:
            for one in flying:
                if not one.future.cancel():
                    self._left[one.mark] = 1
                    self._spare.append(one)

    def _waits_for_more(self, flying: Sequence[_Flying[Task, Done]]) -> bool:
        """Whether the first task is not done and a worker has, or soon will have, nothing else to do: what is
        awaited may take as long as all the others together."""
        while not flying[0].future.done():
            left = [one.future for one in flying if not one.future.done()]
            if len(left) <= AHEAD * self.jobs:
                return True
            wait(left, return_when=FIRST_COMPLETED)
        return False

    def _known(self, task: Task) -> _Flying[Task, Done] | None:
        """What a worker has done or is about to do."""
        for place, one in enumerate(self._spare):
            if one.task == task:
                self._left[one.mark] = 0
                return self._spare.pop(place)
        return None

    def _submitted(self, pool: ProcessPoolExecutor, task: Task) -> _Flying[Task, Done]:
        """What a worker begins with next."""
        self._begun += 1
        mark = self._begun % MOST_LEFT
        self._left[mark] = 0
        with warnings.catch_warnings():  # of threads, of which this process has none of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            future = pool.submit(_work, task, mark)
        if self.arrived is not None:
            future.add_done_callback(self._tell)
        return _Flying(task, mark, future)

    def _tell(self, future: Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None or future.result() is LEFT:
            return
        assert self.arrived is not None
        self.arrived(future.result())

    def _result(self, pool: ProcessPoolExecutor, one: _Flying[Task, Done]) -> Done:
        """The result of a task, which is started again if it was dropped while nothing waited for it."""
        while (found := one.future.result()) is LEFT:
            one = self._submitted(pool, one.task)
        done: Done = found
        return done


class Left(Enum):
    """Stands in place of the result of a task that was left undone, because nobody waited for it any more."""

    LEFT = "left"


LEFT = Left.LEFT
"""What a worker gives for a task that nobody waited for any more when its turn came. A pool hands out some
tasks before their turn, and these cannot be taken back."""


@dataclass(frozen=True, slots=True)
class _Flying(Generic[Task, Done]):
    """A task that a pool has; at the place ``mark`` stands whether nobody waits for it any more."""

    task: Task
    mark: int
    future: Future[Any]


_left: mmap.mmap | None = None
"""In a worker process: shared marks of the tasks that nobody needs any more."""

_function: Callable[[Any], Any] | None = None


def _begin_worker(function: Callable[[Any], Any], left: mmap.mmap) -> None:
    """Prepare a forked worker: Ctrl-C is left to its parent, which prints what it has and ends the worker;
    and objects that the parent made are kept from garbage collection, which would copy their memory."""
    global _function, _left
    gc.freeze()
    _function, _left = function, left
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process that was killed cannot end its workers, and these would wait for tasks for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _work(task: Any, mark: int) -> Any:
    assert _function is not None
    assert _left is not None
    return LEFT if _left[mark] else _function(task)


def _end(pool: ProcessPoolExecutor) -> None:
    """End a pool without waiting for tasks that nobody wants any more."""
    processes = [*(getattr(pool, "_processes", None) or {}).values()]
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
