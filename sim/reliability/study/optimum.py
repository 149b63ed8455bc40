"""The best interval between checkpoints: simulated beside the exact formula."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .closed_forms import optimal_interval
from .statistics import Estimate, ratio_of
from .study import Progress, Study, many
from .variants import REPLICATIONS, parts_of, with_tier

FACTORS = (0.25, 0.35, 0.5, 0.71, 1.0, 1.41, 2.0, 2.83, 4.0)


@dataclass(frozen=True)
class Optimum:
    """``formula_s`` is exact for exponential failures. ``points``: (interval, ETTR), simulated with the same
    chance.

    ``simulated_s`` is where a parabola through the best point and its neighbours, over the logarithm, is
    highest; ``at_edge``: the best one was the shortest or the longest that could be tried.
    """

    formula_s: float
    simulated_s: float
    points: tuple[tuple[float, Estimate], ...]
    at_edge: bool
    mtbf_s: float
    stall_s: float


def find_optimum(study: Study, *, progress: Progress | None = None) -> Optimum | None:
    """None without checkpoints on storage, without failures, or with checkpoints that cost nothing."""
    plan, storage = study.plan, study.plan.storage
    if storage is None or not math.isfinite(study.mtbf_s) or storage.stall_s == 0:
        return None
    say = progress or (lambda _: None)
    best = optimal_interval(storage.stall_s, study.mtbf_s)
    numbers = _intervals(best / plan.step_s, storage.lag_s / plan.step_s, storage.every)
    count = min(REPLICATIONS, len(study.outcomes))
    say(f"{len(numbers)} intervals between checkpoints")
    plans = [with_tier(plan, replace(storage, every=number)) for number in numbers]
    points = [
        (number * plan.step_s, ratio_of(*parts_of(done), study.confidence))
        for number, done in zip(numbers, many(plans, count), strict=True)
    ]
    simulated, at_edge = _highest(points)
    return Optimum(best, simulated, tuple(points), at_edge, study.mtbf_s, storage.stall_s)


def _intervals(best: float, shortest: float, now: int) -> list[int]:
    """Steps between checkpoints to try: about the best by the formula, or from the shortest on that can be
    written in time, and as many as they are now.
    """
    least = max(1, math.ceil(shortest))
    about = max(best, float(least))
    return sorted({now, *(number for f in FACTORS if (number := max(1, round(about * f))) >= least)})


def _highest(points: list[tuple[float, Estimate]]) -> tuple[float, bool]:
    top = max(range(len(points)), key=lambda number: points[number][1].mean)
    if top in (0, len(points) - 1):
        return points[top][0], True
    (x0, y0), (x1, y1), (x2, y2) = ((math.log(at), e.mean) for at, e in points[top - 1 : top + 2])
    a, b = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (b - a) / (x2 - x0)
    if bend >= 0:
        return points[top][0], False
    return math.exp((x0 + x1) / 2 - a / (2 * bend)), False
