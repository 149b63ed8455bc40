"""Factors of a user's own cluster, from what a few of its steps took.

Knows which runs go together (one GPU, none calibrated on steps before) and how a measured step moves
constants: what takes the step's time is off by factors that all steps of the cluster share, within the spread
that sources show (sim/evidence/own_steps.py). A step is simulated with the factors found so far, and the
factors are found anew where its critical path then lies (Gauss-Newton), until neither moves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.calibrated.overlay import calibrated_profile
from ....hardware.step_factors import AS_SHIPPED, CAUSES, OwnStep, StepFactors
from ....sim.brief.step import Brief, brief_step
from ....sim.evidence.measured_steps import measured_steps
from ....sim.evidence.own_steps import Conditioned, SourceSpread, conditioned, typical
from ....sim.simulate import build_cluster

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....hardware.profile import GpuProfile
    from ....sim.scenario.models import Scenario

ROUNDS = 8
"""Rounds after which the fit ends, settled or not."""
SETTLED = 2e-3
"""A move of the logarithm of every factor below which the next round says the same."""
MOST = math.log(10.0)
"""A factor that a profile may state, in logarithms (hardware/calibrated/models.py)."""
NO_TIME_S = 1e-9
DOUBTFUL = 3.0
"""Standard deviations of the spread between sources beyond which a run is more likely described wrongly."""


@dataclass(frozen=True, kw_only=True)
class MeasuredRun:
    """A run of the user's own: its scenario, and what a step of it took."""

    name: str
    scenario: Scenario
    step_time_s: float


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A factor: its value, and the standard deviation of its logarithm before and after the runs."""

    cause: str
    factor: float
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class FittedSteps:
    """Factors of a cluster of ``gpu``. ``moved`` says how sure each is; ``before`` and ``after`` are the runs
    as shipped and with the factors; ``doubtful`` names runs that no cluster like the known ones explains."""

    gpu: str
    factors: StepFactors
    moved: tuple[Moved, ...]
    before: tuple[Brief, ...]
    after: tuple[Brief, ...]
    doubtful: tuple[str, ...]


def fit_own_steps(runs: Sequence[MeasuredRun]) -> FittedSteps:
    """The factors that ``runs`` show.

    Raises:
        ValueError: no run, runs on several GPUs, a scenario that is calibrated on steps already or that
        cannot
            be simulated; the message names the run.
    """
    profiles = [_profile(run) for run in runs]
    gpus = sorted({profile.gpu for profile in profiles})
    if len(gpus) != 1:
        raise ValueError(f"one profile is of one GPU; these runs are on {', '.join(gpus) or 'none'}")
    before = _steps(runs, profiles, AS_SHIPPED)
    sources = measured_steps().sources.of_trainer(read=all(step.doubt.read for step in before))
    spread = sources.of_kernels(max(step.doubt.kernels_sigma for step in before))
    known, after, factors = conditioned(spread, (), ()), before, np.zeros(len(CAUSES) + 1)
    for _ in range(ROUNDS):
        known = _known(spread, runs, after, factors)
        moved, factors = float(np.max(np.abs(known.factors - factors))), known.factors
        after = _steps(runs, profiles, _found(factors))
        if moved < SETTLED:
            break
    found = _with_runs(known, runs, before, after)
    last = _steps(runs, profiles, found)
    own = (replace(one, calibrated_s=step.step_time_s) for one, step in zip(found.runs, last, strict=True))
    return FittedSteps(
        gpu=gpus[0],
        factors=replace(found, runs=tuple(own)),
        moved=_moved(known),
        before=before,
        after=last,
        doubtful=tuple(_doubtful(spread, runs, before)),
    )


def _profile(run: MeasuredRun) -> GpuProfile:
    profile = calibrated_profile(build_cluster(run.scenario).gpu, run.scenario.calibration)
    if profile.steps != AS_SHIPPED:
        raise ValueError(
            f"{run.name}: its scenario is calibrated on steps already "
            f"({', '.join(run.scenario.calibration)}); leave that profile out, and give all runs at once"
        )
    return profile


def _steps(
    runs: Sequence[MeasuredRun], profiles: Sequence[GpuProfile], factors: StepFactors
) -> tuple[Brief, ...]:
    """Every run, simulated with ``factors``."""
    found = []
    for run, profile in zip(runs, profiles, strict=True):
        try:
            found.append(brief_step(run.scenario, replace(profile, steps=factors)))
        except ValueError as refusal:
            raise ValueError(f"{run.name}: {refusal}") from None
    return tuple(found)


def _known(
    spread: SourceSpread, runs: Sequence[MeasuredRun], steps: Sequence[Brief], factors: NDArray[np.float64]
) -> Conditioned:
    """What the runs say, linear about the ``factors`` with which they took ``steps``."""
    samples = [step.doubt.sample for step in steps]
    errors = [
        math.log(run.step_time_s / step.step_time_s) + float(sample.loads @ factors)
        for run, step, sample in zip(runs, steps, samples, strict=True)
    ]
    known = conditioned(spread, samples, errors)
    if known.factors[-1] >= 0:
        return known
    # No step is fixed for less than no time: what is left is of the other causes.
    return conditioned(replace(spread, fixed_s=NO_TIME_S), samples, errors)


def _found(factors: NDArray[np.float64]) -> StepFactors:
    values = np.exp(np.clip(factors[:-1], -MOST, MOST)).tolist()
    return StepFactors(**dict(zip(CAUSES, values, strict=True)), fixed_s=max(0.0, float(factors[-1])))


def _with_runs(
    known: Conditioned, runs: Sequence[MeasuredRun], before: Sequence[Brief], after: Sequence[Brief]
) -> StepFactors:
    """The factors with the runs that showed them, and what each pulls besides."""
    own = (
        OwnStep(
            name=run.name,
            measured_s=run.step_time_s,
            predicted_s=first.step_time_s,
            calibrated_s=last.step_time_s,
            shares=dict(last.doubt.sample.shares),
            kind=last.doubt.sample.kind,
            pull=float(pull),
        )
        for run, first, last, pull in zip(runs, before, after, known.pulls, strict=True)
    )
    return replace(_found(known.factors), reach=known.spread.reach, runs=tuple(own))


def _moved(known: Conditioned) -> tuple[Moved, ...]:
    before, after = known.spread.factors, known.factor_covariance
    return tuple(
        Moved(
            cause=cause,
            factor=float(np.exp(known.factors[i])),
            before=math.sqrt(before[i, i]),
            after=math.sqrt(after[i, i]),
        )
        for i, cause in enumerate(CAUSES)
    )


def _doubtful(spread: SourceSpread, runs: Sequence[MeasuredRun], steps: Sequence[Brief]) -> list[str]:
    """Names of runs whose step is further from its prediction than clusters differ."""
    return [
        run.name
        for run, step in zip(runs, steps, strict=True)
        if abs(math.log(run.step_time_s / step.step_time_s)) > DOUBTFUL * typical(spread, step.doubt.sample)
    ]
