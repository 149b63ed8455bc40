"""One simulation in progress: what is asked for, the replays of its steps, and how long its parts took.

Knows lowered steps and what is wrong in them; reads no figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .engine.replay import replay
from .estimate import check_work, programs_work
from .fold.fold import MOST_CLASSES, folded, unfolded

if TYPE_CHECKING:
    from .engine.record import Record
    from .fold.fold import Folded
    from .fold.ranks import Degradation
    from .lowering.lower import Lowered
    from .neighbours import Beside, FabricJob
    from .scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a step is to be simulated.

    ``classes`` and ``events`` limit the work (None: the defaults); ``fold``: equal ranks are replayed once;
    ``each_fault``: the step is also replayed without each fault (None: if faults are few); ``exact``: all
    ranks are replayed, no bounds; ``tolerance``: how far apart bounds may be, as a share of the step (None:
    the default); ``placements``: on how many random placements jobs on one fabric are replayed.
    """

    classes: int | None
    events: int | None
    fold: bool
    each_fault: bool | None
    exact: bool
    tolerance: float | None
    placements: int = 0

    def leaves_out(self, faults: int) -> int:
        """How many replays leave out one of so many faults."""
        wanted = faults <= FEW_FAULTS if self.each_fault is None else self.each_fault
        return faults if wanted else 0


FEW_FAULTS = 8
"""Faults up to which the step is replayed without each of them unless the user says otherwise; each takes a
replay."""


class StepRun:
    """One simulation: its options, its progress messages (``say``), and the seconds that its parts have
    taken.

    ``jobs`` are this job and its neighbours on the fabric; empty where it has no neighbours.
    """

    def __init__(self, scenario: Scenario, options: RunOptions, say: Callable[[str], None]) -> None:
        self.scenario, self.options, self.say = scenario, options, say
        self.jobs: tuple[FabricJob, ...] = ()
        self.timing: dict[str, float] = {}
        self.began = self.since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the seconds since the last call as those of ``part``."""
        now = time.perf_counter()
        self.timing[part] = self.timing.get(part, 0.0) + now - self.since
        self.since = now

    def folded(self, lowered: Lowered, degradation: Degradation, *, replays: int = 1) -> Folded:
        """The programs to replay. Raises TooMuchWork where their replays would take too many events."""
        if self.options.fold:
            found = folded(lowered, degradation, max_classes=self.options.classes or MOST_CLASSES)
        else:
            found = unfolded(lowered, degradation)
        check_work(programs_work(found.programs, replays=replays), self.options.events)
        return found

    def step(
        self, lowered: Lowered, degradation: Degradation, *, replays: int = 1, what: str = ""
    ) -> tuple[Folded, Record]:
        """The classes of the job and the record of its step, with its neighbours where it has any."""
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
        from .neighbours import beside

        options = self.options
        return beside(
            self.jobs, degradation, fold=options.fold, max_classes=options.classes, max_events=options.events
        )

    def step_s(self, lowered: Lowered, degradation: Degradation) -> float:
        """The seconds of one step, for which no progress and no timing is recorded."""
        if self.jobs:
            return self._beside(degradation).record.step_s
        return replay(self.folded(lowered, degradation).programs).step_s

    def _replayed(self, ready: Folded, what: str) -> Record:
        """The record of a replay that reports its progress."""
        classes, expected = len(ready.programs.classes), programs_work(ready.programs).events
        text = f"replaying {classes:,} classes of {self.scenario.cluster.gpus:,} ranks{what}"
        self.say(text)
        return replay(ready.programs, tick=lambda done: self.say(f"{text}: {_so_far(done, expected)}"))


def _so_far(done: int, expected: float) -> str:
    """The progress of a replay in words. The estimate of its events may be too low."""
    if done < 0.95 * expected:
        return f"about {done / expected:.0%} of {expected:,.0f} events"
    return f"{done:,} events, about all"
