"""What a whole token budget takes at the predicted pace: days, GPU-hours, price in US dollars.

Knows one healthy step; failures, checkpoints and restarts are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """``price`` is in the currency of the scenario's ``price_per_gpu_hour``; None without one."""

    tokens: float
    steps: float
    days: float
    gpu_hours: float
    price: float | None


def outlook(
    scenario: Scenario | None, tokens_per_step: float, step_time_s: float, gpus: int
) -> Outlook | None:
    """None when no scenario names a token budget."""
    if scenario is None or (tokens := scenario.training.tokens) is None:
        return None
    steps = float(tokens / tokens_per_step)
    hours = steps * float(step_time_s) / 3600
    gpu_hours = hours * int(gpus)
    price_per_gpu_hour = scenario.cluster.price_per_gpu_hour
    return Outlook(
        tokens=float(tokens),
        steps=steps,
        days=hours / 24,
        gpu_hours=gpu_hours,
        price=None if price_per_gpu_hour is None else gpu_hours * float(price_per_gpu_hour),
    )
