"""What is to be least: a weight for each layout that its step time is multiplied by, and limits of the time.

Knows prices, tokens and deadlines. Every objective is a multiple of the step time, so that a bound of the
step is one of the objective; goodput divides it by the share of time that counts, which is at most one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ...scenario.refusal import NotSupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...scenario.models import Scenario
    from .candidates import Candidates

DAY_S = 86400.0


class Objective(StrEnum):
    """``STEP_TIME`` is that of as many tokens where layouts differ in tokens per step."""

    STEP_TIME = "step-time"
    TOKENS_PER_DOLLAR = "tokens-per-dollar"
    DAYS = "days"
    GOODPUT = "goodput"


@dataclass(frozen=True, kw_only=True)
class PlanLimits:
    """The token budget is to be done in ``deadline_s`` and for ``budget``, in the currency of the price;
    None: no limit."""

    deadline_s: float | None = None
    budget: float | None = None


def weights(objective: Objective, among: Candidates) -> NDArray[np.float64]:
    """What a second of each layout's step weighs.

    Raises:
        NotSupported: the scenario lacks what the objective counts; names the field.
    """
    base = among.base
    if objective is Objective.TOKENS_PER_DOLLAR:
        _check_price(among, f"objective {objective.value}")
        return among.dollars_per_s / among.tokens_per_step
    if objective is Objective.DAYS:
        return _budget_tokens(base, f"objective {objective.value}") / among.tokens_per_step / DAY_S
    if objective is Objective.GOODPUT and base.faults is None:
        raise NotSupported("faults", "the objective goodput counts what faults cost, and there are none")
    return base.training.global_batch * base.training.seq_length / among.tokens_per_step


def most_s(limits: PlanLimits, among: Candidates) -> NDArray[np.float64]:
    """The longest step of each layout that meets every limit, in seconds.

    Raises:
        NotSupported: the scenario lacks what a limit counts; names the field.
    """
    most = np.full(len(among.layouts), np.inf)
    if limits.deadline_s is not None:
        steps = _budget_tokens(among.base, "a deadline") / among.tokens_per_step
        most = np.minimum(most, limits.deadline_s / steps)
    if limits.budget is not None:
        _check_price(among, "a budget")
        steps = _budget_tokens(among.base, "a budget") / among.tokens_per_step
        most = np.minimum(most, limits.budget / among.dollars_per_s / steps)
    return most


def _budget_tokens(base: Scenario, what: str) -> float:
    if base.training.tokens is None:
        raise NotSupported("training.tokens", f"{what} needs a token budget, as in 15e12")
    return base.training.tokens


def _check_price(among: Candidates, what: str) -> None:
    field = "cluster.price_per_gpu_hour"
    if np.isnan(among.dollars_per_s).any():
        raise NotSupported(field, f"{what} needs the price of a GPU, as in 2.5")
    columns, stated = among.layouts.columns, among.base.cluster.price_per_gpu_hour is not None
    if stated and "cluster.gpu" in columns and field not in columns:
        raise NotSupported(field, f"{what} needs a price for each kind of GPU, and there is one for all")
