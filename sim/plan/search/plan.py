"""The main sentence of planning: enumerate, screen, search best first, and tell what was found.

Knows which part does what; each of them knows its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...children import cores
from ...engine.collection import collection_paused
from ...result.result import SURE_TO_FIT
from ...scenario.load import load_scenario
from ..axes import Axes, axes_named
from ..axis_values import check_axes, check_fields
from ..boldness import LEAST_BOLD
from ..certainty import fit_probability
from .candidates import Candidates
from .findings import Findings
from .journal import Journal, answer_key
from .judged import ReplayOf
from .judging import Answering, Judging
from .layout_in_words import short
from .layout_plan import LayoutPlan
from .objective import Objective, PlanLimits, check_counted
from .searching import LayoutSearch, Wishes
from .workers import POOL_ABOVE_S, Local, Workers, nothing_to_prepare

if TYPE_CHECKING:
    from ...scenario.documents import Changes
    from ...scenario.models import Scenario
    from .emission import Emission

LEAST_FITS = 0.001
"""Layouts that are less likely to fit are never bounded."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Who does the replays and where they are kept: ``jobs`` processes (None: one for each core), or a Ray
    cluster, so many at a time; a ``journal`` file, or none. ValueError for jobs below 1.
    """

    jobs: int | None = None
    ray: bool = False
    journal: Path | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None:
            _check_whole("jobs", self.jobs, 1)

    def workers(
        self,
        function: Callable[[Any], Any],
        base: Scenario,
        *,
        prepare: Callable[[], None] = nothing_to_prepare,
        many: bool = False,
    ) -> Workers[Any, Any]:
        """Workers that call ``function`` on layouts of the scenario ``base``. With ``many`` of these a pool
        of processes starts at once, not when the work proves long. ``prepare`` loads what the function
        needs. Raises ClusterError of Ray."""
        if self.ray:
            from .on_ray import OnRay

            return OnRay(function, made_of=partial(answer_key, base), jobs=self.jobs)
        after_s = 0.0 if many else POOL_ABOVE_S
        return Local(function, self.jobs or cores(), after_s=after_s, prepare=prepare)


def plan(
    source: str | Path | Mapping[str, Any] | Scenario,
    changes: Changes = (),
    *,
    fix: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    axes: str = Axes.LAYOUT.value,
    top: int = 5,
    objective: str = Objective.STEP_TIME.value,
    deadline_s: float | None = None,
    budget: float | None = None,
    fits: float = SURE_TO_FIT,
    audit: int = 20,
    replays: int | None = None,
    jobs: int | None = None,
    ray: bool = False,
    journal: str | Path | None = None,
    emit: str | None = None,
    emit_version: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> LayoutPlan:
    """The best layouts of a scenario, proven within the model.

    Args:
        source, changes: a name, file or mapping and changes, as ``load_scenario`` takes them; or a Scenario.
        fix: fields and the values that they keep, ``{"parallelism.tp": 4}``.
        vary: further fields and the values that are tried, ``{"cluster.gpus": [64, 128]}``.
        axes: which of a layout's fields take several values where nothing is said of them: ``layout``, the
            usual ones, or ``all``, with switches of overlap, orders of ranks, sizes of shards and
            recomputation of some layers, where the framework has them as options.
        top: how many layouts are proposed.
        objective: ``step-time``, ``tokens-per-dollar``, ``days`` or ``goodput``.
        deadline_s, budget: of the token budget, in seconds and in the price's currency.
        fits: least probability that a proposed layout fits in memory.
        audit: layouts that the bounds rule out and that are replayed all the same.
        replays: most that the proof may take; then the best so far, and by how much another may be better.
        jobs: processes; None: one for each core. The answer does not depend on it.
        ray: replay on a Ray cluster, ``jobs`` layouts at a time.
        journal: a file that keeps every replay, so that interrupted work resumes.
        emit: a framework; only layouts that its files can say are proposed, ``emitted`` is the best.
        emit_version: of that framework, as its releases are called.

    Raises:
        ScenarioError: with every problem of the scenario, and of what is fixed and varied; or what of the run
            the framework cannot say in any layout.
        NotSupported: the scenario lacks what the objective or a limit counts.
        ValueError: an unknown objective or word for axes, a probability outside LEAST_FITS to 1, or 1, a
            file named as the journal that is not one.
    """
    wishes = wishes_of(
        top=top,
        objective=objective,
        deadline_s=deadline_s,
        budget=budget,
        fits=fits,
        audit=audit,
        replays=replays,
        emission=_emission(emit, emit_version),
        axes=axes,
    )
    means = Means(jobs=jobs, ray=ray, journal=None if journal is None else Path(journal))
    return planned(
        scenario_from(source, changes),
        {} if fix is None else fix,
        {} if vary is None else vary,
        wishes,
        means,
        progress,
    )


def _emission(framework: str | None, version: str | None) -> Emission | None:
    if framework is None:
        return None
    from .emission import Emission

    return Emission(framework=framework, version=version)


def scenario_from(source: str | Path | Mapping[str, Any] | Scenario, changes: Changes) -> Scenario:
    """A scenario by name, file or mapping, or one that is there, with changes."""
    if isinstance(source, str | Path | Mapping):
        return load_scenario(source, changes)
    return source.with_(changes) if changes else source.checked()


def planned(
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    wishes: Wishes,
    means: Means,
    progress: Callable[[str], None] | None = None,
    screened: Callable[[Candidates], None] | None = None,
) -> LayoutPlan:
    """As ``plan``, with a loaded scenario and checked ``wishes``. ``screened`` is called with all layouts
    before any is replayed."""
    check_fields(fix, "fix", "{'parallelism.tp': 4}")
    check_axes(vary)
    say = progress or (lambda _: None)
    clock = [time.perf_counter()]
    if wishes.emission is not None:
        wishes.emission.check(base, vary)
    check_counted(wishes.objective, wishes.limits, base, {*fix, *vary})
    journal = Journal(path=means.journal)  # before the work: a file that is none is refused at once
    bounded = LEAST_FITS if screened is not None else min(wishes.fits, LEAST_BOLD)
    among, timing = candidates_of(base, fix, vary, say, fits=bounded, axes=wishes.axes)
    if screened is not None:
        screened(among)
    clock.append(time.perf_counter())
    found = _searched(among, wishes, means, journal, say)
    timing["replay_s"] = time.perf_counter() - clock[-1]
    timing["total_s"] = time.perf_counter() - clock[0]
    return found.told(timing)


def _searched(
    among: Candidates, wishes: Wishes, means: Means, journal: Journal, say: Callable[[str], None]
) -> Findings:
    """Replay the most promising of the screened layouts, until the search has proven the best or must end."""
    from ..screen.screen import MANY

    if means.ray:
        say("connecting to Ray")
    replays = ReplayOf()
    answering = Answering(replays, among.layouts.replayed)
    many = len(among.layouts) >= MANY
    workers = means.workers(answering, among.base, prepare=replays.load, many=many)
    try:
        judging = Judging(
            scenario_of=among.layouts.scenario_of,
            workers=workers,
            journal=journal,
            alike=among.layouts.twin,
            by_number=True,
            unsayable=_unsayable(wishes, among),
        )
        search = LayoutSearch(among=among, wishes=wishes, judging=judging, tell=_telling(say, among))
        if wishes.objective is Objective.GOODPUT:
            search.final = partial(_under_faults, search)
        found = Findings(search=search, say=say)
        say("bounding and replaying the most promising layouts")
        found.run()
    finally:
        workers.close()
    return found


def planned_whole(
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    wishes: Wishes,
    means: Means,
    progress: Callable[[str], None] | None = None,
) -> LayoutPlan:
    """Plan as ``planned`` does, for questions that take several plans: an interrupt raises KeyboardInterrupt,
    rather than ending this plan with its best so far and going on with the next."""
    found = planned(base, fix, vary, wishes, means, progress)
    if found.certificate.interrupted:
        raise KeyboardInterrupt
    return found


def candidates_of(
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    say: Callable[[str], None],
    *,
    fits: float = LEAST_FITS,
    axes: Axes = Axes.LAYOUT,
) -> tuple[Candidates, dict[str, float]]:
    """The legal layouts, screened; and the seconds that both took. Bounds are known of those that fit with a
    probability of ``fits``."""
    from ..screen.screen import screen
    from ..space import space_of

    clock = [time.perf_counter()]
    say("enumerating layouts")
    with collection_paused():
        space = space_of(base, fix=fix, vary=vary, axes=axes)
    clock.append(time.perf_counter())
    say(f"screening {len(space):,} layouts")
    screened = screen(space, fits=fits)
    clock.append(time.perf_counter())
    among = Candidates(
        base=base,
        layouts=space,
        bounds=screened,
        fit_probability=fit_probability(base, screened),
    )
    return among, {"enumerate_s": clock[1] - clock[0], "screen_s": clock[2] - clock[1]}


def _unsayable(wishes: Wishes, among: Candidates) -> Callable[[int], str] | None:
    """What the framework of the answer cannot say of a layout, by its number; None where all will do."""
    if (emission := wishes.emission) is None:
        return None
    return lambda number: emission.unsayable(among.layouts.scenario_of(number))


def _under_faults(search: LayoutSearch, number: int, value: float, worst: float) -> float:
    """The objective with what faults cost, or what it is at least where that is above ``worst``; inf where
    the token budget then misses a limit, though it would meet it at the pace of the healthy step."""
    step_s = search.judging.known[number].step_time_s
    share = search.shares.share(search.among.layouts.scenario_of(number), step_s, enough=value / worst)
    wall_s = search.wall_s[number] = step_s / share if share > 0 else math.inf
    return value * wall_s / step_s if wall_s <= search.most_s[number] else math.inf


def _telling(say: Callable[[str], None], among: Candidates) -> Callable[[int, int, int | None, float], None]:
    def tell(judged: int, left: int, best: int | None, value: float) -> None:
        so_far = "" if best is None else f", best {short(among.layouts.settings(best))}"
        say(f"replayed {judged:,}, at most {left:,} left{so_far}")

    return tell


def wishes_of(
    *,
    top: int,
    objective: str,
    deadline_s: float | None,
    budget: float | None,
    fits: float,
    audit: int,
    replays: int | None = None,
    emission: Emission | None = None,
    axes: str = Axes.LAYOUT.value,
) -> Wishes:
    """What is asked, as ``plan`` takes it, checked. ValueError for what no search can be asked."""
    _check_whole("top", top, 1)
    _check_whole("audit", audit, 0)
    if replays is not None:
        _check_whole("replays", replays, 1)
    _check_probability("fits", fits)
    _check_limit("deadline_s", deadline_s)
    _check_limit("budget", budget)
    return Wishes(
        top=top,
        objective=_objective(objective),
        limits=PlanLimits(deadline_s=deadline_s, budget=budget),
        fits=fits,
        audit=audit,
        replays=replays,
        emission=emission,
        axes=axes_named(axes),
    )


def _check_limit(name: str, value: float | None) -> None:
    """ValueError for a limit that nothing can be held to, as a negative one or nan."""
    if value is not None and not value >= 0:
        raise ValueError(f"{name} {value!r}: a number of 0 or more is needed")


def _check_whole(name: str, value: object, least: int) -> None:
    """ValueError for what Python lets through that a command line does not: 2.5, "3", True."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} {value!r}: a whole number of {least} or more is needed")


def _check_probability(name: str, value: object) -> None:
    """ValueError unless ``value`` is a probability."""
    if isinstance(value, bool) or not isinstance(value, Real) or not LEAST_FITS <= float(value) <= 1.0:
        raise ValueError(f"{name} {value!r}: a probability is from {LEAST_FITS:g} to below 1, as in 0.9")
    if float(value) == 1.0:
        raise ValueError(
            f"{name} {value!r}: no prediction is certain, so that nothing would do; ask for less, as in 0.99"
        )


def _objective(name: str) -> Objective:
    try:
        return Objective(name)
    except ValueError:
        known = ", ".join(one.value for one in Objective)
        raise ValueError(f"objective {name!r} is not known; known: {known}") from None
