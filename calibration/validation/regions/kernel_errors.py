"""Measured kernels beside predicted ones: by the shipped profiles, or each by a fit that did not see it.

Knows what may be learnt from what. A GPU with 20 points or more of an operation is predicted by fits
on its own points, each without whole shape families (a weight matrix under any number of tokens,
forward and backward; an attention at all sequence lengths). Elsewhere by the curves that would be
carried to it from its relatives if none of its own points of that operation existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....hardware.calibrated.overlay import load_profile
from ....hardware.gpus import get_gpu
from ....hardware.profile import GpuProfile
from ....kernels.cost import in_range
from ....kernels.kernel import Attention, Gemm
from ...fit.attention import fit_attention
from ...fit.carried import carried_profile
from ...fit.curve_fit import predicted_seconds, provenance
from ...fit.gemm import fit_shape, with_call
from ...measure.plan import PLANS
from ...readers.measurements import Measurement

ENOUGH = 20
"""Points of an operation on a GPU from which on its own shape families are left out in turn."""
_FOLDS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelError:
    """One measured point. ``how``: ``shipped``, ``families left out`` or ``carried``."""

    id: str
    gpu: str
    kernel: str
    measured_s: float
    predicted_s: float
    in_range: bool
    how: str

    @property
    def error(self) -> float:
        """Predicted over measured time, minus one."""
        return self.predicted_s / self.measured_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelErrors:
    """Absolute errors of ``points`` rows; the signed median shows which way."""

    points: int
    median: float
    p90: float
    signed_median: float
    how: str


def shipped_rows(measurements: Sequence[Measurement]) -> tuple[KernelError, ...]:
    """Every point by the shipped profile of its GPU, at the clock of that GPU's own sweep."""
    return tuple(_row(item, _as_measured(load_profile(item.gpu), item), "shipped") for item in measurements)


def left_out_rows(asked: Sequence[Measurement], known: Sequence[Measurement]) -> tuple[KernelError, ...]:
    """Every one of ``asked`` by what the others of ``known`` show, in the order of ``asked``."""
    rows: dict[str, KernelError] = {}
    for (gpu, operation), points in by_operation(asked).items():
        if len(points) >= ENOUGH:
            found = _without_families(gpu, operation, points, known)
        else:
            profile = carried_profile(gpu, operation, known)
            found = (_row(item, _as_measured(profile, item), "carried") for item in points)
        rows |= {row.id: row for row in found}
    return tuple(rows[item.id] for item in asked)


def kernel_summary(rows: Iterable[KernelError]) -> dict[str, dict[str, KernelErrors]]:
    """Figures by GPU and kernel."""
    import numpy as np

    groups: dict[tuple[str, str], list[KernelError]] = {}
    for row in rows:
        groups.setdefault((row.gpu, row.kernel), []).append(row)
    summary: dict[str, dict[str, KernelErrors]] = {}
    for (gpu, kernel), members in sorted(groups.items()):
        errors = np.array([row.error for row in members])
        summary.setdefault(gpu, {})[kernel] = KernelErrors(
            points=len(members),
            median=float(np.median(np.abs(errors))),
            p90=float(np.quantile(np.abs(errors), 0.9)),
            signed_median=float(np.median(errors)),
            how=members[0].how,
        )
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """``points`` measured more than once, the very same kernels: errors of each as the others' mean has it.

    No prediction by shape alone is much nearer than measurements are to each other.
    """

    points: int
    median: float
    p90: float


def repeats(measurements: Iterable[Measurement]) -> dict[tuple[str, str], Repeats]:
    """How far repeated measurements of the same kernel differ, by GPU and operation."""
    import numpy as np

    same: dict[tuple[object, ...], list[float]] = {}
    for item in measurements:
        if not item.best_of_search:
            same.setdefault((item.gpu, item.operation, item.kernels), []).append(item.seconds)
    errors: dict[tuple[str, str], list[float]] = {}
    for (gpu, operation, _), seconds in same.items():
        for place in range(len(seconds) if len(seconds) > 1 else 0):
            others = np.log(seconds[:place] + seconds[place + 1 :])
            found = errors.setdefault((str(gpu), str(operation)), [])
            found.append(abs(float(np.exp(np.mean(others))) / seconds[place] - 1))
    return {
        key: Repeats(points=len(found), median=float(np.median(found)), p90=float(np.quantile(found, 0.9)))
        for key, found in errors.items()
    }


def by_operation(points: Iterable[Measurement]) -> Mapping[tuple[str, str], list[Measurement]]:
    """Points grouped by GPU and operation, in the order in which each first occurs."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for item in points:
        groups.setdefault((item.gpu, item.operation), []).append(item)
    return groups


def _without_families(
    gpu: str, operation: str, points: Sequence[Measurement], known: Sequence[Measurement]
) -> Iterator[KernelError]:
    """Rows of ``points``, a fold of whole families at a time, each by a fit on all other families."""
    asked = set[str]().union(*(_types(m) for m in points))
    own = [m for m in known if m.gpu == gpu and m.operation == operation and not m.best_of_search]
    own = [m for m in own if _types(m) <= asked]
    searched = [m for m in points if m.best_of_search]
    families = sorted({item.family for item in points if not item.best_of_search})
    for first in range(min(_FOLDS, len(families))):
        out = set(families[first::_FOLDS])
        fitted = fitted_on(load_profile(gpu), operation, [m for m in own if m.family not in out])
        for item in points:
            if item.family in out and not item.best_of_search:
                yield _row(item, fitted, "families left out")
    carried = carried_profile(gpu, operation, known) if searched else None
    for item in searched:
        assert carried is not None
        yield _row(item, _as_measured(carried, item), "families left out")


def _types(point: Measurement) -> set[str]:
    """The types of the operands of its GEMMs."""
    return {kernel.dtype for kernel in point.kernels if isinstance(kernel, Gemm)}


def fitted_on(profile: GpuProfile, operation: str, points: Sequence[Measurement]) -> GpuProfile:
    """``profile`` with the curves of ``operation`` fitted on ``points`` alone, at their clock."""
    gpu = get_gpu(profile.gpu)
    if operation == "attention":
        profile = replace(profile, clock_fraction=profile.measured_clock_fraction, attention=())
        at_peak = replace(profile, clock_fraction=1.0)
        curves = []
        for name in sorted({k.implementation for m in points for k in m.kernels if isinstance(k, Attention)}):
            some = [m for m in points if any(getattr(k, "implementation", "") == name for k in m.kernels)]
            curves.append(fit_attention(at_peak, name, some, gpu, "the other families"))
        return replace(at_peak, attention=tuple(curves))
    if operation == "grouped_gemm":
        at_clock = replace(profile, clock_fraction=profile.measured_clock_fraction)
        fitted = with_call(at_clock, points, gpu)
        record = provenance("the other families", points, gpu, fitted)
        return replace(fitted, gemm=replace(fitted.gemm, provenance=record))
    dtypes = set[str]().union(*(_types(m) for m in points))
    plan = next((plan for plan in PLANS if plan.gpu == profile.gpu), None)
    if len(dtypes) != 1 or plan is None:  # a second type would need a curve of its own
        told = ", ".join(sorted(dtypes)) or "no GEMMs"
        raise ValueError(f"{profile.gpu}: no curve can be fitted without a family on {told} of this GPU")
    (dtype,) = dtypes
    start = replace(profile, clock_fraction=1.0, measured_boost=0.0, measured_call_s=0.0)
    fitted, _ = fit_shape(start, dtype, points, gpu, two_states=plan.two_states, overlapped=plan.overlapped)
    record = provenance("the other families", points, gpu, fitted)
    return replace(fitted, gemm=replace(fitted.gemm, provenance=record))


def _as_measured(profile: GpuProfile, item: Measurement) -> GpuProfile:
    """``profile`` at the clock at which the point was measured: the best one where a search found it."""
    clock = 1.0 if item.best_of_search else profile.measured_clock_fraction
    if item.best_of_search:
        profile = replace(profile, measured_boost=0.0, measured_call_s=0.0)
    return replace(profile, clock_fraction=clock)


def _row(item: Measurement, profile: GpuProfile, how: str) -> KernelError:
    return KernelError(
        id=item.id,
        gpu=item.gpu,
        kernel=item.operation,
        measured_s=item.seconds,
        predicted_s=predicted_seconds(item, get_gpu(item.gpu), profile),
        in_range=all(in_range(kernel, profile) for kernel in item.kernels),
        how=how,
    )
