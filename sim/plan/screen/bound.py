"""A lower bound, in seconds, of the step of each layout, whatever the engine makes of it.

A pipeline rank cannot begin before the stages below its own have passed the first microbatch forward. Then it
does all of its own work, and the backwards of the stages below follow it. So the step takes no less than the
sum of these three, for any rank. The seconds of each action are those that it takes by itself; shared links
and SMs, messages and waiting can only add.

Where backwards are split, what follows a rank's last action is not known, and is left out. In three cases
actions of a rank need not add up: some backwards are split and others are not, forwards run beside backwards,
or microbatches travel both ways. A rank's work is then the sum of the steps of its order, if the whole order
is at hand (steps.py); else only its kernels are sure to run one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import ActionKind
from ...lowering.common_to_layouts import runs_pairs
from ...lowering.layers.local_shape import boundary_bytes
from ...scenario.schedules import schedule_named
from .alike import alike_layouts
from .numbering import dense, distinct, sums
from .sharded_times import ShardedTimes
from .slowest import SlowestRanks, slowest_ranks
from .steps import Kind, RankSteps, adds_up, steps_of
from .times import ActionTimes
from .turns import RankTurns, turns_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...network.collectives import Distance
    from ...scenario.models import Scenario
    from .stages import Pipeline
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(kw_only=True)
class BoundScreen:
    """Bounds of the ``wanted`` layouts of one base; ``times`` has the seconds of the blocks of all
    layouts."""

    tables: ScreenTables
    wanted: Mask
    times: ActionTimes
    sharded: ShardedTimes = field(init=False)
    turns: dict[tuple[object, tuple[int, ...]], RankTurns] = field(default_factory=dict)
    steps: dict[tuple[object, tuple[int, ...], bool], RankSteps] = field(default_factory=dict)
    added: dict[object, bool] = field(default_factory=dict)
    messages: dict[tuple[int, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.times.ask(self.tables.layer[self.wanted])
        self.sharded = ShardedTimes(tables=self.tables, plain=self.times)

    @cached_property
    def _slowest(self) -> SlowestRanks:
        return slowest_ranks(self.tables, np.flatnonzero(self.wanted & self.tables.uneven))

    def bounds(self) -> Floats:
        """A lower bound of the step of each layout, in seconds; 0 for layouts that are not wanted."""
        found = np.zeros(len(self.tables.rows))
        microbatches = self.tables.microbatches()
        for rows in alike_layouts(self.tables, np.flatnonzero(self.wanted)):
            draft = self.tables.draft(int(rows[0]))
            self.times.ask(self.tables.layer[rows])
            found[rows] = self._bound(draft, self.tables.pipeline(int(rows[0])), rows, microbatches[rows])
        return found

    def _bound(self, draft: Scenario, pipeline: Pipeline, rows: Codes, microbatches: Codes) -> Floats:
        """The bound of layouts with the same pipeline.

        Where ranks are placed in several ways, only kernels are sure to take as long on all of them as on
        rank 0. The rank whose groups take the longest is known besides.
        """
        uneven = self.tables.uneven[rows]
        if uneven.any() and not uneven.all():
            found = np.zeros(len(rows))
            for mine in (uneven, ~uneven):
                found[mine] = self._bound(draft, pipeline, rows[mine], microbatches[mine])
            return found
        schedule = schedule_named(draft.schedule)
        together = schedule.two_way or runs_pairs(draft) or bool(uneven.any())
        if schedule.overlaps or schedule.splits_backward:
            together = together or not self._adds_up(int(rows[0]))
        backward = backwards(split=schedule.splits_backward and not together)
        forward_s, back_s, host_s = self._seconds_by_stage(pipeline, rows, backward, kernels_alone=together)
        found = self._longest(draft, pipeline, microbatches, forward_s, back_s, host_s)
        if uneven.any() and self._in_turn(draft, int(rows[0])):
            found = np.maximum(found, self._of_slowest(draft, pipeline, rows, forward_s, back_s))
        if together and not uneven.any() and self._known(int(rows[0]), microbatches):
            found = np.maximum(found, self._of_steps(draft, pipeline, rows, microbatches))
        if schedule.filling and pipeline.held[1:] and not together:
            message_s = self._message_s(rows)
            turns, every = self._turns(int(rows[0]), pipeline), (np.stack(forward_s), np.stack(back_s))
            around = _around_turns(pipeline, turns, microbatches, every, every, message_s)
            found = np.maximum(found, around.max(axis=0))
        return found

    def _seconds_by_stage(
        self, pipeline: Pipeline, rows: Codes, backward: tuple[ActionKind, ...], *, kernels_alone: bool
    ) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """By kind of stage, for each layout: seconds of a forward, of all of its backward, and of the host
        for both; without gathers and reductions of sharded parameters where ``kernels_alone``."""
        layer = self.times.places(rows)
        forward_s, back_s, host_s = [], [], []
        for stage in pipeline.kinds:
            ahead, *back = (self.times.of(kind, stage) for kind in (ActionKind.FORWARD, *backward))
            host_s.append((ahead.host + sum(one.host for one in back))[layer])
            if kernels_alone:
                forward_s.append(ahead.kernels[layer])
                back_s.append(sum((one.kernels for one in back), np.zeros(1))[layer])
            else:
                forward_s.append(self.sharded.of(ActionKind.FORWARD, stage, rows))
                back_s.append(sum((self.sharded.of(kind, stage, rows) for kind in backward), np.zeros(1)))
        return forward_s, back_s, host_s

    def _in_turn(self, draft: Scenario, row: int) -> bool:
        """Whether the ranks of a layout run all their actions one after the other, in steps that begin and
        end together."""
        schedule = schedule_named(draft.schedule)
        if schedule.two_way or schedule.weight_versions is not None or runs_pairs(draft):
            return False
        return not (schedule.overlaps or schedule.splits_backward) or self._adds_up(row)

    def _of_slowest(
        self, draft: Scenario, pipeline: Pipeline, rows: Codes, passed_s: list[Floats], left_s: list[Floats]
    ) -> Floats:
        """Seconds of the slowest rank: its own work, after the kernels of the first microbatch on earlier
        ranks and before those of the last one."""
        self._slowest.ask(rows)
        schedule, microbatches = schedule_named(draft.schedule), self.tables.microbatches()[rows]
        backward = backwards(split=schedule.splits_backward)
        rank, each = self._slowest.ranks(rows), np.arange(len(rows))
        forward_s = [self._slowest.of(ActionKind.FORWARD, stage, rows) for stage in pipeline.kinds]
        back_s = [
            sum((self._slowest.of(kind, stage, rows) for kind in backward), np.zeros(1))
            for stage in pipeline.kinds
        ]
        own = np.stack(forward_s), np.stack(back_s)
        kinds, lowest = list(pipeline.kind_of), np.array([min(held) for held in pipeline.held])
        busy = microbatches * sums(pipeline.counts, own[0] + own[1])
        skewed = draft.software.gradients.optimizer_post_validation and schedule.splits_backward
        if not skewed:
            busy = busy + _behind(np.stack(passed_s)[kinds])[lowest]
        if not schedule.splits_backward:
            busy = busy + _behind(np.stack(left_s)[kinds])[lowest]
        if schedule.filling and pipeline.held[1:]:
            turns = self._turns(int(rows[0]), pipeline)
            others = np.stack(passed_s), np.stack(left_s)
            around = _around_turns(pipeline, turns, microbatches, others, own, np.zeros(len(rows)))
            busy = np.maximum(busy, around)
        longest: Floats = busy[rank, each]
        return longest

    def _known(self, row: int, microbatches: Codes) -> bool:
        """Whether all steps of these layouts are known, which end in turn: their orders are whole, or go on
        as they are known to repeat."""
        draft = self.tables.draft(row)
        schedule = schedule_named(draft.schedule)
        if schedule.weight_versions is not None:
            return False
        whole = bool(np.all(microbatches == self.tables.shape(row).microbatches))
        return whole or (schedule.filling > 0 and runs_pairs(draft))

    def _adds_up(self, row: int) -> bool:
        """Whether a rank's work is the sum of its actions. It is not where a whole backward hides exchanges
        for which its two parts, one after the other, would wait."""
        key = self.tables.order_key(row)
        if key not in self.added:
            self.added[key] = adds_up(self.tables.orders(row))
        return self.added[key]

    def _of_steps(self, draft: Scenario, pipeline: Pipeline, rows: Codes, microbatches: Codes) -> Floats:
        """The most seconds of any rank: what its first microbatch has passed before, all steps of its order,
        and what follows the last of them on other ranks."""
        row, shape = int(rows[0]), self.tables.shape(int(rows[0]))
        longer = bool(np.any(microbatches > shape.microbatches))
        key = self.tables.order_key(row), pipeline.kind_of, longer
        if key not in self.steps:
            more = self.tables.orders(row, groups=1) if longer else ()
            self.steps[key] = steps_of(self.tables.orders(row), pipeline, more)
        steps = self.steps[key]
        seconds = np.stack([self._step(kind, draft, pipeline, rows) for kind in steps.kinds])
        groups = (microbatches - shape.microbatches) // shape.ranks
        busy = sums(steps.counts, seconds) + groups * sums(steps.each, seconds)
        if not draft.software.gradients.optimizer_post_validation:
            ahead, back = (
                np.stack([self.sharded.of(kind, stage, rows) for stage in pipeline.kinds])
                for kind in (ActionKind.FORWARD, ActionKind.BACKWARD)
            )
            busy = busy + sums(steps.lead, ahead) + sums(steps.tail, back)
        longest: Floats = busy.max(axis=0)
        return longest

    def _step(self, kind: Kind, draft: Scenario, pipeline: Pipeline, rows: Codes) -> Floats:
        """Seconds of one step of a rank's order.

        Some pairs of a forward and a backward do not run as one in the engine (next to reductions), so that a
        pair takes no less than the smaller of its two actions in turn and both as one; of the latter, only
        kernels are sure where activations are copied beside them.
        """
        if isinstance(kind[0], ActionKind):
            return self.sharded.of(kind[0], pipeline.kinds[kind[1]], rows)
        forward, backward = (pipeline.kinds[one] for one in kind)
        alone = self.sharded.of(ActionKind.FORWARD, forward, rows)
        alone = alone + self.sharded.of(ActionKind.BACKWARD, backward, rows)
        local = self.tables.layers[int(self.tables.layer[rows[0]])].local
        if draft.training.activation_offload:
            pair = self.times.of_pair(forward, backward, local)
            together = None if pair is None else pair.kernels[self.times.places(rows)]
        else:
            together = self.sharded.of_pair(forward, backward, local, rows)
        return alone if together is None else np.minimum(alone, together)

    def _turns(self, row: int, pipeline: Pipeline) -> RankTurns:
        key = self.tables.order_key(row), pipeline.kind_of
        if key not in self.turns:
            self.turns[key] = turns_of(self.tables.orders(row), pipeline)
        return self.turns[key]

    def _message_s(self, rows: Codes) -> Floats:
        """Seconds of a message between the two nearest neighbouring pipeline ranks."""
        sizes, reaches = self._sizes[0][self.tables.layer[rows]], self._reaches[0][rows]
        number, first = dense([sizes, reaches])
        return np.array([self._message(int(sizes[row]), int(reaches[row])) for row in first])[number]

    def _message(self, size: int, reach: int) -> float:
        if (size, reach) not in self.messages:
            p2p = self.tables.base.software.pipeline.p2p_messages
            self.messages[size, reach] = min(
                self.tables.communication.message(self._sizes[1][size], distance, messages=p2p).solo_s
                for distance in self._reaches[1][reach]
            )
        return self.messages[size, reach]

    @cached_property
    def _sizes(self) -> tuple[Codes, list[float]]:
        """The different sizes of messages between stages in bytes, and for each layer the place of its
        own."""
        layers, software = self.tables.layers, self.tables.base.software
        every = range(len(layers))
        return distinct(np.array(every), every, lambda one: boundary_bytes(layers[one].local, software))

    @cached_property
    def _reaches(self) -> tuple[Codes, list[frozenset[Distance]]]:
        """The different sets of distances of messages between stages, and for each layout the place of its
        own."""
        tables = self.tables
        return distinct(
            tables.group, tables.group_rows, lambda row: frozenset(tables.groups(row)[1].distances)
        )

    def _longest(
        self,
        draft: Scenario,
        pipeline: Pipeline,
        microbatches: Codes,
        forward_s: list[Floats],
        back_s: list[Floats],
        host_s: list[Floats],
    ) -> Floats:
        schedule = schedule_named(draft.schedule)
        streams = schedule.weight_versions is not None  # a step begins before the one before it has ended
        skewed = draft.software.gradients.optimizer_post_validation and schedule.splits_backward
        chained = not (schedule.two_way or streams or skewed or runs_pairs(draft))
        after = chained and not schedule.splits_backward
        shares = 2 if schedule.two_way else 1
        kinds, counts = list(pipeline.kind_of), pipeline.counts / shares
        lowest = np.array([min(held) for held in pipeline.held])
        busy = microbatches * sums(counts, np.stack(forward_s) + np.stack(back_s))
        if chained:
            busy = busy + _behind(np.stack(forward_s)[kinds])[lowest]
        if after:
            busy = busy + _behind(np.stack(back_s)[kinds])[lowest]
        issued = microbatches * sums(counts, np.stack(host_s))
        longest: Floats = np.maximum(busy, issued).max(axis=0)
        if streams:
            return self._pace(pipeline, microbatches, forward_s, back_s)
        return longest

    def _pace(
        self, pipeline: Pipeline, microbatches: Codes, forward_s: list[Floats], back_s: list[Floats]
    ) -> Floats:
        """Seconds of so many microbatches on the rank whose backwards follow one another the fastest.

        It is not known beforehand off which rank the engine reads the pace (sim/engine/period.py), nor
        whether the forwards that fill the pipeline lie between that rank's first and last backward.
        """
        between = np.maximum(microbatches - 1, 1)
        ahead = np.maximum(microbatches - len(pipeline.held), 0)
        paces = []
        for held in pipeline.held:
            kinds = [pipeline.kind_of[stage] for stage in held]
            own = sum(between * back_s[kind] + ahead * forward_s[kind] for kind in kinds)
            paces.append(own * microbatches / between)
        pace: Floats = np.min(paces, axis=0)
        return pace


def backwards(*, split: bool) -> tuple[ActionKind, ...]:
    """The kinds of actions that a backward is made of."""
    return (ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD) if split else (ActionKind.BACKWARD,)


def _behind(stages_s: Floats) -> Floats:
    """For each stage, the seconds of all stages before it."""
    return np.concatenate([np.zeros((1, stages_s.shape[1])), np.cumsum(stages_s, axis=0)])


def _around_turns(
    pipeline: Pipeline,
    turns: RankTurns,
    microbatches: Codes,
    others_s: tuple[Floats, Floats],
    own_s: tuple[Floats, Floats],
    message_s: Floats,
) -> Floats:
    """Seconds of each rank, ranks x layouts: before its first backward, its own work, and after its last
    forward.

    ``others_s`` and ``own_s`` are the seconds forward and backward of other ranks' stages and of a rank's
    own. Before the first backward of a rank, that microbatch has passed all stages forward and the higher
    ones backward, whatever else the rank did meanwhile; the same holds, mirrored, after its last forward. In
    between the rank does all the rest of its work.
    """
    (ahead, back), (own_ahead, own_back) = others_s, own_s
    kinds = list(pipeline.kind_of)
    down = np.concatenate([np.zeros((1, len(microbatches))), np.cumsum(ahead[kinds], axis=0)])
    up = np.concatenate([np.zeros((1, len(microbatches))), np.cumsum(back[kinds], axis=0)])
    last = len(kinds)
    lowest = np.array([min(held) for held in pipeline.held])
    own_before, own_after = sums(turns.before, own_ahead), sums(turns.after, own_back)
    hops = (2 * last - 2 - np.stack([turns.first, turns.last]))[:, :, np.newaxis] * message_s
    first = down[last] + up[last] - up[turns.first + 1] + hops[0]
    end = down[last] - down[turns.last + 1] + up[last] + hops[1]
    nearest = lowest[:, np.newaxis] * message_s
    between = microbatches * sums(turns.stages, own_ahead + own_back) - own_before - own_after
    before = np.maximum(down[lowest] + nearest + own_before, first)
    after = up[lowest] + nearest + own_after
    after = np.where(turns.turning[:, np.newaxis], np.maximum(after, end), after)
    longest: Floats = before + between + after
    return longest
