"""What a fit is worth: its constants, the error they leave, and the error on families they never saw.

Knows how rows are selected and split, and asks step_constants.py for fits; writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...cases.constants import (
    CLOCKS,
    HOSTS_S,
    Constants,
    Wanted,
    shipped_constants,
    unfitted,
)
from ...cases.errors import Errors, errors_of
from ...cases.halves import HALVES, Halves, half_of
from .left_out import without_source
from .rows import StepTimes, TimedRow, Times, timed_rows
from .search import Points, around, flat_range
from .step_constants import (
    COARSE_CLOCKS,
    COARSE_HOSTS,
    WORTH,
    Data,
    StepConstant,
    best_corun,
    best_fixed,
    best_host,
    fit_constants,
    fittable,
    mean_error,
)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of a set of rows: the fit's own figure, those of validation, and the former by source."""

    error: float
    errors: Errors
    sources: tuple[tuple[str, int, int, float], ...]  # name, rows, families, error


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedCoverage:
    """How many rows, families and sources a constant rests on, and the error that is left on them.

    ``held_out`` is that error where each half is predicted with what the other half gives.
    """

    rows: int
    families: int
    sources: int
    error: float
    held_out: float

    @property
    def basis(self) -> str:
        """The counts in words."""
        sources = "source" if self.sources == 1 else "sources"
        return f"{self.rows} rows, {self.families} families, {self.sources} {sources}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCurve:
    """Error of the rows of one GPU or preset over one of its constants, the others as fitted.

    ``flat`` is where the error stays within ``WORTH`` of the least one.
    """

    points: Points
    flat: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFit:
    """Constants of a GPU. ``halves`` are the clocks that each half of the families gives by itself."""

    name: str
    clock: ErrorCurve
    corun: StepConstant
    coverage: FittedCoverage
    halves: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetFit:
    """Constants of a preset. ``halves`` are the host times that each half gives by itself."""

    name: str
    host: StepConstant
    host_curve: ErrorCurve
    fixed: StepConstant
    coverage: FittedCoverage
    halves: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfFit:
    """The fit on one half of the families: its error there, and on the families that it left out.

    A score is None where the half has no rows.
    """

    constants: Constants
    inside: Score | None
    outside: Score | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFit:
    """A fit and all that one needs to judge it.

    ``refused`` rows of high trust cannot be expressed, ``left_out`` ones touch no constant that is fitted.
    ``near``: searched from the shipped constants, which then are ``unfitted``. ``sources`` are the constants
    that the rows of all other sources give, by the one that is left out.
    ``held_out`` is the error of every row under the constants of the half that its family is not in.
    """

    constants: Constants
    halves: tuple[HalfFit, ...]
    gpus: tuple[GpuFit, ...]
    presets: tuple[PresetFit, ...]
    refused: int
    left_out: int
    near: bool
    sources: Mapping[str, Constants]
    unfitted: Score
    shipped: Score
    fitted: Score
    held_out: Score
    simulated: int

    @property
    def saved(self) -> Halves:
        """The constants of both halves and of the whole fit; validation predicts unseen families by them."""
        errors = self.fitted.errors
        return Halves(
            constants=tuple(half.constants for half in self.halves),
            sources=self.sources,
            fitted=self.fitted_constants,
            cases=errors.cases,
            families=errors.families,
        )

    @property
    def fitted_constants(self) -> int:
        """How many constants the step times have shaped: every clock, and what else earned its place."""
        choices = [gpu.corun for gpu in self.gpus]
        choices += [choice for preset in self.presets for choice in (preset.host, preset.fixed)]
        return len(self.gpus) + sum(choice.earned for choice in choices)


def fit_steps(
    paths: Iterable[str | Path],
    *,
    gpus: Sequence[str],
    presets: Sequence[str],
    jobs: int,
    say: Say,
    near: bool,
) -> StepFit:
    """Fit on the files ``paths``, in ``jobs`` processes.

    ``gpus`` and ``presets`` name those whose constants are fitted, all others staying as shipped; both
    empty is all of them. ``near`` searches from the shipped constants only.

    Raises:
        ValueError: a file that is not a file of cases, or no row to fit any constant on.
    """
    say("reading cases")
    found, refused = timed_rows(paths)
    wanted = fittable(found)
    if gpus or presets:
        wanted = Wanted(
            gpus=tuple(name for name in wanted.gpus if name in gpus),
            presets=tuple(name for name in wanted.presets if name in presets),
        )
    rows = [row for row in found if row.gpu in wanted.gpus or row.preset in wanted.presets]
    if not rows:
        raise ValueError(
            f"nothing to fit: no GPU or software asked for has rows of high trust in two families or more "
            f"({len(found)} rows can be expressed, {refused} cannot)"
        )
    with StepTimes(jobs) as times:
        report = judge(rows, times, wanted, say, near=near)
        return replace(report, refused=refused, left_out=len(found) - len(rows), simulated=times.simulated)


def judge(
    rows: Sequence[TimedRow],
    times: Times,
    wanted: Wanted,
    say: Say = lambda _: None,
    *,
    near: bool = False,
) -> StepFit:
    """Fit on all rows, and on either half of the families to see the error on the other."""
    start = shipped_constants(rows) if near else unfitted(rows, wanted)
    data = Data(rows=rows, times=times, wanted=wanted, start=start, near=near)
    constants = fit_constants(data, say)
    halves = []
    for half in HALVES:
        say(f"half {half + 1}")
        halves.append(fit_constants(replace(data, rows=[r for r in rows if half_of(r.family) == half])))
    held_out = _held_out(data, halves)
    sources = {name: without_source(data, name, say) for name in sorted({row.source for row in rows})}
    say("curves")
    return StepFit(
        constants=constants,
        halves=tuple(_half_fit(data, half, found) for half, found in zip(HALVES, halves, strict=True)),
        gpus=tuple(_gpu_fit(data, constants, name, halves, held_out) for name in wanted.gpus),
        presets=tuple(_preset_fit(data, constants, name, halves, held_out) for name in wanted.presets),
        refused=0,
        left_out=0,
        near=near,
        sources=sources,
        unfitted=_score(rows, data.errors(data.start, rows)),
        shipped=_score(rows, data.errors(shipped_constants(rows), rows)),
        fitted=_score(rows, data.errors(constants, rows)),
        held_out=_score(rows, [held_out[row] for row in rows]),
        simulated=0,
    )


def _held_out(data: Data, halves: Sequence[Constants]) -> dict[TimedRow, float]:
    """Error of each row under the constants of the half that its family is not in."""
    errors: dict[TimedRow, float] = {}
    for half, constants in zip(HALVES, halves, strict=True):
        unseen = [row for row in data.rows if half_of(row.family) != half]
        errors.update(zip(unseen, data.errors(constants, unseen), strict=True))
    return errors


def _half_fit(data: Data, half: int, constants: Constants) -> HalfFit:
    inside = [row for row in data.rows if half_of(row.family) == half]
    outside = [row for row in data.rows if half_of(row.family) != half]
    return HalfFit(
        constants=constants,
        inside=_score(inside, data.errors(constants, inside)) if inside else None,
        outside=_score(outside, data.errors(constants, outside)) if outside else None,
    )


def _score(rows: Sequence[TimedRow], errors: Sequence[float]) -> Score:
    pairs = list(zip(rows, errors, strict=True))
    sources = []
    for source in sorted({row.source for row in rows}):
        own = [(row, error) for row, error in pairs if row.source == source]
        left = mean_error([row for row, _ in own], [error for _, error in own])
        sources.append((source, len(own), len({row.family for row, _ in own}), left))
    by_family = errors_of((row.family, error) for row, error in pairs)
    assert by_family is not None
    return Score(error=mean_error(rows, errors), errors=by_family, sources=tuple(sources))


def _gpu_fit(
    data: Data,
    constants: Constants,
    name: str,
    halves: Sequence[Constants],
    held_out: Mapping[TimedRow, float],
) -> GpuFit:
    rows, clock = data.of_gpu(name), constants.gpus[name].clock_fraction
    return GpuFit(
        name=name,
        clock=_curve(
            around(CLOCKS, clock, COARSE_CLOCKS, near=data.near),
            lambda value: data.error(constants.with_gpu(name, clock_fraction=value), rows),
        ),
        corun=best_corun(data, constants, name),
        coverage=_coverage(data, constants, rows, held_out),
        halves=tuple(half.gpus[name].clock_fraction for half in halves),
    )


def _preset_fit(
    data: Data,
    constants: Constants,
    name: str,
    halves: Sequence[Constants],
    held_out: Mapping[TimedRow, float],
) -> PresetFit:
    rows, host = data.of_preset(name), best_host(data, constants, name)
    return PresetFit(
        name=name,
        host=host,
        host_curve=_curve(
            around(HOSTS_S, host.best, COARSE_HOSTS, near=data.near),
            lambda value: data.error(constants.with_preset(name, host_s_per_kernel=value), rows),
        ),
        fixed=best_fixed(data, constants, name),
        coverage=_coverage(data, constants, rows, held_out),
        halves=tuple(half.presets[name].host_s_per_kernel for half in halves),
    )


def _coverage(
    data: Data, constants: Constants, rows: Sequence[TimedRow], held_out: Mapping[TimedRow, float]
) -> FittedCoverage:
    return FittedCoverage(
        rows=len(rows),
        families=len({row.family for row in rows}),
        sources=len({row.source for row in rows}),
        error=data.error(constants, rows),
        held_out=mean_error(rows, [held_out[row] for row in rows]),
    )


def _curve(values: Sequence[float], score: Callable[[float], float]) -> ErrorCurve:
    points = tuple((value, score(value)) for value in values)
    return ErrorCurve(points=points, flat=flat_range(points, WORTH))
