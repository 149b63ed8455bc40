"""What a whole token budget takes at the predicted pace: days, GPU-hours, price.

Knows one healthy step; failures, checkpoints and restarts are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..scenario.price import price_of

if TYPE_CHECKING:
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """``price`` is in ``currency``; None where the scenario has no price of a GPU-hour."""

    tokens: float
    steps: float
    days: float
    gpu_hours: float
    price: float | None
    currency: str = "USD"


def outlook(
    scenario: Scenario | None, tokens_per_step: float, step_time_s: float, gpus: int
) -> Outlook | None:
    """How many steps of ``step_time_s`` a scenario's token budget takes, and what that is in days, GPU-hours
    and money. None without a scenario, or where ``training.tokens`` is not stated."""
    if scenario is None or (tokens := scenario.training.tokens) is None:
        return None
    steps = float(tokens / tokens_per_step)
    hours = steps * float(step_time_s) / 3600
    gpu_hours = hours * int(gpus)
    price = price_of(scenario.cluster)
    return Outlook(
        tokens=float(tokens),
        steps=steps,
        days=hours / 24,
        gpu_hours=gpu_hours,
        price=gpu_hours * price.amount if price else None,
        currency=price.currency if price else "USD",
    )
