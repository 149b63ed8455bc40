"""PipeDream's weight stashing: which weights each minibatch meets, and how many a rank keeps."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from stepsim.schedules.orders.action import ActionKind, Order, actions_of
from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get
from stepsim.schedules.pipeline.pipedream import weight_versions


def versions_met(order: Order, kept: int) -> dict[ActionKind, list[int]]:
    """The version that each forward and each backward uses, with a queue of so many, as in optimizer.py.

    A forward takes the newest, a backward the oldest; the step after it adds one and drops the oldest.
    """
    queue = deque([0] * kept, maxlen=kept)
    met: dict[ActionKind, list[int]] = {ActionKind.FORWARD: [], ActionKind.BACKWARD: []}
    for action in actions_of(order):
        forward = action.kind is ActionKind.FORWARD
        met[action.kind].append(queue[-1] if forward else queue[0])
        if not forward:
            queue.append(queue[-1] + 1)
    return met


@given(st.integers(1, 8), st.integers(1, 24))
def test_a_minibatch_meets_the_same_weights_both_ways(p: int, m: int) -> None:
    """Those with the updates of minibatches 0 to k-w-1, w = p-1-r: the gradient is w updates late."""
    shape = Shape(ranks=p, microbatches=m)
    for rank, order in enumerate(get("pipedream").orders(shape)):
        met = versions_met(order, weight_versions(rank, shape))
        assert met[ActionKind.FORWARD] == met[ActionKind.BACKWARD]
        assert met[ActionKind.FORWARD] == [max(0, k - (p - 1 - rank)) for k in range(m)]


@given(st.integers(2, 8), st.integers(2, 24), st.data())
def test_one_version_fewer_mixes_weights(p: int, m: int, data: st.DataObject) -> None:
    shape = Shape(ranks=p, microbatches=m)
    rank = data.draw(st.integers(0, p - 2))
    met = versions_met(get("pipedream").orders(shape)[rank], weight_versions(rank, shape) - 1)
    assert met[ActionKind.FORWARD] != met[ActionKind.BACKWARD]
