"""Residuals of profiles over measured kernels, per GPU and operation.

Knows which measurements belong together. Fits nothing; best shapes of searches are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from ...hardware.gpus import get_gpu
from ...hardware.profile import GpuProfile
from ...kernels.kernel import Attention, Gemm
from ..readers.measurements import Measurement
from .curve_fit import predicted_seconds

_WORST = 3


@dataclass(frozen=True, kw_only=True)
class ResidualRow:
    """Residuals |predicted / measured - 1| of one operation on one GPU; ``bias`` keeps the sign."""

    gpu: str
    operation: str
    points: int
    median: float
    p90: float
    bias: float
    worst: tuple[tuple[float, str], ...]


def residual_rows(
    profiles: Iterable[GpuProfile], measurements: Iterable[Measurement]
) -> Iterator[ResidualRow]:
    """One row per GPU and operation that has measurements, at the clock that these were made at."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for item in measurements:
        if not item.best_of_search:
            groups.setdefault((item.gpu, operation(item)), []).append(item)
    by_gpu = {
        profile.gpu: replace(profile, clock_fraction=profile.measured_clock_fraction) for profile in profiles
    }
    for (gpu, name), items in sorted(groups.items()):
        errors = [predicted_seconds(item, get_gpu(gpu), by_gpu[gpu]) / item.seconds - 1 for item in items]
        worst = sorted(zip(errors, (item.id for item in items), strict=True), key=lambda pair: -abs(pair[0]))
        yield ResidualRow(
            gpu=gpu,
            operation=name,
            points=len(items),
            median=float(np.median(np.abs(errors))),
            p90=float(np.percentile(np.abs(errors), 90)),
            bias=float(np.median(errors)),
            worst=tuple(worst[:_WORST]),
        )


def operation(item: Measurement) -> str:
    """Name of what was measured: ``gemm bf16``, ``grouped gemm fp8``, ``attention fa2``."""
    kernel = item.kernels[0]
    if isinstance(kernel, Gemm):
        return f"{'grouped ' if item.grouped else ''}gemm {kernel.dtype}"
    assert isinstance(kernel, Attention)
    return f"attention {kernel.implementation}"


def print_residuals(profiles: Iterable[GpuProfile], measurements: Iterable[Measurement]) -> None:
    """Print the rows as a table."""
    print(f"{'GPU':18} {'operation':18} {'points':>6} {'median':>7} {'p90':>7} {'bias':>7}  worst")
    for row in residual_rows(profiles, measurements):
        worst = "  ".join(f"{error:+.0%} {name}" for error, name in row.worst)
        errors = f"{row.median:7.1%} {row.p90:7.1%} {row.bias:+7.1%}"
        print(f"{row.gpu:18} {row.operation:18} {row.points:6d} {errors}  {worst}")
