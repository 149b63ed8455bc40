"""A step with something wrong, replayed: in full or between bounds, without each fault, and draw by draw.

Knows lowered steps and what is wrong in them; reads no figures.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .bounded.bounds import bounded, worth_it
from .children import in_children
from .degradation.of_scenario import degradation_in
from .engine.replay import replay
from .estimate import check_work, programs_work
from .fold.whole import MOST_CLASSES, folded, unfolded
from .neighbours import beside

if TYPE_CHECKING:
    from .engine.record import Record
    from .fold.ranks import Degradation
    from .fold.whole import Folded
    from .lowering.lower import Lowered
    from .neighbours import Beside, FabricJob
    from .result.step_bounds import StepBounds
    from .scenario.faults.faults import Event
    from .scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a step is to be simulated. Classes and events at most (None: the defaults); whether ranks fold,
    whether each fault is left out once, and how far apart bounds may be, unless all ranks are replayed; and
    on how many random placements jobs on one fabric are replayed.
    """

    classes: int | None
    events: int | None
    fold: bool
    each_fault: bool | None
    exact: bool
    tolerance: float
    placements: int = 0

    def leaves_out(self, faults: int) -> int:
        """How many faults are left out once each, of so many."""
        wanted = faults <= FEW_FAULTS if self.each_fault is None else self.each_fault
        return faults if wanted else 0


FEW_FAULTS = 8
"""So many are left out once each unless somebody asks for it: each takes a replay."""

MANY_EVENTS = 2_000
"""Of a replay: from so many on, a child for another one costs less than the replay."""


class StepRun:
    """One simulation: what is asked for, what it tells of itself, and how long its parts have taken. ``jobs``
    are its own and those beside it, or none where it has the fabric to itself."""

    def __init__(self, scenario: Scenario, options: RunOptions, say: Callable[[str], None]) -> None:
        self.scenario, self.options, self.say = scenario, options, say
        self.jobs: tuple[FabricJob, ...] = ()
        self.timing: dict[str, float] = {}
        self.began = self.since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Seconds since the last of these go to a part."""
        now = time.perf_counter()
        self.timing[part] = self.timing.get(part, 0.0) + now - self.since
        self.since = now

    def folded(self, lowered: Lowered, degradation: Degradation, *, replays: int = 1) -> Folded:
        """The programs to replay, if that is not too much work."""
        if self.options.fold:
            found = folded(lowered, degradation, max_classes=self.options.classes or MOST_CLASSES)
        else:
            found = unfolded(lowered, degradation)
        check_work(programs_work(found.programs, replays=replays), self.options.events)
        return found

    def step(
        self, lowered: Lowered, degradation: Degradation, *, replays: int = 1, what: str = ""
    ) -> tuple[Folded, Record]:
        """The classes of the job and the record of its step, beside other jobs where there are such."""
        if self.jobs:
            self.say(f"replaying {self.scenario.cluster.gpus:,} ranks beside {len(self.jobs) - 1} other jobs")
            found = self._beside(degradation)
            self.lap("replay_s")
            return found.folded, found.record
        ready = self.folded(lowered, degradation, replays=replays)
        self.lap("fold_s")
        record = self._replayed(ready, what)
        self.lap("replay_s")
        return ready, record

    def _beside(self, degradation: Degradation) -> Beside:
        options = self.options
        return beside(
            self.jobs, degradation, fold=options.fold, max_classes=options.classes, max_events=options.events
        )

    def step_s(self, lowered: Lowered, degradation: Degradation) -> float:
        """The seconds of a step alone, of which nothing is told."""
        if self.jobs:
            return self._beside(degradation).record.step_s
        return replay(self.folded(lowered, degradation).programs).step_s

    def _replayed(self, ready: Folded, what: str) -> Record:
        """Their replay, with its progress told."""
        classes, expected = len(ready.programs.classes), programs_work(ready.programs).events
        text = f"replaying {classes:,} classes of {self.scenario.cluster.gpus:,} ranks{what}"
        self.say(text)
        return replay(ready.programs, tick=lambda done: self.say(f"{text}: {_so_far(done, expected)}"))


MOST_SLOWEST = 4
"""Of GPUs that differ, of which is said what a GPU of full speed in their place would gain."""


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A replay with something wrong; ``bounds`` of the step where not all ranks were replayed, and the steps
    without each fault where these were; ``gains_s`` is what mending each of ``parts`` gains
    (None: not known), which are faults in their order, else the slowest GPUs.
    """

    folded: Folded
    record: Record
    bounds: StepBounds | None = None
    without_s: tuple[float, ...] = ()
    gains_s: tuple[float | None, ...] = ()
    parts: tuple[Mapping[int, float], ...] = ()


def struck(
    run: StepRun,
    lowered: Lowered,
    events: tuple[Event, ...],
    healthy: Record,
    draw: int = 0,
    *,
    by_speed: bool = False,
) -> Struck:
    """The step with ``events``, on the cluster as ``draw`` has it: by few replicas where it has bounds and
    many ranks differ, else by all ranks. Only the first draw is replayed without each fault.
    ``by_speed``: with ranks placed by the speed of their GPUs.
    """
    degradation = degradation_in(lowered, events, draw, by_speed=by_speed)
    if not run.options.exact and worth_it(lowered, degradation):
        tolerance = run.options.tolerance
        parts = [] if draw or by_speed else _parts(lowered, events, degradation)
        found = bounded(lowered, degradation, healthy, tolerance=tolerance, parts=parts, say=run.say)
        run.lap("replay_s")
        step_s = found.record.step_s
        gains_s = tuple(None if share is None else share * step_s for share in found.gains)
        return Struck(
            folded=found.folded,
            record=found.record,
            bounds=found.bounds,
            gains_s=gains_s,
            parts=tuple(parts),
        )
    left_out = 0 if draw else run.options.leaves_out(len(events))
    varies = lowered.plan.scenario.cluster.variation is not None

    def without(i: int) -> float:
        others = events[:i] + events[i + 1 :]
        if not others and not varies:
            return healthy.step_s
        return run.step_s(lowered, degradation_in(lowered, others))

    tasks = [partial(without, i) for i in range(left_out)]
    with in_children(tasks, worth_it=left_out > 1 and healthy.events >= MANY_EVENTS) as numbers:
        what = " with faults" if events else ""
        ready, record = run.step(lowered, degradation, replays=1 + left_out, what=what)
        without_s = numbers()
        run.lap("replay_s")
    gains_s = tuple(max(0.0, record.step_s - one) for one in without_s if math.isfinite(record.step_s))
    return Struck(folded=ready, record=record, without_s=without_s, gains_s=gains_s)


def _parts(
    lowered: Lowered, events: tuple[Event, ...], degradation: Degradation
) -> list[Mapping[int, float]]:
    """What may be mended, by the factors of its ranks: each fault, else each of the slowest GPUs."""
    if events:
        return [degradation_in(lowered, (event,), None).slow for event in events]
    slowest = sorted(degradation.slow.items(), key=lambda one: (-one[1], one[0]))[:MOST_SLOWEST]
    return [{rank: factor} for rank, factor in slowest if factor > 1]


def _so_far(done: int, expected: float) -> str:
    """How far a replay is; an estimate may be too low."""
    if done < 0.95 * expected:
        return f"about {done / expected:.0%} of {expected:,.0f} events"
    return f"{done:,} events, about all"
