"""How much sooner a step may end than one in which a tensor-parallel group is as slow as its slowest member.

A bounded replay runs one rank for each tensor-parallel group, as slow as the slowest member in every kernel.
The real step may be shorter: between two places where the whole group waits for one another, a path through
the step follows one member, which need not be the slowest. At each such place the path may go on with another
member.

What a path loses between two such places is at most the sum of what all stages on it lose, without the stage
that loses most: its member may be the slowest of that one stage. Knows graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .layer_edges import NEVER

if TYPE_CHECKING:
    from .graph import StepGraph
    from .layer_edges import LayerEdges

State = tuple[float, float, float, int]
"""What a path up to some place loses, in four parts.

First the seconds that it has lost for good. Then, since the group was last awaited: the seconds of the stage
that loses most among those that the path has left, the seconds of the stage that it is in, and the number of
that stage.
"""

NOWHERE = -1
"""The stage of a path that has left every stage it was in."""

START: State = (0.0, 0.0, 0.0, NOWHERE)

MOST_STATES = 6
"""States that are kept of one place. Where there are more, one state takes their place that loses no less."""


def member_slack_s(graph: StepGraph, spread: Sequence[float]) -> float:
    """How many seconds shorter the step of ``graph`` may be at most.

    ``spread`` gives for each stage by how much the speed factors of the members of its tensor-parallel group
    differ. A message belongs to no stage: behind it a path continues in the stage of either end, or in the
    stage that it was in, which waited for the message.
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
        members = graph.rendezvous[step - count].nodes
        met = _most([state for n in members for state in start[n]])
        for n in members:
            end[n] = _most(end[n] + met) if end[n] else met
    return max((_left(state)[0] for states in end for state in states), default=0.0)


def _through(edges: LayerEdges, before: Iterable[State], spread: float) -> list[State]:
    """The states behind an op, from those before it, which are already in the stage of the op."""
    found = []
    for lost_s, left_s, here_s, stage in before:
        if edges.through_s > NEVER:
            found.append((lost_s, left_s, here_s + spread * edges.through_s, stage))
        if edges.head_s > NEVER:
            chosen_s = min(left_s, here_s + spread * edges.head_s)
            found.append((lost_s + chosen_s, 0.0, spread * edges.tail_s, stage))
    return found


def _entering(state: State, stage: int) -> State:
    """The state of a path as it enters an op of ``stage``, in which it may be already."""
    if state[3] == stage:
        return state
    lost_s, left_s, here_s, _ = _left(state)
    return lost_s, left_s, here_s, stage


def _left(state: State) -> State:
    """The state of a path as it leaves its stage."""
    lost_s, left_s, here_s, _ = state
    return lost_s + min(left_s, here_s), max(left_s, here_s), 0.0, NOWHERE


def _most(states: list[State]) -> list[State]:
    """The states that no other of the same stage equals or exceeds in every part, at most ``MOST_STATES``."""
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
