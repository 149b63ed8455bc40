"""What is shown of a layout that people get to see: its figures, its interval, its critical path.

Knows the exact replay with everything that a view needs; does not know why a layout is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...result.step import IntervalPart
    from ...scenario.models import Scenario
    from .judged import JudgedLayout


@dataclass(frozen=True, kw_only=True)
class LayoutFigures:
    """Of one layout: ``path`` is its critical path in seconds by name, ``memory`` the terms of its fullest
    rank in bytes. ``interval_s`` holds the step with a probability of 90 %, ``parts`` is what it is made of;
    ``fit_probability`` is that the job has memory enough.
    """

    step_time_s: float
    interval_s: tuple[float, float]
    path: Mapping[str, float]
    memory: Mapping[str, float]
    peak_memory_bytes: float
    capacity_bytes: float
    tokens_per_second_per_gpu: float
    mfu: float
    parts: tuple[IntervalPart, ...] = ()
    fit_probability: float | None = None


def layout_figures(scenario: Scenario) -> LayoutFigures:
    """Predicted as ``simulate`` does, to 1e-9. Raises as that does."""
    from .judged import ReplayOf

    return figures_of(scenario, ReplayOf().judged(scenario))


def figures_of(scenario: Scenario, judged: JudgedLayout) -> LayoutFigures:
    """What the replay of ``scenario`` says. ValueError, for the reason given, where it was refused."""
    from ...evidence.interval import interval_of_parts
    from ...evidence.measured_steps import measured_steps
    from ...read_record import step_counts

    if judged.refused:
        raise ValueError(judged.refused)
    work, gpu_s = step_counts(scenario), judged.step_time_s * scenario.cluster.gpus
    interval = interval_of_parts(judged.step_time_s, judged.parts, measured_steps())
    return LayoutFigures(
        step_time_s=judged.step_time_s,
        interval_s=(interval.low_s, interval.high_s),
        path=judged.path,
        memory=judged.memory,
        peak_memory_bytes=judged.peak_memory_bytes,
        capacity_bytes=judged.capacity_bytes,
        tokens_per_second_per_gpu=work.tokens_per_step / gpu_s,
        mfu=work.model_flops / gpu_s / work.peak_flops_per_gpu,
        parts=judged.parts,
        fit_probability=judged.fit_probability,
    )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A layout that is proposed. ``settings`` are fields and values that make it of the scenario.

    ``value`` is the objective; ``goodput`` the share of time that counts, where that is asked for. ``days``
    and ``price`` (in its currency) are of the token budget, None without one or without a price.
    ``probability_best`` and ``expected_regret`` (of the step time) come from resampled constants; None where
    that was not asked for.
    """

    number: int
    settings: Mapping[str, Any]
    scenario: Scenario
    figures: LayoutFigures
    fit_probability: float
    value: float
    gpus: int
    price_per_step: float | None
    days: float | None
    price: float | None
    goodput: float | None = None
    probability_best: float | None = None
    expected_regret: float | None = None


@dataclass(frozen=True, kw_only=True)
class BoldChoice:
    """A layout that may not fit. ``faster`` is the share by which it is better than the best choice by the
    objective; ``promised`` the share by which the expected pace is higher if it is tried first and the best
    choice is the fallback. Both are None where there is no best choice.
    """

    choice: Choice
    faster: float | None
    promised: float | None


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A layout that no other beats in all of these. ``price_per_step`` in its currency, or None."""

    number: int
    settings: Mapping[str, Any]
    step_time_s: float
    peak_memory_bytes: float
    headroom_bytes: float
    gpus: int
    price_per_step: float | None
