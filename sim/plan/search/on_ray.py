"""Replays on a Ray cluster: the one that RAY_ADDRESS names, else one on this machine.

Knows tasks, and how a cluster fails: it cannot be reached, a node has another stepsim or lacks a file, a
worker is lost. Does not know what tasks are. Ray itself runs a task again whose worker or node was lost.
"""

from __future__ import annotations

import itertools
import logging
import os
import platform
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic

from .workers import AHEAD, Done, Task

if TYPE_CHECKING:
    from types import ModuleType

RETRIES = 3
"""Times that a task begins again when its worker is lost: a node goes now and then, but a task that takes
every worker with it is to blame itself."""

NOT_IMPORTED = "The remote function failed to import"
"""How Ray begins to say that a node has no module of that name (ray/_private/function_manager.py)."""


class ClusterError(ValueError):
    """What is wrong with a cluster, for its user."""


@contextmanager
def connected(wanted: bool) -> Iterator[None]:
    """Hold one connection to Ray for all searches inside, which takes seconds to make; nothing if not
    ``wanted``.

    Raises ClusterError without ray, or where there is no such cluster.
    """
    ours = wanted and _connect(_ray())
    try:
        yield
    finally:
        if ours:
            _ray().shutdown()


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise ClusterError("--ray needs ray: pip install 'stepsim[cluster]'") from None
    module: ModuleType = ray
    return module


def _connect(ray: ModuleType) -> bool:
    """Whether this process was without a connection, and has one now."""
    if ray.is_initialized():
        return False
    try:
        ray.init(log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
    except Exception as failed:  # Ray has no class for it: ValueError, ConnectionError, RuntimeError, ...
        address = os.environ.get("RAY_ADDRESS")
        where = f"at {address} (RAY_ADDRESS)" if address else "on this machine"
        raise ClusterError(f"--ray: no Ray cluster {where}: {_first_line(failed)}") from failed
    except BaseException:
        ray.shutdown()  # of a cluster half started
        raise
    return True


@dataclass(frozen=True)
class Shipped(Generic[Task, Done]):
    """What is sent to workers: the function, and what tells whether results would be the same there:
    ``made_of`` gives what they are made of as a text, which is ``here`` on this machine.
    """

    function: Callable[[Task], Done]
    made_of: Callable[[], str]
    here: str

    def checked(self) -> Callable[[Task], Done]:
        """The function. Raises ClusterError where its results would be others."""
        try:
            there = self.made_of()
        except ValueError as missing:
            raise ClusterError(f"--ray: on node {platform.node()}: {missing}") from None
        if there != self.here:
            raise ClusterError(
                f"--ray: node {platform.node()} has another version of stepsim, or other contents of a file "
                "that the scenario names; all nodes need the same"
            )
        return self.function


@dataclass
class OnRay(Generic[Task, Done]):
    """A Ray cluster, which runs ``jobs`` tasks at a time (None: as many as it has cores, with the next at
    hand). ``made_of`` says what results are made of, here or on a node.

    Raises ClusterError without ray, and where no cluster is to be had.
    """

    function: Callable[[Task], Done]
    made_of: Callable[[], str]
    jobs: int | None = None
    _late: list[Any] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._ray = _ray()
        self._ours = _connect(self._ray)
        shipped = Shipped(self.function, self.made_of, self.made_of())
        # In a list it arrives as a reference, which a worker follows once and not for every task.
        self._box = [self._ray.put(shipped)]
        self._remote = self._ray.remote(max_retries=RETRIES)(_work)

    def run(self, tasks: Iterable[Task], *, every: bool = False) -> Generator[Done, None, None]:
        flying: deque[Any] = deque()
        try:
            for task in tasks:
                flying.append(self._remote.remote(self._box, task))
                if len(flying) >= self._most() and not (every and self.jobs is None):
                    yield self._result(flying.popleft())
            while flying:
                yield self._result(flying.popleft())
        finally:
            self._leave(flying)

    def spared(self) -> list[Done]:
        if not self._late:
            return []
        ready, self._late = self._ray.wait(self._late, num_returns=len(self._late), timeout=0)
        return [*itertools.chain.from_iterable(map(self._if_any, ready))]

    def close(self) -> None:
        self._cancel(self._late)
        self._late = []
        if self._ours:
            self._ray.shutdown()

    def _most(self) -> int:
        """The most tasks in flight: ``jobs``, or one more than AHEAD for each core that the cluster has by
        now, since nodes may have joined."""
        return self.jobs or AHEAD * self._cores() + 1

    def _cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _leave(self, flying: Iterable[Any]) -> None:
        """Let the tasks that are at work end, whose results may be asked for again, and no other begin."""
        left = [*flying]
        if not left:
            return
        _, waiting = self._ray.wait(left, num_returns=len(left), timeout=0)
        never = set(waiting[self.jobs or self._cores() :])
        self._cancel(never)
        self._late += [one for one in left if one not in never]

    def _cancel(self, unwanted: Iterable[Any]) -> None:
        for one in unwanted:
            self._ray.cancel(one)

    def _result(self, reference: Any) -> Done:
        """The result of one task. Raises what the task raised, and ClusterError for what befell its
        workers."""
        from ray.exceptions import RayError, RayTaskError

        try:
            done: Done = self._ray.get(reference)
        except RayTaskError as failed:
            if isinstance(failed.cause, RayError) or str(failed.cause).startswith(NOT_IMPORTED):
                raise ClusterError(
                    f"--ray: a node has no stepsim, or another version: {_first_line(failed.cause)}"
                ) from failed
            raise failed.cause from failed
        except RayError as lost:
            raise ClusterError(
                f"--ray: the workers of a replay were lost, {RETRIES + 1} in turn: {_first_line(lost)}"
            ) from lost
        return done

    def _if_any(self, reference: Any) -> list[Done]:
        """The result of a task that nobody waits for, in a list, which is empty where the task failed."""
        from ray.exceptions import RayError

        try:
            return [self._ray.get(reference)]
        except RayError:
            return []


_held: tuple[str, Callable[[Any], Any]] | None = None
"""In a worker: the function that was sent last, by the name of its object."""


def _work(box: list[Any], task: Any) -> Any:
    """Run a task in a worker by the function in ``box``, which is checked once and kept for the next."""
    global _held
    (reference,) = box
    name = reference.hex()
    if _held is None or _held[0] != name:
        _held = name, _ray().get(reference).checked()
    try:
        return _held[1](task)
    except BaseException:
        _held = None  # cancelled, perhaps in the middle of what it was to keep
        raise


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
