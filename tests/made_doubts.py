"""What a prediction rests on, made up for tests of intervals."""

from __future__ import annotations

import math

from stepsim.hardware.step_factors import StepKind
from stepsim.sim.evidence.measured_steps import Doubt, Regime, RoutedExperts
from stepsim.sim.evidence.own_steps import StepSample
from stepsim.sim.result.step import IntervalPart


def doubt(
    regime: Regime,
    *causes: IntervalPart,
    experts: RoutedExperts | None = None,
    network: float = 0.0,
    sigma: float = 0.05,
) -> Doubt:
    """The doubt of a step in that regime, for one cause of every step (``sigma``) and ``causes`` besides.
    What communicates (``network``) waits for all GPUs."""
    base = IntervalPart(name="what no curve knows", share=1.0, sigma=sigma, source="made", kind="steps")
    kind = StepKind(sizes={}, kinds={})
    sample = StepSample(shares={"matrix": 1.0 - network, "network": network}, step_s=1.0, kind=kind)
    return Doubt(
        causes=(base, *causes),
        regime=regime,
        experts=experts or RoutedExperts(),
        sample=sample,
        awaited_doublings=math.log2(regime.gpus),
    )
