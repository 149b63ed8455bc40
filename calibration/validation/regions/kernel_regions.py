"""How errors of kernel curves grow with the distance from what was measured: whole regions left out of the
fit.

Knows which points to leave out: all beyond a bound of one quantity (tokens, depth, FLOPs, sequence length),
one to four doublings inside either end of its measured range. The fit of the rest predicts them, and its
own measured range says how far away each is. Does not know what an interval does with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log
from typing import Literal

from ....hardware.calibrated.overlay import load_profile
from ....hardware.deviations import Deviation
from ....hardware.gpus import get_gpu
from ....hardware.profile import GpuProfile
from ....hardware.provenance import Beyond
from ....kernels.cost import beyond_range, curve_provenance, range_quantities
from ....kernels.kernel import Attention
from ...fit.curve_fit import predicted_seconds
from ...fit.growth import NORMAL_NINTH, LeftOut, growth_per_doubling
from ...readers.measurements import Measurement
from .kernel_errors import ENOUGH, fitted_on

CUTS = (1, 2, 3, 4)
"""Doublings by which the measured range is shortened."""

ENDS: tuple[Literal["largest", "smallest"], ...] = ("largest", "smallest")
_QUANTITIES = {"gemm": ("narrow", "k", "flops"), "attention": ("seq",)}


def kernel_growth(points: Sequence[Measurement]) -> dict[str, Deviation]:
    """The standard deviation that each doubling beyond a region adds, by name (``gemm_beyond_largest``)."""
    found: dict[str, list[LeftOut]] = {}
    for operation, far, one in regions_left_out(points):
        found.setdefault(f"{operation}_beyond_{far.end}", []).append(one)
    return {name: _deviation(members) for name, members in sorted(found.items())}


def _deviation(points: Sequence[LeftOut]) -> Deviation:
    regions, far = {point.group for point in points}, max(point.distance for point in points)
    curves = sorted({group.split(",")[0] for group in regions})
    return Deviation(
        sigma=growth_per_doubling(points),
        source=f"a doubling; stepsim calibrate residuals, regions of {', '.join(curves)} left out of their "
        f"fit: {len(points)} predictions in {len(regions)} regions, up to {far:.1f} doublings away",
    )


def regions_left_out(points: Sequence[Measurement]) -> Iterator[tuple[str, Beyond, LeftOut]]:
    """Operation, distance and error of every point of every region of every curve with enough points
    besides."""
    for name, own in _curves(points).items():
        for quantity in _QUANTITIES[own[0].operation]:
            for end in ENDS:
                for cut in CUTS:
                    yield from _region(name, own, quantity, end, cut)


def _curves(points: Sequence[Measurement]) -> Mapping[str, list[Measurement]]:
    """Points by the curve that they were fitted to: of a GPU, and of an implementation of attention."""
    found: dict[str, list[Measurement]] = {}
    for item in points:
        if item.operation in _QUANTITIES and not item.best_of_search:
            which = {k.implementation for k in item.kernels if isinstance(k, Attention)}
            found.setdefault(" ".join((item.gpu, item.operation, *sorted(which))), []).append(item)
    return {name: own for name, own in found.items() if len(own) >= ENOUGH}


def _region(
    name: str, own: Sequence[Measurement], quantity: str, end: Literal["largest", "smallest"], cut: int
) -> Iterator[tuple[str, Beyond, LeftOut]]:
    operation = own[0].operation
    values = [float(range_quantities(item.kernels[0])[quantity]) for item in own]
    bound = max(values) / 2**cut if end == "largest" else min(values) * 2**cut
    inside = [value <= bound if end == "largest" else value >= bound for value in values]
    seen = [item for item, kept in zip(own, inside, strict=True) if kept]
    if not ENOUGH <= len(seen) < len(own):
        return
    fitted = fitted_on(load_profile(own[0].gpu), operation, seen)
    for item, kept in zip(own, inside, strict=True):
        far = None if kept else _beyond(item, fitted)
        if far is not None:
            leaves = curve_provenance(item.kernels[0], fitted).p90_residual or 0.0
            error = log(item.seconds / predicted_seconds(item, get_gpu(item.gpu), fitted))
            yield (
                operation,
                far,
                LeftOut(
                    group=f"{name}, {quantity} {end}, {cut}",
                    distance=far.doublings,
                    error=error,
                    sigma=leaves / NORMAL_NINTH,
                ),
            )


def _beyond(item: Measurement, profile: GpuProfile) -> Beyond | None:
    """The kernel of a point that lies farthest outside."""
    found = [one for kernel in item.kernels if (one := beyond_range(kernel, profile))]
    return max(found, key=lambda one: one.doublings, default=None)
