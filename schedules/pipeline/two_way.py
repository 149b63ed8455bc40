"""The eight steps that DualPipe and DualPipeV share: microbatches that pass each rank in two lanes.

Lane 0 are microbatches in the first half of their stages, lane 1 those in the second half; a forward of
one lane and a whole backward of the other are run as one. Not a schedule itself.

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 3.2.1;
deepseek-ai/DualPipe 3da1bbe; torch.distributed.pipelining 2.13 ``ScheduleDualPipeV``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from ..orders.action import Action, ActionKind, Order, Overlap, Step

_WORK = {f"{kind}{lane}": (kind, lane) for kind in ActionKind for lane in (0, 1)}
"""Kinds of actions and their lanes as ``_work`` writes them."""

_PAIRS = {"F0&B1": ("F0", "B1"), "F1&B0": ("F1", "B0")}


class Lane(NamedTuple):
    """One of a rank's two stages, and the first of the microbatches that pass it."""

    stage: int
    first: int


def eight_steps(lanes: tuple[Lane, Lane], *, length: int, depth: int, microbatches: int) -> Order:
    """The order of one rank.

    ``length`` R is the number of ranks from an end to the turn, ``depth`` x how many of them lie before
    this one, ``microbatches`` M (2R or more) how many pass each lane.
    """
    # By lane, the next microbatch forwards and the next one backwards.
    following = [(count(lane.first), count(lane.first)) for lane in lanes]
    late: deque[Action] = deque()  # weight gradients put off, of both lanes

    def action(work: str) -> Action:
        if work == "W":
            return late.popleft()
        kind, lane = _WORK[work]
        ahead, back = following[lane]
        stage = lanes[lane].stage
        if kind is ActionKind.FORWARD:
            return Action(stage, kind, next(ahead))
        done = Action(stage, kind, next(back))
        if kind is ActionKind.INPUT_GRAD:
            late.append(Action(stage, ActionKind.WEIGHT_GRAD, done.microbatch))
        return done

    def step(work: str) -> Step:
        if work in _PAIRS:
            forward, backward = _PAIRS[work]
            return Overlap(action(forward), action(backward))
        return action(work)

    return tuple([step(work) for work in _work(length, depth, microbatches)])


def _work(R: int, x: int, M: int) -> Iterator[str]:  # noqa: N803 - letters of the published formula
    """Kind and lane of each action, in its order; W is the oldest weight gradient put off."""
    yield from ["F0"] * 2 * (R - x - 1)
    yield from ["F0", "F1"] * (x + 1)
    yield from ["I1", "W", "F1"] * (R - x - 1)
    pairs = ["F0&B1", "F1&B0"] * (M - 2 * R + x + 1)
    # The first backward at the turn is of the forward right before it: no pair.
    yield from pairs if x < R - 1 else ["F0", "B1", *pairs[1:]]
    yield from ["B1", "F1&B0"] * (R - x - 1)
    # The published rule (from i == (x+1)//2 on, before B1 if x is odd, else after it) halves the list.
    last = ["1", "0"] * (x + 1)
    yield from [f"B{lane}" for lane in last[: x + 1]] + [f"I{lane}" for lane in last[x + 1 :]]
    yield from ["W", "I0"] * (R - x - 1)
    yield from ["W"] * (x + 1)
