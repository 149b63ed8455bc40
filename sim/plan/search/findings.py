"""What a search finds, step by step, and the plan that is made of it.

Knows the search and what people get to see of it. An interrupt leaves what there is, and
so does a search that has no more replays to spend.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ....hardware.quantities import DAY_S
from ...brief.memory import memory_by_order
from ...result.step import fullest_of
from ..boldness import promised, tried_first
from .alternatives import Loser, alternatives, why_not_fit, why_slower
from .bold import bold_of, promising
from .certificate import Certificate
from .choice_certainty import contenders, sure_of, unbounded_contenders
from .front_search import front, replay_front
from .layout_plan import LayoutPlan, ReplayedLayout
from .objective import Objective, own_weight
from .searching import NEAR
from .shown import BoldChoice, Choice, FrontPoint, LayoutFigures, figures_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .best_first import Ranked
    from .candidates import Candidates
    from .searching import LayoutSearch

OWN = "your layout"

BASE = -1
"""In place of a number: the scenario as given, where its layout is not among those that are searched."""

LOSERS_BOUNDED = 2
"""How many layouts of each alternative get a bound action by action: the first ones by screening."""

LOSERS_REPLAYED = 2
"""Of these; one alone where it was bounded action by action, which is within a hundredth of its step."""


@dataclass
class Findings:
    """The findings of one ``search`` so far; ``say`` reports progress."""

    search: LayoutSearch
    say: Callable[[str], None]
    front: tuple[list[int], bool] = ([], False)
    choices: tuple[Choice, ...] = ()
    lost: tuple[Loser, ...] = ()
    tied: tuple[Mapping[str, Any], ...] = ()
    bold: BoldChoice | None = None
    certificate: Certificate = field(init=False)
    _figures: dict[int, LayoutFigures] = field(default_factory=dict, repr=False)
    _refused: dict[int, str] = field(default_factory=dict, repr=False)
    _masks: dict[str, NDArray[np.bool_]] = field(default_factory=dict, repr=False)
    _losers: dict[str, list[int]] = field(default_factory=dict, repr=False)
    _promising: dict[int, float] | None = field(default=None, repr=False)

    def run(self) -> None:
        """Search; with a proof audit, look for the front, compare. KeyboardInterrupt where nothing was found
        before."""
        search = self.search
        ranked = search.best(top=search.wishes.top, limit=search.wishes.replays)
        if ranked.interrupted and not ranked.best:
            raise KeyboardInterrupt
        if self.search.wishes.audit:
            self.say("auditing what was ruled out")
        try:
            if ranked.best and ranked.proven:
                self._ask(ranked)
        except KeyboardInterrupt:
            ranked = replace(ranked, interrupted=True)
        self.certificate = search.audited(ranked)
        try:
            if ranked.best:
                self._show(ranked.best)
            if ranked.best and self.certificate.whole:
                self.say("looking for the front")
                replay_front(search)
                self.front = front(search)
            if self.certificate.whole:
                self._try()
            if ranked.best and self.certificate.whole:
                self._compare()
                self.front = front(search)  # an alternative may be on it
        except KeyboardInterrupt:
            self.certificate = replace(self.certificate, interrupted=True)

    def _ask(self, ranked: Ranked) -> None:
        """Replay the layouts that decide which others are asked for next. Replays that are needed whatever
        comes of it begin beside those, so that no worker is idle."""
        search, best = self.search, ranked.best
        drawn, behind = search.drawn(ranked), ranked.value[best[0]]
        self._masks = {one.name: mask for one, mask in alternatives(self.among, best[0], search.wishes.fits)}
        self._losers = {name: search.first_of(mask, LOSERS_BOUNDED) for name, mask in self._masks.items()}
        search.tighten(itertools.chain(drawn, *self._losers.values()), beside=drawn)
        losing = {self._first_of(few) for few in self._losers.values() if self._loses(few, behind)}
        first = [
            i for few in self._losers.values() if not self._loses(few, behind) for i in self._asked_of(few)
        ]
        self._promising = promising(search, behind)
        unbounded = unbounded_contenders(search)
        search.later([*first, *[*self._promising][:1]])
        search.later_least(losing)
        search.ahead([*drawn, *unbounded])

    def _best_of(self, few: list[int]) -> int | None:
        """The best of a few layouts of an alternative; None where none can be replayed."""
        ranked = self.search.best(within=self.search.only(few), top=1, limit=self._most_of(few))
        return ranked.best[0] if ranked.best else None

    def _most_of(self, few: list[int]) -> int:
        """The most layouts of an alternative that are replayed, given its ``few`` first ones: one where
        bounds by actions tell which is the best, else LOSERS_REPLAYED."""
        search = self.search
        told = few and search.floor_s[self._first_of(few)]
        return 1 if told and search.wishes.emission is None else LOSERS_REPLAYED

    def _first_of(self, few: list[int]) -> int:
        """The layout of a ``few`` that has the least bound."""
        return min(few, key=lambda i: (float(self.search.bound[i]), i))

    def _loses(self, few: list[int], best: float) -> bool:
        """Whether the first of a few layouts of an alternative is not replayed, since it loses by much."""
        return bool(few) and self.search.loses(self._first_of(few), best)

    def _asked_of(self, few: list[int]) -> list[int]:
        """Which of the ``few`` layouts of an alternative are replayed, as far as bounds tell: the first, and
        others whose bounds are so near that the first may lose to them."""
        bound = self.search.bound
        turns = sorted(few, key=lambda i: (float(bound[i]), i))[: self._most_of(few)]
        return [i for i in turns if NEAR * bound[i] < bound[turns[0]]]

    @property
    def among(self) -> Candidates:
        """The layouts that are searched."""
        return self.search.among

    def _show(self, best: tuple[int, ...]) -> None:
        """The best layouts as choices, with how sure it is that they are."""
        search, layouts = self.search, self.among.layouts
        self.say("asking how sure that is")
        values = (
            contenders(search, best)
            if self.certificate.whole
            else {number: search.value[number] for number in best}
        )
        self._predict(best)
        sure = sure_of(search, values)
        told = zip(best, sure.probability_best, sure.expected_regret, strict=False)
        self.choices = tuple(
            replace(self._choice(i, search.value[i]), probability_best=probability, expected_regret=regret)
            for i, probability, regret in told
        )
        self.tied = tuple(layouts.settings([*values][place]) for place in sure.ties)

    def _predict(self, numbers: Iterable[int]) -> None:
        """The figures of layouts that people get to see, or why there are none: most were replayed before."""
        judging, base = self.search.judging, self.among.base
        wanted = [i for i in dict.fromkeys(numbers) if i not in self._figures and i not in self._refused]
        for _ in judging(i for i in wanted if i != BASE and i not in judging.known):
            pass
        for i in wanted:
            judged = judging.beside(base) if i == BASE else judging.known[i]
            if judged.refused:
                self._refused[i] = judged.refused
                continue
            of = base if i == BASE else self.among.layouts.scenario_of(i)
            self._figures[i] = figures_of(of, judged)

    def _choice(self, number: int, value: float) -> Choice:
        among, figures = self.among, self._figures[number]
        tokens, dollars_per_s = float(among.budget_tokens[number]), float(among.dollars_per_s[number])
        price = None if np.isnan(dollars_per_s) else dollars_per_s * figures.step_time_s
        steps = None if np.isnan(tokens) else tokens / float(among.tokens_per_step[number])
        counts = self.search.wishes.objective is Objective.GOODPUT
        wall_s = self.search.wall_s[number] if counts else figures.step_time_s
        return Choice(
            number=number,
            settings=among.layouts.settings(number),
            scenario=among.layouts.scenario_of(number),
            figures=figures,
            fit_probability=float(among.fit_probability[number]),
            value=value,
            gpus=int(among.gpus[number]),
            price_per_step=price,
            days=None if steps is None else steps * wall_s / DAY_S,
            price=None if steps is None or price is None else steps * dollars_per_s * wall_s,
            goodput=figures.step_time_s / wall_s if counts else None,
        )

    def _compare(self) -> None:
        """The alternatives, the scenario's own layout first, the nearest to the best next."""
        self.say("comparing with well-known alternatives")
        search, best, own = self.search, self.choices[0].number, self.among.layouts.own
        value = self.choices[0].value
        slower: dict[str, int] = {}
        losing = {name: self._first_of(few) for name, few in self._losers.items() if self._loses(few, value)}
        lost = self._at_least(losing)
        if own is None:
            slower[OWN] = BASE
        elif not search.fits[own]:
            lost.append(self._doubtful(own))
        elif own != best:
            slower[OWN] = BASE if search.judging.passes_over(own) else own
        for name, mask in self._masks.items():
            if not (mask & search.fits).any():
                lost.append(self._too_large(name, mask))
            elif name not in losing and (number := self._best_of(self._losers[name])) is not None:
                slower[name] = number
        self._predict(slower.values())
        lost += [self._slower(name, number) for name, number in slower.items()]
        self.lost = tuple(sorted(lost, key=lambda one: (one.name != OWN, not one.fits, one.factor)))

    def _try(self) -> None:
        """The layout that is worth trying before the best choice, if any is."""
        self.say("asking what is worth a try")
        search, best = self.search, self.choices[0] if self.choices else None
        behind = np.inf if best is None else best.value
        if (number := bold_of(search, behind, among=self._promising)) is None:
            return
        self._predict([number])
        value = search.value_of(number, search.judging.known[number])
        choice = self._choice(number, value)
        tried = tried_first(value, choice.fit_probability, behind)
        self.bold = BoldChoice(
            choice=choice,
            faster=None if best is None else best.value / value - 1,
            promised=None if best is None else promised(tried, behind),
        )

    def _at_least(self, losing: Mapping[str, int]) -> list[Loser]:
        """Alternatives by steps that are no longer than theirs."""
        search, best = self.search, self.choices[0]
        steps = search.judging.least([*losing.values()])
        found = []
        for (name, number), judged in zip(losing.items(), steps, strict=True):
            settings = self.among.layouts.settings(number)
            if judged.refused:
                found.append(Loser(name=name, settings=settings, why=judged.refused, factor=np.inf))
                continue
            figures = figures_of(self.among.layouts.scenario_of(number), judged)
            least = max(search.value_of(number, judged), float(search.bound[number]))
            why = why_slower(best.figures, figures, self._seconds_of_best(number))
            found.append(
                Loser(name=name, settings=settings, why=why, factor=least / best.value, at_least=True)
            )
        return found

    def _slower(self, name: str, number: int) -> Loser:
        settings = {} if number == BASE else self.among.layouts.settings(number)
        if number in self._refused:
            return Loser(name=name, settings=settings, why=self._refused[number], factor=np.inf)
        best, figures = self.choices[0], self._figures[number]
        if number != BASE:
            factor = self.search.value.get(number, np.inf) / best.value
        elif figures.peak_memory_bytes > figures.capacity_bytes:
            factor = figures.peak_memory_bytes / figures.capacity_bytes
            why = why_not_fit(1, figures.peak_memory_bytes, figures.capacity_bytes)
            return Loser(name=name, settings=settings, why=why, factor=factor, fits=False)
        else:
            factor = self._own_value(figures.step_time_s) / best.value
        why = why_slower(best.figures, figures, self._seconds_of_best(number))
        return Loser(name=name, settings=settings, why=why, factor=factor)

    def _seconds_of_best(self, number: int) -> float:
        """What a second of a layout's step is worth, by the objective, in seconds of the best one's."""
        search = self.search
        own = own_weight(search.wishes.objective, self.among.base) if number == BASE else None
        weight = search.weight_of(number) if own is None else own
        return weight / search.weight_of(self.choices[0].number) if np.isfinite(weight) else 1.0

    def _own_value(self, step_time_s: float) -> float:
        """The objective of the scenario as given."""
        objective, base = self.search.wishes.objective, self.among.base
        share = self.search.shares.share(base, step_time_s) if objective is Objective.GOODPUT else 1.0
        return own_weight(objective, base) * step_time_s / share

    def _too_large(self, name: str, mask: NDArray[np.bool_]) -> Loser:
        least, bounds = self._smallest(mask), self.among.bounds
        peak, capacity = float(bounds.needed_bytes[least]), float(bounds.capacity_bytes[least])
        why = why_not_fit(int(mask.sum()), peak, capacity, float(self.among.fit_probability[least]))
        settings = self.among.layouts.settings(least)
        return Loser(name=name, settings=settings, why=why, factor=peak / capacity, fits=False)

    def _doubtful(self, own: int) -> Loser:
        """The scenario's own layout where it is not sure to fit: what its step would be, too, if it may."""
        lost = self._too_large(OWN, np.arange(len(self.among.layouts)) == own)
        if lost.factor > 1 or self.search.judging.passes_over(own):
            return lost
        self._predict([own])
        if own in self._refused:
            return lost
        best, step_s = self.choices[0], self._figures[own].step_time_s
        factor = step_s * self._seconds_of_best(own) / best.figures.step_time_s
        why = why_slower(best.figures, self._figures[own], self._seconds_of_best(own))
        return replace(lost, why=f"{lost.why}; its step would be {factor:.2f} × the best's: {why}")

    def _smallest(self, mask: NDArray[np.bool_]) -> int:
        """The layout that takes the least of its GPUs' memory."""
        bounds = self.among.bounds
        return int(np.argmin(np.where(mask, bounds.needed_bytes / bounds.capacity_bytes, np.inf)))

    def _terms_of_smallest(self) -> dict[str, float]:
        """Bytes of the smallest layout's fullest rank by name; empty where one fits, or there is none."""
        layouts = self.among.layouts
        if self.certificate.fit or not len(layouts):
            return {}
        least = self._smallest(np.ones(len(layouts), dtype=bool))
        return dict(fullest_of(memory_by_order(layouts.scenario_of(least)).high).terms)

    def _smallest_of_all(self) -> tuple[Mapping[str, Any], float, float] | None:
        """Settings of the layout with the least memory, the memory that it takes and that there is; None
        where there is a choice, or no layout."""
        layouts, bounds = self.among.layouts, self.among.bounds
        if self.choices or not len(layouts):
            return None
        least = self._smallest(np.ones(len(layouts), dtype=bool))
        peak, capacity = float(bounds.needed_bytes[least]), float(bounds.capacity_bytes[least])
        return layouts.settings(least), peak, capacity

    def told(self, timing: dict[str, float]) -> LayoutPlan:
        """Everything that was found, as the plan that people get; ``timing`` is in seconds."""
        search, layouts, bounds = self.search, self.among.layouts, self.among.bounds
        known = search.judging.known
        return LayoutPlan(
            scenario=self.among.base,
            wishes=search.wishes,
            certificate=self.certificate,
            refused=dict(layouts.refused),
            left_out=layouts.left_out,
            bounded=int(search.open.sum()),
            choices=self.choices,
            front=tuple(self._point(i) for i in self.front[0]),
            front_whole=self.front[1],
            lost=self.lost,
            tied=self.tied,
            bold=self.bold,
            passed_over=Counter(search.judging.passed_over.values()),
            replays=tuple(
                ReplayedLayout(
                    number=i, settings=layouts.settings(i), judged=known[i], bound_s=float(bounds.bound_s[i])
                )
                for i in sorted(known.keys() - search.judging.passed_over.keys())
            ),
            remembered=len(search.judging.remembered & known.keys()),
            timing=timing,
            smallest=self._smallest_of_all(),
            smallest_terms=self._terms_of_smallest(),
            nearest=self._nearest(),
        )

    def _nearest(self) -> tuple[Mapping[str, Any], float] | None:
        """The layout that misses the limits by the least factor, among those that fit, by its replay or,
        where none was needed, by its bound. None where nothing at all can meet them."""
        search = self.search
        if self.choices or not search.fits.any() or np.isinf(search.most_s).all():
            return None
        least_s = self.among.bounds.bound_s.copy()
        for number, judged in search.judging.known.items():
            least_s[number] = search.wall_s.get(number, judged.step_time_s)
        over = np.full(len(least_s), np.inf)
        np.divide(least_s, search.most_s, out=over, where=search.fits & (search.most_s > 0))
        number = int(np.argmin(over))
        if np.isinf(over[number]):
            return None
        return self.among.layouts.settings(number), float(over[number])

    def _point(self, number: int) -> FrontPoint:
        among, judged = self.among, self.search.judging.known[number]
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
