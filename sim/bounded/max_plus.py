"""One pass over a step's graph for many replicas at once: when each arrives where replicas meet.

Times are arrays over replicas; an op starts at the maximum of what it waits for, and a meeting of replicas
begins at the maximum over all. Contention is that of the healthy replay, so this is no prediction: it says
which replicas others wait for. Knows graphs and factors; replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .graph import StepGraph

    Seconds = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pass:
    """By meeting of replicas, the end of the step the last: when each replica arrives
    (``arrive_s[m, ..., u]``), and when the meeting begins (``begin_s[m, ...]``), of each set of replicas.
    """

    arrive_s: Seconds
    begin_s: Seconds

    @property
    def step_s(self) -> Seconds:
        """The end of the step, of each set of replicas."""
        end_s: Seconds = self.begin_s[-1]
        return end_s


def max_plus(graph: StepGraph, slow: Seconds, begin_s: Seconds | None = None) -> Pass:
    """Replicas whose kernels take ``slow[..., u, stage]`` times as long meet those of their set; with
    ``begin_s`` each by itself meets those that come then. Whoever waits for others holds SMs meanwhile.
    """
    nodes, count, meet = graph.nodes, len(graph.nodes), graph.meet
    none = np.zeros(0)
    start, end = [none] * count, [none] * count
    own = _own_s(graph, slow)
    arrive: list[Seconds] = []
    holding: dict[int, list[_Window]] = {}
    for step in graph.order:
        if step < count:
            node = nodes[step]
            if node.before:
                at = end[node.before[0]]
                for earlier in node.before[1:]:
                    at = np.maximum(at, end[earlier])
                if node.earliest_s:
                    at = np.maximum(at, node.earliest_s)
            else:
                at = np.full(slow.shape[:-1], node.earliest_s)
            if step in meet:
                start[step] = at
            elif node.lost and node.stage in holding:
                end[step] = _beside(holding[node.stage], at, at + own[step], node.lost)
            else:
                end[step] = at + own[step]
            continue
        meeting = graph.meetings[step - count]
        at = start[meeting.nodes[0]]
        for n in meeting.nodes[1:]:
            at = np.maximum(at, start[n])
        if meeting.crossing:
            arrive.append(at)
            last = at.max(axis=-1, keepdims=True) if begin_s is None else begin_s[len(arrive) - 1]
            at = np.maximum(at, last)
        for n in meeting.nodes:
            then = at + own[n]
            end[n] = np.maximum(end[n], then) if len(end[n]) else then
            if nodes[n].holds:
                holding.setdefault(nodes[n].stage, []).append(_Window(start[n], end[n]))
    arrive.append(np.maximum.reduce(end))
    table = np.array(arrive)
    return Pass(arrive_s=table, begin_s=table.max(axis=-1) if begin_s is None else begin_s)


def _own_s(graph: StepGraph, slow: Seconds) -> list[Seconds]:
    """By node, the seconds of its own work in each replica."""
    known: dict[tuple[int, float, float], Seconds] = {}
    found = []
    for node in graph.nodes:
        key = node.stage, node.fixed_s, node.kernel_s
        if key not in known:
            known[key] = node.fixed_s + node.kernel_s * slow[..., node.stage]
        found.append(known[key])
    return found


class _Window:
    """When each replica holds SMs for a collective, with the first and the last time that any does."""

    def __init__(self, since: Seconds, until: Seconds) -> None:
        self.since, self.until = since, until
        self.first, self.last = float(since.min()), float(until.max())


def _beside(windows: list[_Window], start: Seconds, end: Seconds, lost: float) -> Seconds:
    """The ends of an op that is slower in these windows, which are in the order of their times."""
    first = float(start.min())
    for window in windows:
        if window.last <= first or window.first >= float(end.max()):
            continue
        since = np.maximum(window.since, start)
        left_s, open_s = end - since, window.until - since
        more_s = np.minimum(left_s * (lost / (1 - lost)), open_s * lost)
        end = end + np.where((left_s > 0) & (open_s > 0), more_s, 0.0)
    return end
