"""Small measured runs of a cluster of one's own, from which a profile may learn."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from stepsim.calibration.fit.own.steps import MeasuredRun
from stepsim.calibration.fit.steps.source_terms import SourceRow
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.profile import GpuProfile
from stepsim.hardware.step_factors import CAUSES, StepFactors, StepKind
from stepsim.sim.brief.step import brief_step
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.evidence.own_steps import StepSample
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario

GPU = "H100-SXM5-80GB"
SMALL = {
    "model.num_layers": 4,
    "training.global_batch": 32,
}
SPREAD = measured_steps().sources
shares = st.lists(st.floats(0.01, 1), min_size=len(CAUSES), max_size=len(CAUSES)).map(
    lambda parts: {cause: part / sum(parts) for cause, part in zip(CAUSES, parts, strict=True)}
)


def job(**changes: Any) -> Scenario:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return load_scenario("llama3-8b-h100", SMALL | named)


def slower(**factors: Any) -> GpuProfile:
    return replace(load_profile(GPU), steps=StepFactors(**factors))


def measured_on(profile: GpuProfile, *scenarios: Scenario) -> list[MeasuredRun]:
    """Runs of a cluster whose steps are those of ``profile``."""
    return [
        MeasuredRun(name=f"run {i}", scenario=one, step_time_s=brief_step(one, profile).step_time_s)
        for i, one in enumerate(scenarios)
    ]


def made_rows(source_sigma: float, run_sigma: float, *, seed: int = 7) -> list[SourceRow]:
    """Sources whose steps are off by one factor each, and runs by themselves."""
    draw = np.random.default_rng(seed)
    shares = {"matrix": 0.7, "memory": 0.2, "network": 0.1}
    kind = StepKind(sizes={"tp": 1.0}, kinds={})
    return [
        SourceRow(
            name=f"{source} {i}",
            source=f"source {source}",
            gpu=GPU,
            family=f"{source} {i}",
            error=float(shift + draw.normal(0, run_sigma)),
            sample=StepSample(shares=shares, step_s=10.0, kind=replace(kind, sizes={"tp": 4.0 ** (6 * i)})),
        )
        for source in range(12)
        for shift in [draw.normal(0, source_sigma)]
        for i in range(8)
    ]


def width_of(interval: Any) -> float:
    return math.log(interval.high_s / interval.low_s)
