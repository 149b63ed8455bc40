"""Replications of one campaign until the interval is as narrow as asked for, and what they say together.

Replication number n of a plan is the same whoever runs it, in which order and in how many processes.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...scenario.faults.recovery import Run
from ..campaign.ledger import BADPUT, CATEGORIES
from ..campaign.outcome import Outcome
from ..campaign.plan import CampaignPlan
from ..campaign.replicate import replicate
from ..planning.estimate import check_replications
from .statistics import Estimate, mean_of, quantile, ratio_of

FIRST_BATCH = 16
PARALLEL_ABOVE_S = 3.0
"""Serial work that is worth starting processes for: joblib's take about a second."""
WINDOW_S = 3600.0
"""Window of the sliding ETTR: one hour, as in ByteRobust."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """Outcomes of replications of one plan, in their order."""

    plan: CampaignPlan
    outcomes: tuple[Outcome, ...]
    confidence: float

    @cached_property
    def walls(self) -> list[float]:
        return [one.wall_s for one in self.outcomes]

    def category(self, name: str) -> list[float]:
        """Seconds of a category, by replication."""
        return [one.seconds[name] for one in self.outcomes]

    @cached_property
    def ettr(self) -> Estimate:
        """Useful over wall time, cumulative."""
        return ratio_of(self.category("useful"), self.walls, self.confidence)

    @cached_property
    def waterfall(self) -> dict[str, float]:
        """Shares of the wall clock by category; their sum is 1."""
        total = math.fsum(self.walls)
        if total == 0:
            return {name: float(name == "useful") for name in CATEGORIES}
        return {name: math.fsum(self.category(name)) / total for name in CATEGORIES}

    def share(self, name: str) -> Estimate:
        """A category's share with its interval."""
        return ratio_of(self.category(name), self.walls, self.confidence)

    def count(self, name: str) -> Estimate:
        """Faults of a kind in a run."""
        return mean_of([float(one.failures.get(name, 0)) for one in self.outcomes], self.confidence)

    @property
    def badput(self) -> dict[str, float]:
        """The shares of lost time by the names of ml-goodput."""
        found: dict[str, float] = {}
        for name, share in self.waterfall.items():
            found[BADPUT[name]] = found.get(BADPUT[name], 0.0) + share
        return found

    @property
    def wall(self) -> Estimate:
        return mean_of(self.walls, self.confidence)

    @property
    def finished(self) -> list[float]:
        """Wall times of the replications that reached their goal."""
        return [one.wall_s for one in self.outcomes if one.ended == "goal"]

    def mean(self, field: str) -> Estimate:
        """The mean, with its interval, of the number that each outcome has under the name ``field``."""
        return mean_of([float(getattr(one, field)) for one in self.outcomes], self.confidence)

    def pooled(self, field: str) -> list[float]:
        """The lists that outcomes have under the name ``field``, joined into one."""
        return [value for one in self.outcomes for value in getattr(one, field)]

    def counts(self, field: str) -> dict[str, float]:
        """Mean counts by name, most first."""
        total: dict[str, float] = {}
        for one in self.outcomes:
            for name, number in getattr(one, field).items():
                total[name] = total.get(name, 0.0) + number
        ordered = sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))
        return {name: number / len(self.outcomes) for name, number in ordered}

    @cached_property
    def mtbf_s(self) -> float:
        """Exposed time between interruptions; infinite without any."""
        stops = sum(one.interruptions for one in self.outcomes)
        return math.fsum(one.exposed_s for one in self.outcomes) / stops if stops else math.inf

    @cached_property
    def ended(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for one in self.outcomes:
            found[one.ended] = found.get(one.ended, 0) + 1
        return found

    @property
    def stuck(self) -> list[Outcome]:
        """The replications that got no further."""
        return [one for one in self.outcomes if one.stuck_why]

    @property
    def gpus_held(self) -> int | None:
        """GPUs of the job and of its spares, in use or not; None where there is always another spare."""
        rules, machine = self.plan.recovering, self.plan.machine
        if rules.warm is None:
            return None
        return machine.gpus + (rules.warm + rules.cold) * machine.gpus_per_node

    @property
    def job_share(self) -> float:
        """Share of the GPUs held that the job itself needs; 1 where nobody knows what spares cost."""
        return self.plan.machine.gpus / self.gpus_held if self.gpus_held else 1.0

    @property
    def ettr_held(self) -> Estimate | None:
        """Useful GPU-hours over GPU-hours held, idle spares among them."""
        if self.gpus_held is None:
            return None
        share, one = self.job_share, self.ettr
        return Estimate(one.mean * share, one.low * share, one.high * share, one.bounded, one.error * share)

    @cached_property
    def sliding(self) -> dict[str, float]:
        """ETTR of every whole hour of every replication: quantiles."""
        values = [value for one in self.outcomes for value in sliding_ettr(one)]
        shares = {"p01": 0.01, "p05": 0.05, "p25": 0.25, "p50": 0.5}
        return {name: quantile(values, share) for name, share in shares.items()}


def useful_by(outcome: Outcome, times: Sequence[float]) -> list[float]:
    """Useful seconds up to each of ascending ``times``; work counts where it was done, if it lasted."""
    found, number, before = [], 0, 0.0
    pieces = outcome.pieces
    for at in times:
        while number < len(pieces) and pieces[number][1] <= at:
            before += pieces[number][2]
            number += 1
        part = 0.0
        if number < len(pieces) and pieces[number][0] < at:
            start, end, useful = pieces[number]
            part = useful * (at - start) / (end - start)
        found.append(before + part)
    return found


def sliding_ettr(outcome: Outcome) -> list[float]:
    """Useful share of every whole window, one after the other."""
    count = int(outcome.wall_s // WINDOW_S)
    done = useful_by(outcome, [number * WINDOW_S for number in range(count + 1)])
    return [(b - a) / WINDOW_S for a, b in itertools.pairwise(done)]


def study(
    plan: CampaignPlan,
    run: Run,
    *,
    replications: int | None = None,
    max_events: int | None = None,
    progress: Progress | None = None,
) -> Study:
    """Run as many replications as asked for, or until the interval of the ETTR is narrow enough.

    TooMuchWork, a ValueError, where they are estimated at more than ``max_events`` (None: an hour's worth).
    """
    wanted = replications if replications is not None else run.replications
    say = progress or (lambda _: None)
    if isinstance(wanted, int):
        check_replications([plan], wanted, max_events)
        say(f"{wanted} replications")
        return Study(plan, tuple(outcomes(plan, range(wanted))), run.confidence)
    done: list[Outcome] = []
    count = min(FIRST_BATCH, run.max_replications)
    while True:
        check_replications([plan], count, max_events)
        done += outcomes(plan, range(len(done), count))
        found = Study(plan, tuple(done), run.confidence)
        half = found.ettr.half_width
        say(f"{count} replications, ETTR {found.ettr.mean:.4f} +- {half:.4f}")
        if half <= run.ci_half_width or count >= run.max_replications:
            return found
        needed = math.ceil(count * (half / run.ci_half_width) ** 2 * 1.05)
        count = min(run.max_replications, max(count + 4, needed))


def outcomes(plan: CampaignPlan, numbers: range) -> list[Outcome]:
    """Replications of these numbers, in several processes where that is worth it."""
    if not numbers:
        return []
    began = time.perf_counter()
    first = replicate(plan, numbers[0], log=numbers[0] == 0)
    left = numbers[1:]
    workers = min(os.cpu_count() or 1, len(left))
    if workers < 2 or (time.perf_counter() - began) * len(left) < PARALLEL_ABOVE_S:
        return [first, *(replicate(plan, number) for number in left)]
    import joblib

    shares = [left[start::workers] for start in range(workers)]
    done = joblib.Parallel(n_jobs=workers)(joblib.delayed(_several)(plan, share) for share in shares)
    return [first, *sorted((one for several in done for one in several), key=lambda one: one.number)]


def many(plans: Sequence[CampaignPlan], count: int) -> list[list[Outcome]]:
    """The first ``count`` replications of several plans, side by side where that is worth it."""
    if not plans:
        return []
    began = time.perf_counter()
    first = _several(plans[0], range(count))
    left = plans[1:]
    workers = min(os.cpu_count() or 1, len(left))
    if workers < 2 or (time.perf_counter() - began) * len(left) < PARALLEL_ABOVE_S:
        return [first, *(_several(plan, range(count)) for plan in left)]
    import joblib

    jobs = (joblib.delayed(_several)(plan, range(count)) for plan in left)
    return [first, *joblib.Parallel(n_jobs=workers)(jobs)]


def _several(plan: CampaignPlan, numbers: range) -> list[Outcome]:
    return [replicate(plan, number) for number in numbers]
