"""Operations of a training step that wait for one another, replayed for all replicas and steps at once.

Knows an order of waiting and durations, as a log gives them; knows neither files nor how kernels share a GPU.
Data-parallel replicas and steps have the same graph, so that every operation is one array over them.

References:
    Lin et al. 2025, "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI'25,
    arXiv:2505.05713, section 4 (operations, transfer durations, replay).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation of one pipeline rank, in every replica and step.

    ``kind`` (``forward-compute``) says whose usual duration is its own; ``after`` are operations, by number,
    that it waits for. Operations of one ``group`` (None: by itself) begin to move when the last of them has
    started; where it ``joins_replicas``, the last of all replicas. ``communicates``: the usual duration of
    its kind is a median, as the paper takes it for communication, else a mean. The step is over with the
    last that ``ends_step``.
    """

    kind: str
    stage: int
    after: tuple[int, ...] = ()
    group: int | None = None
    joins_replicas: bool = False
    communicates: bool = False
    ends_step: bool = False


@dataclass(frozen=True, kw_only=True)
class Operations:
    """All operations of one replica's pipeline.

    Raises:
        ValueError: operations that wait for one another in a circle, or none that ends the step.
    """

    all: tuple[Operation, ...]

    def __post_init__(self) -> None:
        if not any(operation.ends_step for operation in self.all):
            raise ValueError("no operation ends the step")
        assert self._order is not None  # raises ValueError for a circle

    def step_times_s(self, own_s: Seconds) -> Seconds:
        """Seconds of each step, from 0 to the end of the last operation.

        ``own_s[operation, replica, step]`` is how long each takes by itself: a kernel's duration, and of
        communication the seconds from the last start of its group to its end.
        """
        self.check(own_s)
        end: list[Seconds] = [np.zeros(0)] * len(self.all)
        for members in self._order:
            start = np.maximum.reduce([self._start(v, end, own_s) for v in members])
            if self.all[members[0]].joins_replicas:
                start = np.broadcast_to(start.max(axis=0), start.shape)
            for v in members:
                end[v] = start + own_s[v]
        last = [end[v] for v, operation in enumerate(self.all) if operation.ends_step]
        found: Seconds = np.maximum.reduce(last).max(axis=0)
        return found

    def check(self, own_s: Seconds) -> None:
        """ValueError for durations of another shape than (operations, replicas, steps)."""
        if own_s.ndim != 3 or len(own_s) != len(self.all):
            wanted = f"({len(self.all)}, replicas, steps)"
            raise ValueError(f"durations of shape {wanted} needed, not {own_s.shape}")

    def _start(self, v: int, end: Sequence[Seconds], own_s: Seconds) -> Seconds:
        start: Seconds = np.maximum.reduce([np.zeros(own_s.shape[1:]), *(end[u] for u in self.all[v].after)])
        return start

    @cached_property
    def _order(self) -> tuple[tuple[int, ...], ...]:
        """Groups of operations, each behind all that its members wait for."""
        from graphlib import CycleError, TopologicalSorter

        members = self._members
        of = {v: key for key, group in members.items() for v in group}
        waits = {key: {of[u] for v in group for u in self.all[v].after} for key, group in members.items()}
        try:
            return tuple(members[key] for key in TopologicalSorter(waits).static_order())
        except CycleError as error:
            circle = ", ".join(self.all[members[key][0]].kind for key in error.args[1])
            raise ValueError(f"operations wait for one another in a circle: {circle}") from None

    @cached_property
    def _members(self) -> Mapping[tuple[int, bool], tuple[int, ...]]:
        """Operations that begin together; one by itself has a key of its own."""
        found: dict[tuple[int, bool], list[int]] = {}
        for v, operation in enumerate(self.all):
            single = operation.group is None
            found.setdefault((v if operation.group is None else operation.group, single), []).append(v)
        return {key: tuple(group) for key, group in found.items()}
