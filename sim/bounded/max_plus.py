"""One pass over a step's graph for many replicas at once: when each arrives where replicas meet.

Times are arrays over replicas; an op starts at the maximum of what it waits for, and a rendezvous of replicas
begins at the maximum over all. What shares links or SMs takes as long as in the healthy replay, but for
collectives of several replicas (traffic.py) and kernels beside these, so this is no replay: it says which
replicas others wait for, and by what share of the step. Knows graphs and factors; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .graph import StepGraph, StepNode

    Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The rendezvous of replicas in one step, of each set of replicas; the last one is the end of the step.

    ``arrive_s[m, ..., u]`` is when replica u arrives at rendezvous m, ``begin_s[m, ...]`` when that
    rendezvous begins, and ``sent_s[k, ..., u]`` when message k begins, where that was asked for. All in
    seconds from the start of the step.
    """

    arrive_s: Seconds
    begin_s: Seconds
    sent_s: Seconds | None = None

    @property
    def step_s(self) -> Seconds:
        """The end of the step, of each set of replicas."""
        end_s: Seconds = self.begin_s[-1]
        return end_s


def max_plus(
    graph: StepGraph, slow: Seconds, longer_s: Sequence[float] | None = None, *, sent: bool = False
) -> Pass:
    """When replicas arrive at their rendezvous, where their kernels take ``slow[..., u, stage]`` times as
    long.

    All replicas of a set wait for each other at a rendezvous, and hold SMs while they wait. ``longer_s``
    gives, by rendezvous in their order, the seconds that it takes more than in the healthy step. With
    ``sent``, the result also says when messages begin.
    """
    nodes, count, none = graph.nodes, len(graph.nodes), np.zeros(slow.shape[:-1])
    times = _Times(start=[none] * count, end=[none] * count, own=_own_s(graph, slow), none=none)
    start, end, own, holding, running = times.start, times.end, times.own, times.holding, times.running
    arrive: list[Seconds] = []
    messages: list[Seconds] = []
    for number, before, earliest_s, meets, lost, stage in graph.steps:
        if number < count:
            if before:
                at = _latest(end, before)
                if earliest_s:
                    at = np.maximum(at, earliest_s)
            else:
                at = none + earliest_s
            if meets:
                start[number] = at
            elif lost:
                windows = holding.get(stage)
                end[number] = _beside(windows, at, at + own[number], lost) if windows else at + own[number]
                running[stage] = number, at, lost
            else:
                end[number] = at + own[number]
                if sent and nodes[number].message:
                    messages.append(at)
            continue
        rendezvous = graph.rendezvous[number - count]
        at, more_s = _latest(start, before), 0.0
        if rendezvous.crossing:
            more_s = longer_s[len(arrive)] if longer_s is not None else 0.0
            arrive.append(at)
            at = np.maximum(at, at.max(axis=-1, keepdims=True))
        times.meet([(n, nodes[n]) for n in before], at, more_s)
    last: Seconds = np.maximum.reduce(end)
    arrive.append(last)
    table = np.array(arrive)
    return Pass(arrive_s=table, begin_s=table.max(axis=-1), sent_s=np.array(messages) if sent else None)


@dataclass(kw_only=True)
class _Times:
    """When each node starts and ends, while the pass goes on.

    ``own`` are the seconds of a node's own work, ``none`` is what a node holds that has not ended. By stage,
    ``holding`` are the collectives that hold SMs, and ``running`` is the last kernel that may be slower
    beside them: its node, its start, and the part of the SMs that it would lose.
    """

    start: list[Seconds]
    end: list[Seconds]
    own: list[Seconds | float]
    none: Seconds
    holding: dict[int, list[_Window]] = field(default_factory=dict)
    running: dict[int, tuple[int, Seconds, float]] = field(default_factory=dict)

    def meet(self, members: list[tuple[int, StepNode]], at: Seconds, more_s: float) -> None:
        """Begin a collective of these nodes ``at`` a time; it takes ``more_s`` beside each node's own."""
        for number, node in members:
            then = at + (self.own[number] + more_s) if more_s else at + self.own[number]
            ended = self.end[number]
            self.end[number] = np.maximum(ended, then) if ended is not self.none else then
            if node.holds:
                window = _Window(self.start[number], self.end[number])
                self.holding.setdefault(node.stage, []).append(window)
                if node.stage in self.running:
                    kernel, since, lost = self.running[node.stage]
                    self.end[kernel] = _beside([window], since, self.end[kernel], lost)


def _latest(times: list[Seconds], of: Sequence[int]) -> Seconds:
    """The last of the times of these nodes, in each replica."""
    at = times[of[0]]
    for number in of[1:]:
        at = np.maximum(at, times[number])
    return at


def _own_s(graph: StepGraph, slow: Seconds) -> list[Seconds | float]:
    """By node, the seconds of its own work in each replica, or in all."""
    columns = [np.ascontiguousarray(slow[..., stage]) for stage in range(slow.shape[-1])]
    known: dict[tuple[int, float, float], Seconds | float] = {}
    found = []
    for node in graph.nodes:
        key = node.stage, node.fixed_s, node.kernel_s
        if key not in known:
            known[key] = node.fixed_s + node.kernel_s * columns[node.stage] if node.kernel_s else node.fixed_s
        found.append(known[key])
    return found


class _Window:
    """When each replica holds SMs for a collective, with the first and the last time that any does."""

    def __init__(self, since: Seconds, until: Seconds) -> None:
        self.since, self.until = since, until
        self.first, self.last = float(since.min()), float(until.max())


def _beside(windows: list[_Window], start: Seconds, end: Seconds, lost: float) -> Seconds:
    """The ends of an op that is slower in these windows, which are in the order of their times; those that
    are over when it starts are forgotten, since its rank's other ops start later.
    """
    first = float(start.min())
    while windows and windows[0].last <= first:
        del windows[0]
    for window in windows:
        if window.last <= first or window.first >= float(end.max()):
            continue
        since = np.maximum(window.since, start)
        left_s, open_s = end - since, window.until - since
        more_s = np.minimum(left_s * (lost / (1 - lost)), open_s * lost)
        end = end + np.where((left_s > 0) & (open_s > 0), more_s, 0.0)
    return end
