"""Errors on GPUs that nobody has measured: each type predicted from its datasheet and another chip's kernels.

Knows rows and predictions; which chip stands in is calibration/cases/gpu_left_out.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from ....hardware.gpus import get_gpu
from ....sim.scenario.refusal import NotSupported
from ...cases.errors import Errors, errors_of
from ...cases.gpu_left_out import kin_of
from ..predict import Prediction
from ..run import JUDGED, Report, ValidatedCase


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenGpu:
    """Rows of a GPU type: errors as shipped and with the kernels of ``kin``, the share of measured steps in
    the 90 % intervals of the latter, their median full width, and how many could not be predicted."""

    name: str
    kin: str
    shipped: Errors
    left_out: Errors
    inside: float
    width: float
    refused: int


_Pair = tuple[ValidatedCase, Prediction]


def by_gpu_left_out(report: Report) -> tuple[UnseenGpu, ...]:
    """All rows of high and medium trust, then each GPU type with any."""
    pairs = [
        (row, report.gpu_left_out[row.case.id])
        for row in report.rows
        if row.case.trust in JUDGED["gpu"] and row.error is not None and row.case.id in report.gpu_left_out
    ]
    names = sorted({row.case.hardware.gpu for row, _ in pairs})
    groups = {name: [pair for pair in pairs if pair[0].case.hardware.gpu == name] for name in names}
    found = [_unseen("all", "", [pair for name in names if _kin(name) for pair in groups[name]])]
    found += [_unseen(name, _kin(name), groups[name]) for name in names if _kin(name)]
    return tuple(one for one in found if one is not None)


def _unseen(name: str, kin: str, pairs: Sequence[_Pair]) -> UnseenGpu | None:
    errors, inside, widths, known = [], [], [], []
    for row, prediction in pairs:
        measured_s, step_s, interval = (
            row.case.measured.step_time_s,
            prediction.step_time_s,
            prediction.interval_s,
        )
        if measured_s is None or step_s is None or interval is None or row.error is None:
            continue
        known.append((row.case.family, row.error))
        errors.append((row.case.family, step_s / measured_s - 1))
        inside.append(interval[0] <= measured_s <= interval[1])
        widths.append((interval[1] - interval[0]) / step_s)
    shipped, left_out = errors_of(known), errors_of(errors)
    if shipped is None or left_out is None:
        return None
    return UnseenGpu(
        name=name,
        kin=kin,
        shipped=shipped,
        left_out=left_out,
        inside=fmean(inside),
        width=median(widths),
        refused=len(pairs) - len(errors),
    )


def _kin(name: str) -> str:
    """The GPU whose kernels stand in for those of ``name``; empty where that has no kernels of its own, or no
    GPU can stand in."""
    gpu = get_gpu(name)
    try:
        return "" if gpu.profile_of else kin_of(gpu).name
    except NotSupported:
        return ""
