"""The calls by which DeepSeek's DualPipe and DualPipeV move their messages, in their order.

A rank keeps sends and receives in a queue. Before each action, a pair and a weight gradient included, it
posts all that is queued as one group and waits for it; so a result leaves with the group before the next
action. Some messages are queued elsewhere than right around their own action:

- a forward of the second stage after one of the first: that group brings the input of the next forward of
  the first stage too; and the first one's result leaves after the second's, unless the two stages are
  neighbours (the ranks in the middle), where the other middle rank waits for it right then;
- the middle's first pair is not overlapped: what the forward before it made leaves with the group before
  its backward;
- a forward right after a weight gradient: its input comes with the group before the weight gradient.

Source: deepseek-ai/DualPipe 3da1bbe ``dualpipe/dualpipe.py`` and ``dualpipe/dualpipev.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from ..orders.action import Action, ActionKind, Order, Orders, Overlap, actions_of, parts
from ..orders.schedule import Placement, Shape
from .ends import Ends
from .instructions import Instruction, MessageGroup, MessagePart, Recv, RunAction


def dualpipe_messages(
    orders: Orders, shape: Shape, rank_of: Placement
) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank. Raises ValueError for orders that are not of DualPipe's kind."""
    check_kind(orders)
    ends = Ends(orders=orders, shape=shape, rank_of=rank_of)
    return tuple(_Queue(order=order, ends=ends).write() for order in orders)


def check_kind(orders: Orders) -> None:
    """Raise ValueError for orders that are not of DualPipe's kind."""
    for rank, order in enumerate(orders):
        if lacks := _lacks(order):
            raise ValueError(
                "point-to-point rule 'batched' is DualPipe's, which gives each rank two stages and overlaps "
                f"their forwards and backwards, but rank {rank} {lacks}; use async"
            )


def of_dualpipe_kind(orders: Orders) -> bool:
    """Whether every rank has two stages, and pairs of which each has a part."""
    return all(_lacks(order) is None for order in orders)


def _lacks(order: Order) -> str | None:
    """What keeps an order from being of DualPipe's kind."""
    stages = sorted({action.stage for action in actions_of(order)})
    if len(stages) != 2:
        return f"has stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}"
    return None if any(isinstance(step, Overlap) for step in order) else "overlaps nothing"


@dataclass(kw_only=True)
class _Queue:
    """One rank's instructions while they are written, and what it has queued."""

    order: Order
    ends: Ends
    queued: list[MessagePart] = field(default_factory=list)
    kept: list[MessagePart] = field(default_factory=list)  # made, and to be queued after the next step
    asked: set[Recv] = field(default_factory=set)
    instructions: list[Instruction] = field(default_factory=list)

    def write(self) -> tuple[Instruction, ...]:
        for position, step in enumerate(self.order):
            self._ask(*self._early(position), *parts(step))
            self._post()
            self.instructions.append(RunAction(step))
            self._queue_results(position)
        self._post()
        return tuple(self.instructions)

    def _ask(self, *actions: Action) -> None:
        """Queue the inputs of the actions, those not asked for before."""
        for recv in map(self.ends.received, actions):
            if recv and recv not in self.asked:
                self.asked.add(recv)
                self.queued.append(recv)

    def _post(self) -> None:
        if self.queued:
            self.instructions.append(MessageGroup(tuple(self.queued), blocking=True))
            self.queued = []

    def _early(self, position: int) -> Iterator[Action]:
        """The forward whose input comes before the step at ``position``, though it runs later."""
        step = self.order[position]
        if self._forward(position - 1) == self.first and self._forward(position) == self.second:
            later = actions_of(self.order[position + 1 :])
            yield from islice((a for a in later if (a.stage, a.kind) == (self.first, ActionKind.FORWARD)), 1)
            return
        weights = isinstance(step, Action) and step.kind is ActionKind.WEIGHT_GRAD
        if weights and self._forward(position + 1) is not None:
            yield from parts(self.order[position + 1])

    def _queue_results(self, position: int) -> None:
        made: list[MessagePart] = [send for send in map(self.ends.sent, parts(self.order[position])) if send]
        kept, self.kept = self.kept, []
        if self._two_forwards(position) or self._apart(position) or self._apart(position - 1):
            self.kept, made = made, []
        self.queued += made + kept if self._two_forwards(position - 1) else kept + made

    def _two_forwards(self, position: int) -> bool:
        """Whether forwards of the first and the second stage stand here, and the stages are no neighbours."""
        both = self._forward(position), self._forward(position + 1)
        return both == (self.first, self.second) and self.second != self.first + 1

    def _apart(self, position: int) -> bool:
        """Whether the forward before the first pair of the middle stands here."""
        if (self._forward(position), self._forward(position + 1)) != (self.second, self.first):
            return False
        after = self.order[position + 2 : position + 3]
        backward = (ActionKind.BACKWARD, ActionKind.INPUT_GRAD)
        return any(isinstance(step, Action) and step.kind in backward for step in after)

    @cached_property
    def first(self) -> int:
        """The stage whose forwards the rank begins with."""
        return parts(self.order[0])[0].stage

    @cached_property
    def second(self) -> int:
        return next(action.stage for action in actions_of(self.order) if action.stage != self.first)

    def _forward(self, position: int) -> int | None:
        """The stage of a forward that is no part of a pair; None where another step is, or none."""
        return self._forwards[position] if 0 <= position < len(self.order) else None

    @cached_property
    def _forwards(self) -> list[int | None]:
        return [
            step.stage if isinstance(step, Action) and step.kind is ActionKind.FORWARD else None
            for step in self.order
        ]
