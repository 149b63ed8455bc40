"""The main sentence of planning: enumerate, screen, search best first, and tell what was found.

Knows which part does what; each of them knows its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...scenario.load import load_scenario
from ..certainty import fit_probability
from .alternatives import Loser, alternatives, why_not_fit, why_slower
from .candidates import Candidates
from .front_search import front
from .goodput import goodput_share
from .journal import Journal
from .judged import ReplayOf
from .judging import Judging, NumberedReplay
from .layout_plan import LayoutPlan, ReplayedLayout
from .objective import Objective, PlanLimits
from .searching import LayoutSearch, Wishes
from .shown import Choice, FrontPoint, LayoutFigures, layout_figures
from .sure import contenders, figures_of, sure_of
from .words import short
from .workers import Local, OnRay, Workers, cores

if TYPE_CHECKING:
    from ...scenario.documents import Changes
    from ...scenario.models import Scenario
    from .best_first import Ranked

LEAST_FITS = 0.001
"""Layouts that are less likely to fit are not bounded."""

LOSERS_REPLAYED = 2
"""Of each alternative, by their bounds."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """Who does the replays and where they are kept: ``jobs`` processes (None: one for each core), or a Ray
    cluster; a ``journal`` file, or none.
    """

    jobs: int | None = None
    ray: bool = False
    journal: Path | None = None


def plan(
    source: str | Path | Mapping[str, Any] | Scenario,
    changes: Changes = (),
    *,
    fix: Mapping[str, Any] | None = None,
    vary: Mapping[str, Sequence[Any]] | None = None,
    top: int = 5,
    objective: str = Objective.STEP_TIME.value,
    deadline_s: float | None = None,
    budget: float | None = None,
    fits: float = 0.9,
    audit: int = 20,
    jobs: int | None = None,
    ray: bool = False,
    journal: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> LayoutPlan:
    """The best layouts of a scenario, proven within the model.

    Args:
        source, changes: as ``load_scenario`` takes them; a scenario stands for itself.
        fix: fields and the values that they keep, ``{"parallelism.tp": 4}``.
        vary: further fields and the values that are tried, ``{"cluster.gpus": [64, 128]}``.
        top: how many layouts are proposed.
        objective: ``step-time``, ``tokens-per-dollar``, ``days`` or ``goodput``.
        deadline_s, budget: of the token budget, in seconds and in US dollars.
        fits: least probability that a proposed layout fits in memory.
        audit: layouts that the bounds rule out and that are replayed all the same.
        jobs: processes; None: one for each core. The answer does not depend on it.
        ray: replay on a Ray cluster.
        journal: a file that keeps every replay, so that interrupted work resumes.

    Raises:
        ScenarioError: with every problem of the scenario, and of what is fixed and varied.
        NotSupported: the scenario lacks what the objective or a limit counts.
        ValueError: an unknown objective, a probability outside LEAST_FITS to 1, a journal that is none.
    """
    wishes = wishes_of(
        top=top, objective=objective, deadline_s=deadline_s, budget=budget, fits=fits, audit=audit
    )
    means = Means(jobs=jobs, ray=ray, journal=None if journal is None else Path(journal))
    return planned(scenario_from(source, changes), fix or {}, vary or {}, wishes, means, progress)


def scenario_from(source: str | Path | Mapping[str, Any] | Scenario, changes: Changes = ()) -> Scenario:
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
) -> LayoutPlan:
    """As ``plan``, of what is typed already."""
    say = progress or (lambda _: None)
    clock = [time.perf_counter()]
    among, timing = candidates_of(base, fix, vary, say)
    clock.append(time.perf_counter())
    workers = _workers(means)
    try:
        judging = Judging(
            scenario_of=among.layouts.scenario_of, workers=workers, journal=Journal(path=means.journal)
        )
        search = LayoutSearch(among=among, wishes=wishes, judging=judging, tell=_telling(say, among))
        if wishes.objective is Objective.GOODPUT:
            search.final = lambda i, value: (
                value / goodput_share(among.layouts.scenario_of(i), judging.known[i].step_time_s)
            )
        found = _Found(search, means.jobs or cores())
        found.run(say)
    finally:
        workers.close()
    timing["replay_s"] = time.perf_counter() - clock[-1]
    timing["total_s"] = time.perf_counter() - clock[0]
    return found.told(timing)


def candidates_of(
    base: Scenario,
    fix: Mapping[str, Any],
    vary: Mapping[str, Sequence[Any]],
    say: Callable[[str], None],
) -> tuple[Candidates, dict[str, float]]:
    """The legal layouts, screened; and the seconds that both took."""
    from ..screen.screen import screen
    from ..space import space_of

    clock = [time.perf_counter()]
    say("enumerating layouts")
    space = space_of(base, fix=fix, vary=vary)
    clock.append(time.perf_counter())
    say(f"screening {len(space):,} layouts")
    screened = screen(space)
    clock.append(time.perf_counter())
    among = Candidates(
        base=base,
        layouts=space,
        bounds=screened,
        fit_probability=fit_probability(base, screened),
    )
    return among, {"enumerate_s": clock[1] - clock[0], "screen_s": clock[2] - clock[1]}


class _Found:
    """What a search finds, step by step, so that an interrupt leaves what there is."""

    def __init__(self, search: LayoutSearch, jobs: int) -> None:
        self.search = search
        self.jobs = jobs
        self.figures: dict[int, LayoutFigures] = {}
        self.tied: tuple[Mapping[str, Any], ...] = ()
        self.front: tuple[list[int], bool] = ([], False)
        self.choices: tuple[Choice, ...] = ()
        self.lost: list[Loser] = []

    def run(self, say: Callable[[str], None]) -> None:
        search = self.search
        ranked = search.best(top=search.wishes.top)
        if ranked.interrupted and not ranked.best:
            raise KeyboardInterrupt
        say("auditing what was ruled out")
        self.certificate = search.audited(ranked)
        try:
            if ranked.best:
                say("asking how sure that is")
                self._choose(ranked.best)
            if ranked.best and not self.certificate.interrupted:
                say("looking for the front")
                self.front = front(search)
                self._compare(ranked, say)
        except KeyboardInterrupt:
            self.certificate = replace(self.certificate, interrupted=True)

    def _choose(self, best: Sequence[int]) -> None:
        """The best layouts as choices, with how sure it is that they are."""
        search = self.search
        self.figures = figures_of(search, contenders(search, best), self.jobs)
        sure = sure_of(search, self.figures)
        choices = [self._choice(number, search.value[number]) for number in best]
        self.choices = tuple(
            replace(one, probability_best=probability, expected_regret=regret)
            for one, probability, regret in zip(
                choices, sure.probability_best, sure.expected_regret, strict=False
            )
        )
        numbers = [*self.figures]
        self.tied = tuple(search.among.layouts.settings(numbers[place]) for place in sure.ties)

    def _choice(self, number: int, value: float) -> Choice:
        among = self.search.among
        scenario, figures = among.layouts.scenario_of(number), self.figures[number]
        tokens, dollars_per_s = among.base.training.tokens, float(among.dollars_per_s[number])
        price = None if np.isnan(dollars_per_s) else dollars_per_s * figures.step_time_s
        steps = None if tokens is None else tokens / float(among.tokens_per_step[number])
        return Choice(
            number=number,
            settings=among.layouts.settings(number),
            scenario=scenario,
            figures=figures,
            fit_probability=float(among.fit_probability[number]),
            value=value,
            gpus=int(among.gpus[number]),
            price_per_step=price,
            days=None if steps is None else steps * figures.step_time_s / 86400.0,
            price=None if steps is None or price is None else steps * price,
        )

    def _compare(self, ranked: Ranked, say: Callable[[str], None]) -> None:
        """The alternatives, the scenario's own layout first, the nearest to the best next."""
        search, best = self.search, self.choices[0]
        say("comparing with well-known alternatives")
        own = search.among.layouts.own
        losers = [self._loser(one.name, mask, best) for one, mask in alternatives(search.among, best.number)]
        self.lost = sorted((one for one in losers if one), key=lambda one: (not one.fits, one.factor))
        if own is None or own != best.number:
            mine = self._own(own, best)
            self.lost = [mine, *self.lost]

    def _loser(self, name: str, mask: Any, best: Choice) -> Loser | None:
        search = self.search
        if not (mask & search.fits).any():
            return self._too_large(name, mask)
        ranked = search.best(within=mask, top=1, limit=LOSERS_REPLAYED)
        if not ranked.best:
            return None
        other = ranked.best[0]
        return self._slower(name, other, ranked.value[other], best)

    def _slower(self, name: str, number: int, value: float, best: Choice) -> Loser:
        layouts = self.search.among.layouts
        why = why_slower(best.figures, self._figures(number))
        return Loser(name=name, settings=layouts.settings(number), why=why, factor=value / best.value)

    def _figures(self, number: int) -> LayoutFigures:
        if number not in self.figures:
            self.figures[number] = layout_figures(self.search.among.layouts.scenario_of(number))
        return self.figures[number]

    def _too_large(self, name: str, mask: Any) -> Loser:
        among = self.search.among
        ratio = np.where(mask, among.bounds.peak_bytes / among.bounds.capacity_bytes, np.inf)
        least = int(np.argmin(ratio))
        return Loser(
            name=name,
            settings=among.layouts.settings(least),
            why=why_not_fit(
                int(mask.sum()),
                float(among.bounds.peak_bytes[least]),
                float(among.bounds.capacity_bytes[least]),
            ),
            factor=float(ratio[least]),
            fits=False,
        )

    def _own(self, own: int | None, best: Choice) -> Loser:
        """The scenario's own layout, which is judged whether or not it is among what was asked for."""
        name, among = "your layout", self.search.among
        if own is None:
            figures = layout_figures(among.base)
            tokens = among.base.training.global_batch * among.base.training.seq_length
            factor = figures.step_time_s / best.figures.step_time_s
            factor *= float(among.tokens_per_step[best.number]) / tokens
            return Loser(name=name, settings={}, why=why_slower(best.figures, figures), factor=factor)
        if not self.search.fits[own]:
            return self._too_large(name, np.arange(len(among.layouts)) == own)
        value = self.search.value.get(own, np.inf)
        return self._slower(name, own, value, best)

    def told(self, timing: dict[str, float]) -> LayoutPlan:
        search, among = self.search, self.search.among
        layouts, bounds, known = among.layouts, among.bounds, self.search.judging.known
        return LayoutPlan(
            scenario=among.base,
            wishes=search.wishes,
            certificate=self.certificate,
            refused=dict(layouts.refused),
            bounded=int(search.open.sum()),
            choices=self.choices,
            tied=self.tied,
            front=tuple(self._point(i) for i in self.front[0]),
            front_whole=self.front[1],
            lost=tuple(self.lost),
            replays=tuple(
                ReplayedLayout(
                    number=i, settings=layouts.settings(i), judged=known[i], bound_s=float(bounds.bound_s[i])
                )
                for i in sorted(known)
            ),
            remembered=len(search.judging.remembered & known.keys()),
            timing=timing,
            smallest=None if self.choices else self._smallest(),
        )

    def _point(self, number: int) -> FrontPoint:
        among, judged = self.search.among, self.search.judging.known[number]
        dollars_per_s = float(among.dollars_per_s[number])
        return FrontPoint(
            number=number,
            settings=among.layouts.settings(number),
            step_time_s=judged.step_time_s,
            peak_memory_bytes=judged.peak_memory_bytes,
            headroom_bytes=float(among.headroom_bytes[number]),
            gpus=int(among.gpus[number]),
            price_per_step=None if np.isnan(dollars_per_s) else dollars_per_s * judged.step_time_s,
        )

    def _smallest(self) -> tuple[Mapping[str, Any], float, float] | None:
        among = self.search.among
        if not len(among.layouts):
            return None
        least = int(np.argmin(among.bounds.peak_bytes / among.bounds.capacity_bytes))
        peak, capacity = among.bounds.peak_bytes[least], among.bounds.capacity_bytes[least]
        return among.layouts.settings(least), float(peak), float(capacity)


def _workers(means: Means) -> Workers[Any, Any]:
    function = NumberedReplay(ReplayOf())
    return OnRay(function) if means.ray else Local(function, means.jobs or cores())


def _telling(say: Callable[[str], None], among: Candidates) -> Callable[[int, int, int | None, float], None]:
    def tell(judged: int, left: int, best: int | None, value: float) -> None:
        so_far = "" if best is None else f", best {short(among.layouts.settings(best))}"
        say(f"replayed {judged:,}, at most {left:,} left{so_far}")

    return tell


def wishes_of(
    *, top: int, objective: str, deadline_s: float | None, budget: float | None, fits: float, audit: int
) -> Wishes:
    """What is asked, as ``plan`` takes it, checked. ValueError for what no search can be asked."""
    if top < 1:
        raise ValueError(f"top {top}: at least one layout is proposed")
    if not LEAST_FITS <= fits <= 1.0:
        raise ValueError(f"fits {fits:g}: a probability is from {LEAST_FITS:g} to 1, as in 0.9")
    return Wishes(
        top=top,
        objective=_objective(objective),
        limits=PlanLimits(deadline_s=deadline_s, budget=budget),
        fits=fits,
        audit=audit,
    )


def _objective(name: str) -> Objective:
    try:
        return Objective(name)
    except ValueError:
        known = ", ".join(one.value for one in Objective)
        raise ValueError(f"objective {name!r} is not known; known: {known}") from None
