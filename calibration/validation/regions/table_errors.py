"""Errors of the shipped curves on tables of many shapes, by GPU and kernel: of what the fits saw, and not.

Knows what is judged of each kernel: of GEMMs the time, with what the harness does besides; of attention
how time depends on shape, each row over its GPU's median ratio, and that median by itself, since these tables
read a paged cache. Fits nothing: the shapes that were left out are those of ``kernel_tables.left_out``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....hardware.calibrated.overlay import load_profile
from ....hardware.gpus import get_gpu
from ....hardware.profile import Harness
from ....kernels.kernel import Attention
from ...fit.curve_fit import harness_of, predicted_seconds
from ...readers.kernel_tables import left_out, shape_of
from ...readers.measurements import Measurement
from .kernel_errors import by_operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeErrors:
    """Of ``points`` shapes: median and ninth decile of the absolute error, and the median of the signed one.

    ``level`` is the median of predicted over measured time, which is 1 where errors are of the time itself.
    """

    points: int
    median: float
    p90: float
    level: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableErrors:
    """Errors of one ``kernel`` on one ``gpu``; of ``fitted`` shapes, and of ``unseen`` ones.

    ``harness`` is what the times hold besides the kernel.
    """

    gpu: str
    kernel: str
    fitted: ShapeErrors | None
    unseen: ShapeErrors | None
    harness: Harness


def table_errors(items: Iterable[Measurement]) -> tuple[TableErrors, ...]:
    """Errors of the shipped profiles by GPU and kernel. ValueError where a GPU has no such curve."""
    groups = sorted(by_operation(items).items())
    return tuple(_errors(gpu, kernel, members) for (gpu, kernel), members in groups)


def _errors(gpu: str, kernel: str, items: Sequence[Measurement]) -> TableErrors:
    unseen = [item for item in items if left_out(*shape_of(item))]
    fitted = [item for item in items if not left_out(*shape_of(item))]
    return TableErrors(
        gpu=gpu,
        kernel=kernel,
        fitted=_of(gpu, fitted) if fitted else None,
        unseen=_of(gpu, unseen) if unseen else None,
        harness=harness_of(items[0].kernels[-1], load_profile(gpu)),
    )


def _of(gpu: str, items: Sequence[Measurement]) -> ShapeErrors:
    import numpy as np

    chip, profile = get_gpu(gpu), load_profile(gpu)
    ratios = np.array([predicted_seconds(item, chip, profile) / item.seconds for item in items])
    level = float(np.median(ratios))
    if isinstance(items[0].kernels[-1], Attention):
        ratios = ratios / level
    errors = np.abs(ratios - 1)
    return ShapeErrors(
        points=len(items), median=float(np.median(errors)), p90=float(np.quantile(errors, 0.9)), level=level
    )
