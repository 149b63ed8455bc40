"""One prediction, or one plan, for each combination of values of any fields.

Knows the points and how the job scales over them; shown by sim/report/plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...result.cost import StepCost, step_cost
from ...scenario.errors import ScenarioError
from ..axis_values import MOST_VALUES, check_axes
from ..fields import refuse_unknown, slip
from ..refused import reasons
from ..search.layout_plan import written
from ..search.on_ray import connected
from ..search.plan import Means, planned_whole, scenario_from
from ..search.searching import Wishes
from ..search.shown import LayoutFigures, layout_figures
from .scaling import Scaled, Scaling, scaling

if TYPE_CHECKING:
    import pandas as pd

    from ...scenario.documents import Changes
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class FieldPoint:
    """``values`` by field; ``refused`` says why there are no ``figures``. ``settings`` are those of the
    layout where it was planned anew, else empty; ``cost`` is None where no price is known.
    """

    values: Mapping[str, Any]
    gpus: int = 0
    tokens_per_step: float = 0.0
    figures: LayoutFigures | None = None
    settings: Mapping[str, Any]
    cost: StepCost | None = None
    refused: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether its memory as predicted fits; None where it was refused."""
        found = self.figures
        return None if found is None else found.peak_memory_bytes <= found.capacity_bytes


@dataclass(frozen=True, kw_only=True)
class FieldSweep:
    """``axes`` by field, ``points`` in their order, the last field fastest; ``replanned``: by searches."""

    scenario: Scenario
    axes: Mapping[str, Sequence[Any]]
    points: tuple[FieldPoint, ...]
    replanned: bool

    @property
    def scaling(self) -> Scaling:
        """How the step changes with the number of GPUs."""
        done = [
            Scaled(
                gpus=point.gpus,
                tokens=point.tokens_per_step,
                step_time_s=point.figures.step_time_s,
                others=tuple(
                    f"{field.rpartition('.')[2]} {value}"
                    for field, value in point.values.items()
                    if field not in ("cluster.gpus", "training.global_batch")
                ),
            )
            for point in self.points
            if point.figures is not None
        ]
        return scaling(done)

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each point, with the columns of the JSON's points."""
        import pandas as pd

        return pd.DataFrame([point_row(point) for point in self.points])

    def to_dict(self) -> dict[str, Any]:
        """What ``stepsim sweep --json`` prints; docs/plan.md says what each key means."""
        found = self.scaling
        return {
            "scenario": self.scenario.name,
            "axes": [{"field": field, "values": [*values]} for field, values in self.axes.items()],
            "replanned": self.replanned,
            "points": [
                {
                    "set": written({**point.values, **point.settings}),
                    "values": dict(point.values),
                    **point_figures(point),
                }
                for point in self.points
            ],
            "scaling": {"strong": found.strong, "weak": found.weak},
        }


def point_figures(point: FieldPoint) -> dict[str, Any]:
    """The figures of a point under the keys of the JSON; None where it was refused."""
    found, cost = point.figures, point.cost
    return {
        "step_time_s": found and found.step_time_s,
        "interval_s": found and [*found.interval_s],
        "tokens_per_second_per_gpu": found and found.tokens_per_second_per_gpu,
        "mfu": found and found.mfu,
        "peak_memory_bytes": found and found.peak_memory_bytes,
        "fits": point.fits,
        "fit_probability": found and found.fit_probability,
        "price_per_step": cost and cost.per_step,
        "price_per_trillion_tokens": cost and cost.per_trillion_tokens,
        "currency": cost and cost.currency,
        "refused": point.refused,
    }


def point_row(point: FieldPoint) -> dict[str, Any]:
    """A point as one flat row: its values, its layout where that was planned anew, its figures."""
    figures = point_figures(point)
    low, high = figures.pop("interval_s") or (None, None)
    return {
        **written({**point.values, **point.settings}),
        **figures,
        "interval_low_s": low,
        "interval_high_s": high,
    }


def sweep(
    source: str | Path | Mapping[str, Any] | Scenario,
    axes: Mapping[str, Sequence[Any]],
    changes: Changes = (),
    *,
    replan: bool = False,
    wishes: Wishes | None = None,
    jobs: int | None = None,
    ray: bool = False,
    journal: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> FieldSweep:
    """A prediction for each combination of values of fields, ``{"cluster.gpus": [64, 128]}``.

    With ``replan`` each point has the best layout for it, by ``wishes``; else that of the scenario, whose
    data-parallel size follows. A combination that is no scenario, or cannot be modelled, is a point without
    figures that says why.

    Raises:
        ScenarioError: of the scenario itself; a field that no scenario has, or none of whose values it can
            have.
        ValueError: no axes, or more than MOST_VALUES combinations.
    """
    base = scenario_from(source, changes)
    check_axes(axes, "axes")
    count = prod(len(values) for values in axes.values())
    if not axes:
        raise ValueError("a sweep needs the values of a field, as in --set cluster.gpus=64,128")
    if not 0 < count <= MOST_VALUES:
        raise ValueError(f"a sweep takes 1 to {MOST_VALUES:,} points, not {count:,}")
    for field, given in axes.items():
        refuse_unknown(base, field)
        _refuse_nonsense(base, field, given)
    say = progress or (lambda _: None)
    chosen = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    means = Means(jobs=jobs, ray=ray, journal=None if journal is None else Path(journal))
    if replan:
        wanted = wishes or Wishes(top=1, audit=0)
        points = []
        with connected(means.ray):
            for number, values in enumerate(chosen, 1):
                prefix = f"point {number} of {count}: "
                points.append(_replanned(base, values, wanted, means, _after(prefix, say)))
    else:
        points = _predicted(base, chosen, means, say)
    return FieldSweep(scenario=base, axes=dict(axes), points=tuple(points), replanned=replan)


def _refuse_nonsense(base: Scenario, field: str, values: Sequence[Any]) -> None:
    """ScenarioError where no value is one of the field's, whatever the others are: the first one's."""
    found = []
    for value in values:
        try:
            with_values(base, {field: value})
        except ScenarioError as wrong:
            if nonsense := slip(wrong, [field]):
                found.append(nonsense)
                continue
        return
    raise found[0]


def _after(prefix: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: say(prefix + text)


def with_values(base: Scenario, values: Mapping[str, Any]) -> Scenario:
    """The scenario with these values; its data-parallel size follows from them. Raises ScenarioError."""
    sized = any(field.startswith(("cluster.", "parallelism.")) for field in values)
    free = {"parallelism.dp": None} if sized and "parallelism.dp" not in values else {}
    return base.with_({**free, **values})


@dataclass(frozen=True)
class PointOf:
    """What workers run: the figures of a combination, or why there are none."""

    base: Scenario

    def __call__(self, values: Mapping[str, Any]) -> FieldPoint:
        try:
            scenario = with_values(self.base, values)
            return _point(values, scenario, layout_figures(scenario), {})
        except ScenarioError as wrong:
            return _refused(values, wrong)
        except ValueError as refusal:
            return FieldPoint(values=values, settings={}, refused=str(refusal).splitlines()[0])


def _predicted(
    base: Scenario,
    chosen: Sequence[Mapping[str, Any]],
    means: Means,
    say: Callable[[str], None],
) -> list[FieldPoint]:
    workers = means.workers(PointOf(base), base)
    points = []
    try:
        for number, point in enumerate(workers.run(chosen), 1):
            points.append(point)
            say(f"point {number:,} of {len(chosen):,}")
    finally:
        workers.close()
    return points


def _replanned(
    base: Scenario,
    values: Mapping[str, Any],
    wishes: Wishes,
    means: Means,
    say: Callable[[str], None],
) -> FieldPoint:
    try:
        found = planned_whole(
            base, {}, {field: [value] for field, value in values.items()}, wishes, means, say
        )
    except ScenarioError as wrong:
        return _refused(values, wrong)
    if found.choices:
        choice = found.choices[0]
        return _point(values, choice.scenario, choice.figures, choice.settings)
    none = f"no layout is legal: {reasons(found.refused, found.left_out)}"
    why = "no layout fits" if found.certificate.legal else none
    return FieldPoint(values=values, settings={}, refused=why)


def _refused(values: Mapping[str, Any], wrong: ScenarioError) -> FieldPoint:
    problem = wrong.problems[0]
    return FieldPoint(values=values, settings={}, refused=f"{problem.path}: {problem.message}")


def _point(
    values: Mapping[str, Any], scenario: Scenario, figures: LayoutFigures, settings: Mapping[str, Any]
) -> FieldPoint:
    gpus, tokens = scenario.cluster.gpus, float(scenario.training.tokens_per_step)
    return FieldPoint(
        values=values,
        gpus=gpus,
        tokens_per_step=tokens,
        figures=figures,
        settings=settings,
        cost=step_cost(scenario, tokens, figures.step_time_s, gpus),
    )
