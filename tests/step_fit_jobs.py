"""Steps in closed form to fit constants on: jobs, their rows, and what a fit is given of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from stepsim.calibration.cases.constants import unfitted
from stepsim.calibration.cases.trial import Trial
from stepsim.calibration.fit.steps.rows import TimedRow
from stepsim.calibration.fit.steps.step_constants import Data, fittable

GPU, PRESET = "H100-SXM5-80GB", "nanotron-2024"


@dataclass(frozen=True)
class Job:
    """A step in closed form: math, partly beside communication, or a host that is slower."""

    math_s: float
    beside: float
    kernels: float

    def step_s(self, trial: Trial) -> float:
        busy_s = self.math_s / trial.clock_fraction * (1 + self.beside * trial.corun_slowdown)
        return max(busy_s, self.kernels * trial.host_s_per_kernel)


JOBS = {
    "large": Job(math_s=9.0, beside=0.0, kernels=2e4),
    "wide": Job(math_s=4.0, beside=0.5, kernels=2e4),
    "overlapped": Job(math_s=6.0, beside=0.8, kernels=2e4),
    "small": Job(math_s=0.1, beside=0.0, kernels=5e5),
    "tiny": Job(math_s=0.01, beside=0.0, kernels=8e4),
    "tiny too": Job(math_s=0.02, beside=0.0, kernels=1e5),
}
"""By family."""


def row(family: str, measured_s: float, source: str = "one", gpu: str = GPU) -> TimedRow:
    """A row that no simulator needs to know."""
    nothing = cast("Any", None)
    return TimedRow(
        source=source, family=family, gpu=gpu, preset=PRESET, measured_s=measured_s, scenario=nothing
    )


def closed_form(jobs: Mapping[str, Job]) -> Callable[[Sequence[tuple[TimedRow, Trial]]], list[float]]:
    """Times of rows by their family."""
    return lambda wanted: [jobs[one.family].step_s(trial) for one, trial in wanted]


def measured(jobs: Mapping[str, Job], trial: Trial, fixed_s: float = 0.0) -> list[TimedRow]:
    """A row of each job, as it runs under ``trial``."""
    return [row(name, job.step_s(trial) + fixed_s) for name, job in jobs.items()]


def data_of(rows: Sequence[TimedRow], jobs: Mapping[str, Job]) -> Data:
    wanted = fittable(rows)
    return Data(rows=rows, times=closed_form(jobs), wanted=wanted, start=unfitted(rows, wanted))
