"""One pass over a step's graph for many replicas at once: when each arrives where replicas meet.

Times are arrays over replicas; an op starts at the maximum of what it waits for, and a meeting of replicas
begins at the maximum over all. What shares links or SMs takes as long as in the healthy replay, but for
collectives of several replicas (traffic.py) and kernels beside these, so this is no replay: it says which
replicas others wait for, and by what share of the step. Knows graphs and factors; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .graph import StepGraph

    Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """By meeting of replicas, the end of the step the last: when each replica arrives
    (``arrive_s[m, ..., u]``), and when the meeting begins (``begin_s[m, ...]``), of each set of replicas.
    ``sent_s[k, ..., u]`` is when message k begins, where that was asked for.
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
    """Replicas whose kernels take ``slow[..., u, stage]`` times as long meet those of their set. Whoever
    waits for others holds SMs meanwhile. Meetings of replicas, in their order, take ``longer_s`` more than in
    the healthy step; ``sent``: tell when messages begin.
    """
    nodes, count, none = graph.nodes, len(graph.nodes), np.zeros(slow.shape[:-1])
    start, end = [none] * count, [none] * count
    own = _own_s(graph, slow)
    arrive: list[Seconds] = []
    messages: list[Seconds] = []
    holding: dict[int, list[_Window]] = {}
    running: dict[int, tuple[int, Seconds, float]] = {}
    maximum = np.maximum
    for number, before, earliest_s, meets, lost, stage in graph.steps:
        if number < count:
            if before:
                at = end[before[0]]
                for earlier in before[1:]:
                    at = maximum(at, end[earlier])
                if earliest_s:
                    at = maximum(at, earliest_s)
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
        meeting = graph.meetings[number - count]
        at = start[before[0]]
        for n in before[1:]:
            at = maximum(at, start[n])
        more_s = 0.0
        if meeting.crossing:
            more_s = longer_s[len(arrive)] if longer_s is not None else 0.0
            arrive.append(at)
            at = maximum(at, at.max(axis=-1, keepdims=True))
        for n in before:
            then = at + (own[n] + more_s) if more_s else at + own[n]
            end[n] = maximum(end[n], then) if end[n] is not none else then
            node = nodes[n]
            if node.holds:
                window = _Window(start[n], end[n])
                holding.setdefault(node.stage, []).append(window)
                if node.stage in running:
                    k, since, lost = running[node.stage]
                    end[k] = _beside([window], since, end[k], lost)
    last: Seconds = maximum.reduce(end)
    arrive.append(last)
    table = np.array(arrive)
    return Pass(arrive_s=table, begin_s=table.max(axis=-1), sent_s=np.array(messages) if sent else None)


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
