"""What a step costs in money: GPUs times time times the price of a GPU-hour.

Knows one healthy step; failures and idle spares are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..scenario.price import price_of

if TYPE_CHECKING:
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """Money for a step, and for a trillion tokens at its pace, in ``currency``; ``source`` says whose price
    it is."""

    currency: str
    price_per_gpu_hour: float
    per_step: float
    per_trillion_tokens: float
    source: str


def step_cost(
    scenario: Scenario | None, tokens_per_step: float, step_time_s: float, gpus: int
) -> StepCost | None:
    """The cost of a step; None where the scenario has no price."""
    price = price_of(scenario.cluster) if scenario else None
    if price is None:
        return None
    per_step = gpus * step_time_s / 3600 * price.amount
    return StepCost(
        currency=price.currency,
        price_per_gpu_hour=price.amount,
        per_step=per_step,
        per_trillion_tokens=per_step * 1e12 / tokens_per_step,
        source=price.source,
    )
