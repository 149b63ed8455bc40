"""Measured steps that constants may be fitted on, and the step times that constants give them.

Knows cases, scenarios and processes; which constants are tried, and why, is in step_constants.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ....sim.brief.steady import of_length, steady_groups
from ....sim.brief.step import step_seconds
from ...cases.case import Case, read_cases
from ...cases.to_scenario import to_scenario
from ...cases.trial import Trial, tried

if TYPE_CHECKING:
    from ....sim.scenario.models import Scenario


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TimedRow:
    """A measured step: its scenario, and what groups it. Equal only to itself, so that it can be a key."""

    source: str
    family: str
    gpu: str
    preset: str
    measured_s: float
    scenario: Scenario


FEW = 5
"""Families of high trust; where a GPU has fewer, one of them alone moves its clock."""

SAME = 5e-4  # step times that differ by less are one
FIRST_KNOT, KNOT = 0.60, 0.08  # of the clock: between two knots, a published step is off by 4e-3
# at most (where the host begins to bind), most by 3e-6

Times = Callable[[Sequence[tuple[TimedRow, Trial]]], list[float]]
"""Step times in seconds, without ``step_fixed_s``, of rows under trials."""


def timed_rows(paths: Iterable[str | Path]) -> tuple[tuple[TimedRow, ...], int]:
    """Rows of high trust with a step time that the simulator can express, and the number of those it cannot.

    Where a GPU has few families of high trust, those of medium trust count as well.

    Raises:
        ValueError: a file that is not a file of cases; the message names file, case and field.
    """
    rows, refused = [], 0
    timed = [
        (path.stem, case)
        for path in map(Path, paths)
        for case in read_cases(path)
        if case.measured.step_time_s is not None
    ]
    sure = defaultdict(set)
    for _, case in timed:
        if case.trust == "high":
            sure[case.hardware.gpu].add(case.family)
    for source, case in timed:
        few = len(sure[case.hardware.gpu]) < FEW
        if case.trust != "high" and not (few and case.trust == "medium"):
            continue
        try:
            rows.append(_timed_row(source, case))
        except ValueError:
            refused += 1  # `stepsim validate` lists the reasons
    return tuple(rows), refused


def step_time_s(scenario: Scenario, trial: Trial) -> float:
    """Simulated step time under ``trial``, without ``step_fixed_s``."""
    software = scenario.software.with_fields(host_s_per_kernel=trial.host_s_per_kernel, step_fixed_s=0.0)
    return step_seconds(
        scenario.model_copy(update={"software": software}), tried(scenario.cluster.gpu_name, trial)
    )


class StepTimes:
    """``Times`` by simulation over ``jobs`` processes; a context.

    Simulates at every ``KNOT`` of the clock and interpolates between, nothing twice, and no row between two
    host times that make no difference to it: a step never gets shorter when the host gets slower.
    """

    def __init__(self, jobs: int) -> None:
        from joblib import Parallel, delayed

        self.simulated = 0
        self._known: dict[tuple[TimedRow, float, float], dict[float, float]] = defaultdict(
            dict
        )  # by host time
        self._pool: Any = Parallel(n_jobs=jobs)  # inside `with`, the processes stay and keep their memos
        self._delayed_step_time: Any = delayed(step_time_s)

    def __enter__(self) -> Self:
        self._pool.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.__exit__(kind, error, trace)

    def __call__(self, wanted: Sequence[tuple[TimedRow, Trial]]) -> list[float]:
        self._simulate(dict.fromkeys((row, knot) for row, trial in wanted for knot in knots(trial)))
        return [self._interpolated(row, trial) for row, trial in wanted]

    def _simulate(self, needed: Iterable[tuple[TimedRow, Trial]]) -> None:
        missing = sorted((one for one in needed if self._recall(*one) is None), key=_longest_first)
        found = self._pool(self._delayed_step_time(row.scenario, trial) for row, trial in missing)
        for (row, trial), step_s in zip(missing, found, strict=True):
            self._by_host(row, trial)[trial.host_s_per_kernel] = step_s
        self.simulated += len(missing)

    def _interpolated(self, row: TimedRow, trial: Trial) -> float:
        """Straight in the clock's period, which most of a step's kernels follow."""
        slow, fast = knots(trial)[0], knots(trial)[-1]
        slow_s, fast_s = self._recall(row, slow), self._recall(row, fast)
        assert slow_s is not None
        assert fast_s is not None
        if slow == fast:
            return slow_s
        period, longest, shortest = (1 / one.clock_fraction for one in (trial, slow, fast))
        return fast_s + (slow_s - fast_s) * (period - shortest) / (longest - shortest)

    def _recall(self, row: TimedRow, trial: Trial) -> float | None:
        known, host_s = self._by_host(row, trial), trial.host_s_per_kernel
        if host_s in known:
            return known[host_s]
        below = max((other for other in known if other < host_s), default=None)
        above = min((other for other in known if other > host_s), default=None)
        if below is None or above is None or known[above] > known[below] * (1 + SAME):
            return None
        return known[below]

    def _by_host(self, row: TimedRow, trial: Trial) -> dict[float, float]:
        return self._known[row, trial.clock_fraction, trial.corun_slowdown]


def knots(trial: Trial) -> tuple[Trial, ...]:
    """``trial`` at the knots of the clock below and above its own; itself alone where it lies on one."""
    place = round((trial.clock_fraction - FIRST_KNOT) / KNOT, 6)
    places = dict.fromkeys((math.floor(place), math.ceil(place)))
    return tuple(replace(trial, clock_fraction=round(FIRST_KNOT + at * KNOT, 6)) for at in places)


def _longest_first(one: tuple[TimedRow, Trial]) -> int:
    scenario = one[0].scenario
    return -scenario.num_microbatches * scenario.parallelism.pp * scenario.parallelism.vpp


def _timed_row(source: str, case: Case) -> TimedRow:
    from ....sim.lowering.lower import lower
    from ....sim.simulate import build_cluster

    scenario = to_scenario(case)
    short = of_length(scenario, scenario.parallelism.pp) if steady_groups(scenario) else scenario
    lower(short, build_cluster(short))  # refuses, naming the field, what it cannot express
    assert case.measured.step_time_s is not None
    return TimedRow(
        source=source,
        family=case.family,
        gpu=scenario.cluster.gpu_name,
        preset=scenario.software.name,
        measured_s=case.measured.step_time_s,
        scenario=scenario,
    )
