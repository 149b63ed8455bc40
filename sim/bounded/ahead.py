"""How much sooner a step may end than one in which a tensor-parallel group is as slow as its slowest member.

A way through that step is a way of ranks, too, on which a member may be chosen anew wherever all of a group
are awaited. Between two such places it is one member, and its likes in other stages and replicas whom it
meets. Kernels there take less where it is not the slowest; and it may be the slowest of any one stage. So
what a way loses in between is at most what all stages on it lose but for the one that loses most. Knows
graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .edges import NEVER

if TYPE_CHECKING:
    from .edges import LayerEdges
    from .graph import StepGraph

State = tuple[float, float, float, int]
"""What a way up to a place loses: for good; since a group was awaited last, what the stage that loses most of
those that it has left would lose; what the one that it is in does; and which one that is.
"""

NOWHERE = -1
"""The stage of a way that has left all that it was in."""

START: State = (0.0, 0.0, 0.0, NOWHERE)

MOST_STATES = 6
"""Of a place: of more than these one is made that loses no less."""


def ahead_s(graph: StepGraph, spread: Sequence[float]) -> float:
    """Seconds by which the step of ``graph`` may be sooner at most, where the factors of a group in a stage
    differ by ``spread``. A message leaves no stage: a way goes on behind it in that of either end, or in the
    one that it is in, which awaited it.
    """
    if not any(spread):
        return 0.0
    count = len(graph.nodes)
    start: list[list[State]] = [[]] * count
    end: list[list[State]] = [[]] * count
    for step in graph.order:
        if step < count:
            node = graph.nodes[step]
            before = [state for b in node.before for state in end[b]] or [START]
            if node.message:
                behind = _most(before)
            else:
                inside = [_entering(state, node.stage) for state in before]
                behind = _most(_through(node.edges, inside, spread[node.stage]))
            if step in graph.meet:
                start[step] = _most([_left(state) for state in behind])
            else:
                end[step] = behind
            continue
        members = graph.meetings[step - count].nodes
        met = _most([state for n in members for state in start[n]])
        for n in members:
            end[n] = _most(end[n] + met) if end[n] else met
    return max((_left(state)[0] for states in end for state in states), default=0.0)


def _through(edges: LayerEdges, before: Iterable[State], spread: float) -> list[State]:
    """The states behind an op, those of the ones before it given, in its stage."""
    found = []
    for lost_s, left_s, here_s, stage in before:
        if edges.through_s > NEVER:
            found.append((lost_s, left_s, here_s + spread * edges.through_s, stage))
        if edges.head_s > NEVER:
            chosen_s = min(left_s, here_s + spread * edges.head_s)
            found.append((lost_s + chosen_s, 0.0, spread * edges.tail_s, stage))
    return found


def _entering(state: State, stage: int) -> State:
    """A state as its way enters an op of a stage, which may be the one that it is in."""
    if state[3] == stage:
        return state
    lost_s, left_s, here_s, _ = _left(state)
    return lost_s, left_s, here_s, stage


def _left(state: State) -> State:
    """A state as its stage is left."""
    lost_s, left_s, here_s, _ = state
    return lost_s + min(left_s, here_s), max(left_s, here_s), 0.0, NOWHERE


def _most(states: list[State]) -> list[State]:
    """Those of ``states`` that another of the same stage does not exceed in everything."""
    if len(states) == 1:
        return states
    found: list[State] = []
    for state in sorted(set(states), reverse=True):
        _, left_s, here_s, stage = state
        if not any(left_s <= left and here_s <= here and stage == at for _, left, here, at in found):
            found.append(state)
    if len(found) <= MOST_STATES:
        return found
    lost, left, here, _ = zip(
        *(found if len({at for *_, at in found}) == 1 else map(_left, found)), strict=True
    )
    return [(max(lost), max(left), max(here), found[0][3] if any(here) else NOWHERE)]
