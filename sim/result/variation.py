"""What a spread of the cluster's parts costs a step: the figures, and as part of the JSON document.

Knows figures; draws and simulates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One draw: its seed, the step, and its bounds, equal where all ranks were replayed."""

    seed: int
    step_time_s: float
    lower_s: float
    upper_s: float


@dataclass(frozen=True, kw_only=True)
class SlowGpu:
    """A rank whose GPU takes ``slow`` times as long, and what one of full speed in its place would gain
    (None: not known).
    """

    rank: int
    slow: float
    gain_s: float | None


@dataclass(frozen=True, kw_only=True)
class PlacedBySpeed:
    """The GPU of every rank, by the speeds of the first draw, and the step with it, without faults."""

    gpus: tuple[int, ...]
    step: Draw


@dataclass(frozen=True, kw_only=True)
class StepVariation:
    """``slowest`` and ``mean`` speed of the GPUs in the first draw, as shares of what the catalogue says; all
    ``draws``, the first of which is the step that is shown; and the step if all GPUs were alike.
    ``gains`` are those of the slowest GPUs, where few replicas were replayed; ``by_speed`` is the same draw
    with ranks placed by speed, where that was asked for.
    """

    slowest: float
    mean: float
    draws: tuple[Draw, ...]
    equal_step_time_s: float
    gains: tuple[SlowGpu, ...] = ()
    by_speed: PlacedBySpeed | None = None

    @property
    def mean_slowdown(self) -> float:
        """Mean step time of all draws over the step time on equal GPUs."""
        return fmean(one.step_time_s for one in self.draws) / self.equal_step_time_s

    @property
    def spread_s(self) -> float:
        """The standard deviation of the step between draws; 0 of one draw."""
        return stdev(one.step_time_s for one in self.draws) if len(self.draws) > 1 else 0.0


def slow_gpus(parts: Sequence[Mapping[int, float]], gains_s: Sequence[float | None]) -> Iterator[SlowGpu]:
    """A slow GPU for each of ``parts``, which hold one rank and its factor each."""
    for part, gain_s in zip(parts, gains_s, strict=False):
        for rank, slow in part.items():
            yield SlowGpu(rank=rank, slow=slow, gain_s=gain_s)


def variation_document(found: StepVariation | None) -> dict[str, Any] | None:
    """Every figure, in SI units; None where all GPUs are alike."""
    if found is None:
        return None
    return {
        "slowest": float(found.slowest),
        "mean": float(found.mean),
        "equal_step_time_s": float(found.equal_step_time_s),
        "mean_slowdown": float(found.mean_slowdown),
        "step_time_sd_s": float(found.spread_s),
        "gains": [{"rank": one.rank, "slow_factor": one.slow, "gain_s": one.gain_s} for one in found.gains],
        "draws": [_draw_document(one) for one in found.draws],
        "by_speed": found.by_speed
        and {**_draw_document(found.by_speed.step), "gpus": list(found.by_speed.gpus)},
    }


def _draw_document(one: Draw) -> dict[str, Any]:
    return {
        "seed": one.seed,
        "step_time_s": float(one.step_time_s),
        "step_time_bounds_s": [float(one.lower_s), float(one.upper_s)],
    }
