"""Replays by number: each at most once, kept in the journal, whoever does them.

Knows workers and the journal; does not know why a layout is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .journal import Journal, key_of
from .judged import JudgedLayout, refused
from .workers import Workers

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A layout to be replayed, by its number; or a scenario that has none."""

    scenario: Scenario
    number: int | None = None


Answered = tuple[int | None, JudgedLayout]


@dataclass(frozen=True)
class Answering:
    """What workers run."""

    replay: Callable[[Scenario], JudgedLayout]

    def __call__(self, asked: Asked) -> Answered:
        return asked.number, self.replay(asked.scenario)


@dataclass
class Judging:
    """Gives results in the order in which they are asked for. ``known`` are those so far, by number, and
    ``remembered`` those among them that the journal had. What workers did ahead and nobody asked for is kept,
    but not known: what there is to tell is the same for any number of them. ``alike`` gives the layout whose
    replay stands for that of another; by default each for itself. ``unsayable`` gives why a layout is passed
    over without a replay, empty for all others; ``passed_over`` are those so far, with the reason.
    """

    scenario_of: Callable[[int], Scenario]
    workers: Workers[Asked, Answered]
    journal: Journal = field(default_factory=Journal)
    known: dict[int, JudgedLayout] = field(default_factory=dict)
    remembered: set[int] = field(default_factory=set)
    alike: Callable[[int], int] = int
    unsayable: Callable[[int], str] | None = None
    passed_over: dict[int, str] = field(default_factory=dict)
    _at_hand: dict[int, JudgedLayout] = field(default_factory=dict, repr=False)
    _keys: dict[int, str] = field(default_factory=dict, repr=False)
    _ones: dict[int, int] = field(default_factory=dict, repr=False)
    _reasons: dict[int, str] = field(default_factory=dict, repr=False)

    def __call__(self, numbers: Iterable[int]) -> Generator[JudgedLayout, None, None]:
        wanted, ahead = itertools.tee(numbers)
        results = self.workers.run(self._tasks(ahead))
        try:
            for number in wanted:
                if reason := self.passes_over(number):
                    self.passed_over[number] = reason
                    self.known[number] = refused(reason)
                    yield self.known[number]
                    continue
                while not self._is_at_hand(number):
                    self._keep(*next(results))
                self.known[number] = self._at_hand[self._one_of(number)]
                if self._one_of(number) in self.remembered:
                    self.remembered.add(number)
                yield self.known[number]
        finally:
            results.close()
            for spared in self.workers.spared():
                self._keep(*spared)

    def _tasks(self, numbers: Iterable[int]) -> Iterator[Asked]:
        begun: set[int] = set()
        sayable = (number for number in numbers if not self.passes_over(number))
        for number in map(self._one_of, sayable):
            if number not in begun and not self._is_at_hand(number):
                begun.add(number)
                yield Asked(number=number, scenario=self.scenario_of(number))

    def _one_of(self, number: int) -> int:
        if number not in self._ones:
            self._ones[number] = self.alike(number)
        return self._ones[number]

    def passes_over(self, number: int) -> str:
        """Why a layout is not replayed; empty where it is."""
        if self.unsayable is None:
            return ""
        if number not in self._reasons:
            self._reasons[number] = self.unsayable(number)
        return self._reasons[number]

    def ahead(self, numbers: Iterable[int]) -> None:
        """Replay what will be asked for; it is at hand then, but not known before."""
        for found in self.workers.run(self._tasks([*numbers])):
            self._keep(*found)

    def beside(self, scenario: Scenario) -> JudgedLayout:
        """A scenario that is none of the layouts; it is neither known nor kept afterwards."""
        ((_, judged),) = self.workers.run([Asked(scenario=scenario)])
        return judged

    def _is_at_hand(self, number: int) -> bool:
        """Whether it needs no replay; what the journal has is at hand from now on."""
        number = self._one_of(number)
        if number in self._at_hand:
            return True
        if self.journal.path is None:
            return False
        if number not in self._keys:
            self._keys[number] = key_of(self.scenario_of(number))
        found = self.journal.known.get(self._keys[number])
        if found is not None:
            self._at_hand[number] = found
            self.remembered.add(number)
        return found is not None

    def _keep(self, number: int | None, judged: JudgedLayout) -> None:
        if number is not None and number not in self._at_hand:
            self._at_hand[number] = judged
            if self.journal.path is not None:
                self.journal.add(self._keys[number], judged)
