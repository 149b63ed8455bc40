"""The eight steps that DualPipe and DualPipeV share: microbatches that pass each rank in two lanes.

Lane 0 are microbatches in the first half of their stages, lane 1 those in the second half; a forward of
one lane and a whole backward of the other are run as one. Not a schedule itself.

Sources: DeepSeek-AI 2024, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 3.2.1;
deepseek-ai/DualPipe 3da1bbe; torch.distributed.pipelining 2.13 ``ScheduleDualPipeV``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from ..orders.action import Action, ActionKind, Order, Overlap, Step


class Lane(NamedTuple):
    """One of a rank's two stages, and the first of the microbatches that pass it."""

    stage: int
    first: int


def eight_steps(lanes: tuple[Lane, Lane], *, length: int, depth: int, microbatches: int) -> Order:
    """The order of one rank.

    ``length`` R is the number of ranks from an end to the turn, ``depth`` x how many of them lie before
    this one, ``microbatches`` M (2R or more) how many pass each lane.
    """
    begun: Counter[tuple[int, bool]] = Counter()  # by lane, forwards and backwards apart
    late: deque[Action] = deque()  # weight gradients put off, of both lanes

    def action(work: str) -> Action:
        if work == "W":
            return late.popleft()
        kind, lane = ActionKind(work[0]), int(work[1])
        key = lane, kind is ActionKind.FORWARD
        done = Action(lanes[lane].stage, kind, lanes[lane].first + begun[key])
        begun[key] += 1
        if kind is ActionKind.INPUT_GRAD:
            late.append(done._replace(kind=ActionKind.WEIGHT_GRAD))
        return done

    def step(work: str) -> Step:
        forward, pair, backward = work.partition("&")
        return Overlap(action(forward), action(backward)) if pair else action(work)

    return tuple(step(work) for work in _work(length, depth, microbatches))


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
