"""Seconds that a step takes at least, whatever the engine makes of it.

A pipeline rank cannot begin before the stages below its own have passed the first microbatch forward, does all of
its own work, and is followed by the backwards of the stages below: the step takes no less than the sum, of
any rank. Times are those of each action by itself; sharing of links and SMs, messages and waiting only add.
Where backwards are split, what follows a rank's last action is not known, and is left out; where forwards run
beside backwards, or microbatches travel both ways, only the kernels of a rank are sure to take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ....schedules.orders.action import ActionKind
from ...scenario.schedules import traits_of
from .alike import alike_layouts, pairs_run
from .sharded import ShardedTimes
from .times import ActionTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...scenario.models import Scenario
    from .stages import Pipeline
    from .tables import Tables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Mask = NDArray[np.bool_]


@dataclass(kw_only=True)
class BoundScreen:
    """Bounds of the layouts of one base that are ``wanted``."""

    tables: Tables
    wanted: Mask
    times: ActionTimes = field(init=False)
    sharded: ShardedTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = ActionTimes(tables=self.tables, used=np.unique(self.tables.layer[self.wanted]).tolist())
        self.sharded = ShardedTimes(tables=self.tables, plain=self.times)

    def bounds(self) -> Floats:
        """Seconds that the step of each layout takes at least; 0 of those that are not wanted."""
        found = np.zeros(len(self.tables.rows))
        microbatches = self._microbatches()
        for rows in alike_layouts(self.tables, np.flatnonzero(self.wanted)):
            draft = self.tables.draft(int(rows[0]))
            found[rows] = self._bound(draft, self.tables.pipeline(int(rows[0])), rows, microbatches[rows])
        return found

    def _microbatches(self) -> Codes:
        columns = self.tables.space.columns
        micro, dp = (columns[name][self.tables.rows] for name in ("training.micro_batch", "parallelism.dp"))
        count: Codes = self.tables.base.training.global_batch // (micro * dp)
        return count

    def _bound(self, draft: Scenario, pipeline: Pipeline, rows: Codes, microbatches: Codes) -> Floats:
        """The bound of layouts of one pipeline."""
        schedule, layer = traits_of(draft.schedule), self.tables.layer[rows]
        together = schedule.two_way or pairs_run(draft)
        backward = (
            (ActionKind.INPUT_GRAD, ActionKind.WEIGHT_GRAD)
            if schedule.splits_backward and not together
            else (ActionKind.BACKWARD,)
        )
        forward_s, back_s, host_s = [], [], []
        for stage in pipeline.kinds:
            ahead, *back = (self.times.of(kind, stage) for kind in (ActionKind.FORWARD, *backward))
            host_s.append((ahead.host + sum(one.host for one in back))[layer])
            if together:
                forward_s.append(ahead.kernels[layer])
                back_s.append(sum((one.kernels for one in back), np.zeros(1))[layer])
            else:
                forward_s.append(self.sharded.of(ActionKind.FORWARD, stage, rows))
                back_s.append(sum((self.sharded.of(kind, stage, rows) for kind in backward), np.zeros(1)))
        return self._longest(draft, pipeline, microbatches, forward_s, back_s, host_s)

    def _longest(
        self,
        draft: Scenario,
        pipeline: Pipeline,
        microbatches: Codes,
        forward_s: list[Floats],
        back_s: list[Floats],
        host_s: list[Floats],
    ) -> Floats:
        schedule = traits_of(draft.schedule)
        streams = schedule.weight_versions is not None  # a step begins before the one before it has ended
        skewed = draft.software.optimizer_post_validation and schedule.splits_backward
        chained = not (schedule.two_way or streams or skewed or pairs_run(draft))
        after = chained and not schedule.splits_backward
        shares = 2 if schedule.two_way else 1
        before_s, after_s = np.zeros(len(microbatches)), np.zeros(len(microbatches))
        ahead: list[tuple[Floats, Floats]] = []
        for kind in pipeline.kind_of:
            ahead.append((before_s, after_s))
            before_s, after_s = before_s + forward_s[kind], after_s + back_s[kind]
        longest = np.zeros(len(microbatches))
        for held in pipeline.held:
            kinds = [pipeline.kind_of[stage] for stage in held]
            own = sum(forward_s[kind] + back_s[kind] for kind in kinds) * (microbatches / shares)
            issued = sum(host_s[kind] for kind in kinds) * (microbatches / shares)
            lowest = ahead[min(held)]
            busy = own + (lowest[0] if chained else 0.0) + (lowest[1] if after else 0.0)
            longest = np.maximum(longest, np.maximum(busy, issued))
        if streams:
            return self._pace(pipeline, microbatches, forward_s, back_s)
        return longest

    def _pace(
        self, pipeline: Pipeline, microbatches: Codes, forward_s: list[Floats], back_s: list[Floats]
    ) -> Floats:
        """What as many microbatches take of the rank whose backwards are the fewest seconds apart.

        Which rank the pace is read off is not known before (sim/engine/period.py), nor are forwards sure to
        lie between its first and its last backward that fill the pipeline.
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
