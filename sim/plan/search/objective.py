"""What is to be least: a weight for each layout that its step time is multiplied by, and limits of the time.

Knows prices, tokens and deadlines. Every objective is a multiple of the step time, so that a bound of the
step is one of the objective; goodput divides it by the share of time that counts, which is at most one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from ....hardware.quantities import DAY_S, HOUR_S
from ...scenario.price import price_of
from ...scenario.refusal import NotSupported

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...scenario.models import Scenario
    from .candidates import Candidates

PRICE = "cluster.price_per_gpu_hour"

TOKENS_BY = {"training", "training.tokens"}
PRICE_BY = {"cluster", "cluster.gpu", "cluster.price_list", PRICE}
"""Fields that may give a scenario a token budget, or a price."""


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


def check_counted(objective: Objective, limits: PlanLimits, base: Scenario, changed: Collection[str]) -> None:
    """Raise NotSupported if the scenario lacks a field that the objective or a limit needs, before layouts
    are enumerated. Fields that are ``changed`` are checked later, by ``weights`` and ``most_s``."""
    if objective is Objective.GOODPUT and base.faults is None:
        raise NotSupported(
            "faults", "the objective goodput counts what faults cost, and the scenario has none"
        )
    dollars = [f"objective {objective.value}"] if objective is Objective.TOKENS_PER_DOLLAR else []
    dollars += ["a budget"] if limits.budget is not None else []
    tokens = [f"objective {objective.value}"] if objective is Objective.DAYS else []
    tokens += ["a deadline"] if limits.deadline_s is not None else []
    tokens += ["a budget"] if limits.budget is not None else []
    if tokens and base.training.tokens is None and not TOKENS_BY & {*changed}:
        raise _no_tokens(tokens[0])
    if dollars and price_of(base.cluster) is None and not PRICE_BY & {*changed}:
        raise _no_price(dollars[0])


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
        return _budget_tokens(among, f"objective {objective.value}") / among.tokens_per_step / DAY_S
    return base.training.tokens_per_step / among.tokens_per_step


def own_weight(objective: Objective, base: Scenario) -> float:
    """The weight of the scenario as given, which need not be one of the layouts; nan where it lacks what
    counts."""
    tokens = base.training.tokens_per_step
    if objective is Objective.TOKENS_PER_DOLLAR:
        price = price_of(base.cluster)
        return np.nan if price is None else price.amount * base.cluster.gpus / HOUR_S / tokens
    if objective is Objective.DAYS:
        return np.nan if base.training.tokens is None else base.training.tokens / tokens / DAY_S
    return 1.0


def most_s(limits: PlanLimits, among: Candidates) -> NDArray[np.float64]:
    """The longest step of each layout that meets every limit, in seconds.

    Raises:
        NotSupported: the scenario lacks what a limit counts; names the field.
    """
    most = np.full(len(among.layouts), np.inf)
    if limits.deadline_s is not None:
        steps = _budget_tokens(among, "a deadline") / among.tokens_per_step
        most = np.minimum(most, limits.deadline_s / steps)
    if limits.budget is not None:
        _check_price(among, "a budget")
        steps = _budget_tokens(among, "a budget") / among.tokens_per_step
        most = np.minimum(most, limits.budget / among.dollars_per_s / steps)
    return most


def _budget_tokens(among: Candidates, what: str) -> NDArray[np.float64]:
    if np.isnan(among.budget_tokens).any():
        raise _no_tokens(what)
    return among.budget_tokens


def _check_price(among: Candidates, what: str) -> None:
    if np.isnan(among.dollars_per_s).any():
        raise _no_price(what)
    columns, stated = among.layouts.columns, among.base.cluster.price_per_gpu_hour is not None
    if stated and "cluster.gpu" in columns and PRICE not in columns:
        raise NotSupported(
            PRICE,
            f"{what} needs a price for each kind of GPU, and there is one for all; "
            "give cluster.price_list in its place, or plan each kind by itself with its own price",
        )


def _no_tokens(what: str) -> NotSupported:
    return NotSupported("training.tokens", f"{what} needs a token budget, as in 15e12")


def _no_price(what: str) -> NotSupported:
    return NotSupported(
        PRICE, f"{what} needs the price of a GPU, as in 2.5, or cluster.price_list, as in median"
    )
