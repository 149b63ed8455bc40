"""Sweeps: one or two fields over ranges, the rest as it stands, the same chance at every point.

``checkpoint.storage.every=5min..2h`` takes seven values evenly spaced in the logarithm,
``recovery.spares.warm=0..16`` whole numbers; ``a..b/5`` takes five; ``a,b,c`` takes these.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ....hardware.quantities import DAY_S, HOUR_S, parse_quantity
from ..planning.blocks import CampaignBlocks, blocks_of
from ..planning.build_plan import build_plan
from ..planning.estimate import check_replications
from ..planning.step_time import SimulatedStep
from .statistics import Estimate, ratio_difference
from .study import Progress, Study, many
from .variants import parts_of

if TYPE_CHECKING:
    from ...scenario.faults.bare import Bare
    from ...scenario.models import Scenario

POINTS = 7
MOST_POINTS = 400
REPLICATIONS = 16
"""Replications of each point, where the document says auto."""

_RANGE = re.compile(r"(?P<low>.+?)\.\.(?P<high>[^/]+?)(?:/(?P<points>\d+))?")
_UNITS = (("d", DAY_S), ("h", HOUR_S), ("min", 60.0), ("s", 1.0))


@dataclass(frozen=True)
class Axis:
    """A field and its values, as ``--set`` takes them."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class SweepPoint:
    """The study with these values."""

    values: tuple[str, ...]
    study: Study

    @property
    def ettr(self) -> Estimate:
        return self.study.ettr

    @property
    def value(self) -> Estimate:
        """What points are compared by: ETTR of all GPUs held, where spares are known."""
        return self.study.ettr_held or self.study.ettr


@dataclass(frozen=True)
class Ranking:
    """``by``: ettr, or ettr_held where points hold different numbers of GPUs. ``equal``: the points, the best
    one among them, whose difference from it is within its standard error.
    """

    by: str
    best: SweepPoint
    equal: tuple[SweepPoint, ...]
    points: tuple[SweepPoint, ...]

    @property
    def no_difference(self) -> bool:
        """Whether all of several points are equal."""
        return len(self.equal) == len(self.points) > 1

    def value(self, point: SweepPoint) -> Estimate:
        """The figure that points are compared by."""
        return point.value if self.by == "ettr_held" else point.ettr


def rank(points: Sequence[SweepPoint]) -> Ranking:
    """The best point, and which are as good as it. Spares cost GPU-hours: where points hold different numbers
    of GPUs, it is useful GPU-hours over those held that counts.
    """
    held = {point.study.gpus_held for point in points}
    by = "ettr_held" if None not in held and len(held) > 1 else "ettr"
    value = (lambda point: point.value.mean) if by == "ettr_held" else (lambda point: point.ettr.mean)
    top = max(points, key=value)
    equal = tuple(point for point in points if point is top or _equal(top, point, by))
    return Ranking(by, top, equal, tuple(points))


def _equal(top: SweepPoint, other: SweepPoint, by: str) -> bool:
    """Whether two points differ by no more than the standard error of their difference, replication by
    replication; of single replications, whether they are the same.
    """

    def parts(point: SweepPoint) -> tuple[list[float], list[float]]:
        useful, walls = parts_of(point.study.outcomes)
        share = point.study.job_share if by == "ettr_held" else 1.0
        return [share * one for one in useful], walls

    gap = ratio_difference(parts(other), parts(top), top.study.confidence)
    return abs(gap.mean) <= (gap.error if gap.bounded else 0.0) + 1e-12


def held_fixed(axes: Sequence[Axis], points: Sequence[SweepPoint]) -> str:
    """The spares that a sweep over spares leaves as they are; empty where there is nothing to say."""
    rules = points[0].study.plan.recovering
    swept = {axis.field.rpartition(".")[2] for axis in axes if axis.field.startswith("recovery.spares")}
    fixed = {"warm": rules.warm, "cold": rules.cold}
    kept = [f"{fixed[name]} {name}" for name in ("warm", "cold") if name not in swept]
    return f"{kept[0]} spares in every point" if len(swept) == 1 and kept and rules.warm is not None else ""


def parse_axis(text: str) -> Axis:
    """``field=range``. ValueError for anything else, for bounds of different kinds, or for a range of
    nothing.
    """
    field, equals, rest = text.partition("=")
    if not equals or not field or not rest:
        raise ValueError(f"--sweep {text}: write field=low..high, as in checkpoint.storage.every=5min..2h")
    match = _RANGE.fullmatch(rest.strip())
    if match is None:
        values = tuple(value.strip() for value in rest.split(",") if value.strip())
        if not values:
            raise ValueError(f"--sweep {text}: no values")
        return Axis(field, values)
    points = int(match["points"]) if match["points"] else None
    if points is not None and points > MOST_POINTS:
        raise ValueError(f"--sweep {text}: {points:,} points are more than {MOST_POINTS}; give fewer")
    if points is not None and points < 2:
        raise ValueError(f"--sweep {text}: a range takes two points or more")
    try:
        return Axis(field, tuple(_between(match["low"].strip(), match["high"].strip(), points)))
    except ValueError as error:
        raise ValueError(f"--sweep {text}: {error}") from None


def _between(low: str, high: str, points: int | None) -> list[str]:
    if low.isdigit() and high.isdigit():
        first, last = int(low), int(high)
        _ascending(first, last)
        count = points or min(last - first + 1, POINTS + 2)
        return sorted({str(round(first + (last - first) * i / (count - 1))) for i in range(count)}, key=int)
    try:
        a, b, unit = float(low), float(high), False
    except ValueError:
        a, b, unit = *_seconds(low, high), True
    _ascending(a, b)
    count = points or POINTS
    if a > 0:
        values = [a * (b / a) ** (i / (count - 1)) for i in range(count)]
    else:
        values = [a + (b - a) * i / (count - 1) for i in range(count)]
    return [_duration(value) if unit else f"{value:.6g}" for value in values]


def _seconds(low: str, high: str) -> tuple[float, float]:
    try:
        return parse_quantity(low, "seconds"), parse_quantity(high, "seconds")
    except ValueError:
        raise ValueError(
            f"a range has numbers or durations at its ends, not {low!r} and {high!r}; other fields take "
            "values one by one, as in recovery.policy=restart,hot_spare"
        ) from None


def _ascending(low: float, high: float) -> None:
    if not low < high:
        raise ValueError("the upper bound must lie above the lower one")


def _duration(seconds: float) -> str:
    """Three digits with the unit that suits.

    >>> _duration(300), _duration(6868.3)
    ('5 min', '1.91 h')
    """
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{float(f'{seconds / size:.3g}'):g} {unit}"
    return f"{float(f'{seconds:.3g}'):g} s"


def sweep(
    source: str | Mapping[str, Any],
    overrides: Sequence[str],
    axes: Sequence[Axis],
    *,
    replications: int | None = None,
    max_events: int | None = None,
    progress: Progress | None = None,
) -> list[SweepPoint]:
    """Every combination, in order; ``source`` as ``load_campaign`` takes it.

    ValueError for a field or value that the scenario refuses.
    """
    if math.prod(len(axis.values) for axis in axes) > MOST_POINTS:
        raise ValueError(f"--sweep: more than {MOST_POINTS} points; give fewer values")
    say = progress or (lambda _: None)
    models: list[tuple[Scenario, SimulatedStep]] = []
    points = list(itertools.product(*(axis.values for axis in axes)))
    plans, runs = [], []
    for values in points:
        changes = [f"{axis.field}={value}" for axis, value in zip(axes, values, strict=True)]
        say(", ".join(changes))
        blocks = blocks_of(_loaded(source, overrides, changes))
        plans.append(build_plan(blocks, _model(blocks, models)))
        runs.append(blocks.run)
    count = replications or (REPLICATIONS if runs[0].replications == "auto" else runs[0].replications)
    check_replications(plans, int(count), max_events)
    say(f"{count} replications of {len(points)} points")
    return [
        SweepPoint(values, Study(plan, tuple(done), run.confidence))
        for values, plan, done, run in zip(points, plans, many(plans, int(count)), runs, strict=True)
    ]


def _loaded(
    source: str | Mapping[str, Any], overrides: Sequence[str], changes: Sequence[str]
) -> Scenario | Bare:
    """The campaign at a point; a mistake in what is swept is reported as one of ``--sweep``."""
    from ...scenario.errors import ScenarioError
    from ...scenario.load import load_campaign

    try:
        return load_campaign(source, [*overrides, *changes])
    except ScenarioError as error:
        raise ScenarioError(
            [
                replace(one, mark=replace(one.mark, file="--sweep"))
                if one.mark.source_line in changes and one.mark.source_line not in overrides
                else one
                for one in error.problems
            ]
        ) from None


def _model(blocks: CampaignBlocks, known: list[tuple[Scenario, SimulatedStep]]) -> SimulatedStep | None:
    """The step model of an equal job, so that nothing is replayed twice."""
    if blocks.scenario is None:
        return None
    nothing = dict.fromkeys(("faults", "detection", "recovery", "checkpoint", "run"))
    job = blocks.scenario.model_copy(update=nothing)
    for other, model in known:
        if other == job:
            return model
    model = SimulatedStep(blocks.scenario, blocks.machine, blocks.step_time)
    known.append((job, model))
    return model
