"""When all ranks of a step keep the pace of the slowest host, estimated before any replay.

A host that needs longer for its work than its GPU falls back in every period, until it has lost its lead and
the GPU waits for it. Ranks with faster hosts are held up only once they have used up the messages that lie
waiting. Until then some or all GPUs have paces of their own, and a step that is too short shows no pace that
lasts. Here each action takes what its blocks take by themselves, or what its host takes to issue them. That
is an estimate: only the length of the step that is replayed depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from ...schedules.orders.action import Action, ActionKind
from ..lowering.actions import action_blocks
from ..program.solo import solo_ends
from .arrivals import ActionArrivals

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..lowering.plan import StepPlan
    from ..program.program import Block
    from .steady_turns import Turns

ONE_PACE = 1e-7
"""Relative difference between the periods of ranks that keep one pace."""

SURE = 8
"""One period is added for so many, since messages and shared links are not known exactly."""

AHEAD = 2
"""Periods that a rank runs beyond the one in question, since others may wait for them."""


def periods_until_paced(plan: StepPlan, turns: Turns, most: int) -> int:
    """Roughly how many periods pass after the first backwards until the hosts set the pace of all ranks.

    0 where no host is slower than the GPUs; ``most`` where it takes that many or more.
    """
    times = ActionPaces(plan)
    if times.hosts_keep_up():
        return 0
    ranks = [*_ranks(plan, turns, times)]
    host_s = max((rank.host_s for rank in ranks), default=0.0)
    if len(ranks) < len(plan.orders) or host_s <= max(rank.gpu_s for rank in ranks):
        return 0
    for rank in ranks:
        rank.prepare(times)
    for period in range(most):
        left = ranks
        while left:
            left = [rank for rank in reversed(left) if not rank.goes_on(period + 1)]
        if min(rank.pace_s(period) for rank in ranks) >= host_s * (1.0 - ONE_PACE):
            return min(most, period + period // SURE)
    return most


class _Turn(NamedTuple):
    """An action, in the order of a rank.

    ``done_s`` has the ends of the actions of its stage and kind by microbatch, ``awaited_s`` those of the
    actions that it waits for (None: none), whose message takes ``message_s``. ``gpu_s`` and ``host_s`` are
    what it takes the GPU and the host.
    """

    done_s: list[float]
    awaited_s: list[float] | None
    message_s: float
    microbatch: int
    gpu_s: float
    host_s: float


@dataclass
class ActionPaces:
    """Seconds of the GPU and of the host for each action of a plan by itself."""

    plan: StepPlan
    solo_s: dict[Block, float] = field(default_factory=dict)
    done_s: dict[tuple[int, ActionKind], list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        software = self.plan.scenario.software
        self.arrivals = ActionArrivals(plan=self.plan)
        self.message_host_s = software.pipeline.p2p_messages * self.plan.costs.host_collective_s

    def seconds(self, action: Action) -> tuple[float, float]:
        """Seconds of the GPU, and of the host with the messages before and behind it."""
        plan, gpu_s, host_s = self.plan, 0.0, 0.0
        for block, count in action_blocks(action, plan.stages[action.stage], plan.blocks):
            if block not in self.solo_s:
                self.solo_s[block] = solo_ends(block, sms=plan.cluster.gpu.sms)[0]
            gpu_s += count * self.solo_s[block]
            host_s += count * block.host_s
        ends = (action.stage == 0) + (action.stage == plan.shape.stages - 1)
        return gpu_s, host_s + self.message_host_s * (2 - ends) * (plan.shape.ranks > 1)

    def hosts_keep_up(self) -> bool:
        """Whether no action takes its host longer than its GPU: then no period does on any rank. Stages that
        hold the same layers, none of them an end of the model, are asked once.
        """
        stages = {(s.runs, s.embedding, s.head, s.loss): s for s in self.plan.stages}
        kinds = {step.kind for step in self.plan.orders[0] if isinstance(step, Action)}
        for stage, kind in product(stages.values(), kinds):
            gpu_s, host_s = self.seconds(Action(stage.index, kind, 0))
            if host_s > gpu_s:
                return False
        return True

    def turn(self, action: Action, index: int, gpu_s: float, host_s: float) -> _Turn:
        """An action of rank ``index``, with the seconds that it takes."""
        stage, kind, microbatch = action
        _, awaited, message_s = self.arrivals.coming(action, index)
        before = self._done_s(stage - 1 if kind is ActionKind.FORWARD else stage + 1, kind)
        return _Turn(
            self._done_s(stage, kind), None if awaited < 0 else before, message_s, microbatch, gpu_s, host_s
        )

    def _done_s(self, stage: int, kind: ActionKind) -> list[float]:
        return self.done_s.setdefault((stage, kind), [])


@dataclass(kw_only=True)
class _Rank:
    """Pipeline rank ``index`` on its way.

    It runs the forwards ``ahead`` of its first backward, then a ``period`` of turns, which repeats itself
    with so many ``microbatches`` more each time. ``taken`` are the seconds of the GPU and the host by stage
    and kind; ``ends_s`` are the ends of the periods.
    """

    index: int
    ahead: Sequence[Action]
    period: Sequence[Action]
    microbatches: int
    taken: dict[tuple[int, ActionKind], tuple[float, float]]
    turns: list[_Turn] = field(default_factory=list)
    ends_s: list[float] = field(default_factory=list)
    begun: int = 0
    free_s: float = 0.0
    issued_s: float = 0.0

    @property
    def gpu_s(self) -> float:
        """Seconds of the GPU for a period."""
        return sum(self.taken[stage, kind][0] for stage, kind, _ in self.period)

    @property
    def host_s(self) -> float:
        """Seconds of the host for a period."""
        return sum(self.taken[stage, kind][1] for stage, kind, _ in self.period)

    def prepare(self, times: ActionPaces) -> None:
        """Find what each action waits for."""
        for action in (*self.ahead, *self.period):
            self.turns.append(times.turn(action, self.index, *self.taken[action.stage, action.kind]))

    def goes_on(self, period: int) -> bool:
        """Run what can be run, up to some periods after that one; whether that is done."""
        ahead, length = len(self.ahead), len(self.period)
        free_s, issued_s = self.free_s, self.issued_s
        for place in range(self.begun, ahead + length * (period + AHEAD)):
            behind, more = place - ahead, 0
            if behind >= 0:
                more = behind // length
                behind -= more * length
            done_s, awaited_s, message_s, microbatch, gpu_s, host_s = self.turns[ahead + behind]
            start_s = max(free_s, issued_s)
            if awaited_s is not None:
                microbatch += more * self.microbatches
                if microbatch >= len(awaited_s):
                    break
                start_s = max(start_s, awaited_s[microbatch] + message_s)
            issued_s += host_s
            free_s = max(start_s + gpu_s, issued_s)
            done_s.append(free_s)
            if place >= ahead:
                self.ends_s.append(free_s)
            self.begun = place + 1
        self.free_s, self.issued_s = free_s, issued_s
        return len(self.ends_s) >= length * (period + 1)

    def pace_s(self, period: int) -> float:
        """The least time between an action of that period and its counterpart in the next."""
        length = len(self.period)
        both = self.ends_s[length * period :][: 2 * length]
        return min(later - one for one, later in zip(both, both[length:], strict=False))


def _ranks(plan: StepPlan, turns: Turns, times: ActionPaces) -> Iterator[_Rank]:
    """The ranks of a plan whose orders are long enough for a period and have whole backwards only."""
    for index, order in enumerate(plan.orders):
        actions = [step for step in order if isinstance(step, Action)]
        ahead = next((k for k, one in enumerate(actions) if one.kind is not ActionKind.FORWARD), 0) - 1
        period = actions[ahead : ahead + 2 * turns.period]
        if ahead < 0 or len(actions) < len(order) or len(period) < 2 * turns.period:
            return
        kinds = {(stage, kind) for stage, kind, _ in period}
        yield _Rank(
            index=index,
            ahead=actions[:ahead],
            period=period,
            microbatches=turns.microbatches,
            taken={(stage, kind): times.seconds(Action(stage, kind, 0)) for stage, kind in kinds},
        )
