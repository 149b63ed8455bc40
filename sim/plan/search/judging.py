"""Replays by number: each at most once, kept in the journal, whoever does them.

Knows workers and the journal; does not know why a layout is asked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ....hardware.files import FileError
from .goodput import Campaigns, Replicated, Weeks
from .journal import Journal, key_of
from .judged import JudgedLayout, LeastStep, refused
from .workers import Local, Workers

if TYPE_CHECKING:
    from ...scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A layout to be replayed, by its number; or a scenario that has none or that workers do not know by it.
    ``bounded``: its step is to be bounded action by action, in place of a replay; ``least``: it is to be
    replayed as if nobody shared a link; ``weeks``: a replication of its weeks under faults is simulated.
    """

    scenario: Scenario | None = None
    number: int | None = None
    bounded: bool = False
    least: bool = False
    weeks: Weeks | None = None


Answered = tuple[int | None, JudgedLayout | LeastStep | Replicated | float]


class Replaying(Protocol):
    """Replays scenarios, or bounds their steps."""

    def __call__(self, scenario: Scenario) -> JudgedLayout:
        """The exact replay."""
        ...

    def floor_s(self, scenario: Scenario) -> float:
        """Seconds that the step takes at least; 0 where that is not known."""
        ...

    def least(self, scenario: Scenario) -> LeastStep:
        """A step that is no longer."""
        ...


@dataclass(frozen=True)
class Answering:
    """What workers run; ``scenario_of`` gives layouts by their numbers, so that none has to be sent."""

    replay: Replaying
    scenario_of: Callable[[int], Scenario] | None = None
    replicated: Campaigns = field(default_factory=Campaigns)

    def __call__(self, asked: Asked) -> Answered:
        scenario = asked.scenario
        if scenario is None:
            assert asked.number is not None, "a layout without a scenario has a number"
            assert self.scenario_of is not None, "workers were told what numbers stand for"
            scenario = self.scenario_of(asked.number)
        if asked.weeks is not None:
            return asked.number, self.replicated(scenario, asked.weeks)
        if asked.bounded:
            return asked.number, self.replay.floor_s(scenario)
        if asked.least:
            return asked.number, self.replay.least(scenario)
        return asked.number, self.replay(scenario)


@dataclass
class Judging:
    """Gives results of layouts in the order in which they are asked for.

    ``known`` are the results so far, by number, and ``remembered`` those among them that came from the
    journal. Results that workers computed ahead and nobody asked for yet are kept apart from ``known``, so
    that reports do not depend on the number of workers. ``alike`` gives the layout whose replay stands for
    another layout's; by default each stands for itself. ``by_number``: workers know layouts by their
    numbers. ``unsayable`` gives the reason why a layout is passed over without a replay, or an empty text;
    ``passed_over`` are those so far, with their reasons.

    What workers begin ahead: the layouts ``soon``, which are asked for next; when idle, replays of ``later``
    and least steps of ``later_least``, which will be asked for in the end; and during bounds, also those of
    ``soon_bounded``, which may be asked for.
    """

    scenario_of: Callable[[int], Scenario]
    workers: Workers[Asked, Answered]
    journal: Journal = field(default_factory=Journal)
    known: dict[int, JudgedLayout] = field(default_factory=dict)
    remembered: set[int] = field(default_factory=set)
    alike: Callable[[int], int] = int
    by_number: bool = False
    unsayable: Callable[[int], str] | None = None
    passed_over: dict[int, str] = field(default_factory=dict)
    soon: Sequence[int] = ()
    soon_bounded: Sequence[int] = ()
    later: Sequence[int] = ()
    later_least: Sequence[int] = ()
    _floors_s: dict[int, float] = field(default_factory=dict, repr=False)
    _least: dict[int, JudgedLayout] = field(default_factory=dict, repr=False)
    _at_hand: dict[int, JudgedLayout] = field(default_factory=dict, repr=False)
    _keys: dict[int, str] = field(default_factory=dict, repr=False)
    _ones: dict[int, int] = field(default_factory=dict, repr=False)
    _reasons: dict[int, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.journal.path is not None and isinstance(self.workers, Local):
            self.workers.arrived = self._arrived

    def _arrived(self, answered: Answered) -> None:
        """A replay is on disk before those that are awaited: whoever is killed meanwhile has it. It is known
        to nobody here before its turn. A file that cannot be written is told then, by ``_keep``."""
        number, judged = answered
        if number is not None and isinstance(judged, JudgedLayout):
            with suppress(FileError):
                self.journal.write(self._keys[number], judged)

    def __call__(self, numbers: Iterable[int]) -> Generator[JudgedLayout, None, None]:
        wanted, ahead = itertools.tee(numbers)
        soon, self.soon = self.soon, ()
        with self._results(self._tasks_and_later(itertools.chain(soon, ahead))) as results:
            for number in wanted:
                if reason := self.passes_over(number):
                    self.passed_over[number] = reason
                    self.known[number] = refused(reason)
                    yield self.known[number]
                    continue
                while not self._is_at_hand(number):
                    self._keep(*next(results))
                self.known[number] = self._at_hand[self.one_of(number)]
                if self.one_of(number) in self.remembered:
                    self.remembered.add(number)
                yield self.known[number]

    @contextmanager
    def _results(self, tasks: Iterable[Asked]) -> Iterator[Iterator[Answered]]:
        """Results of tasks in turn, as far as anyone asks for them; what was done ahead is kept."""
        results = self.workers.run(tasks)
        try:
            yield results
        finally:
            results.close()
            for spared in self.workers.spared():
                self._keep(*spared)

    def _tasks(self, numbers: Iterable[int]) -> Iterator[Asked]:
        begun: set[int] = set()
        sayable = (number for number in numbers if not self.passes_over(number))
        for number in map(self.one_of, sayable):
            if number not in begun and not self._is_at_hand(number):
                begun.add(number)
                yield self._asked(number)

    def _tasks_and_later(self, numbers: Iterable[int]) -> Iterator[Asked]:
        yield from self._tasks(itertools.chain(numbers, self._of_later()))
        yield from self._tasks_least(self.later_least)

    def _of_later(self) -> Iterator[int]:
        """The ``later`` as they are when somebody has nothing else to do; they may change meanwhile."""
        begun: set[int] = set()
        while (number := next((i for i in self.later if i not in begun), None)) is not None:
            begun.add(number)
            yield number

    def _tasks_least(self, numbers: Iterable[int]) -> Iterator[Asked]:
        for one in dict.fromkeys(map(self.one_of, numbers)):
            if one not in self._least:
                yield self._asked(one, least=True)

    def _asked(self, number: int, *, bounded: bool = False, least: bool = False) -> Asked:
        scenario = None if self.by_number else self.scenario_of(number)
        return Asked(number=number, scenario=scenario, bounded=bounded, least=least)

    def one_of(self, number: int) -> int:
        """The layout whose replay stands for that of another."""
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
        """Replay layouts ahead that will be asked for; their results are kept until then."""
        wanted = [*numbers]
        left = {self.one_of(i) for i in wanted if not self.passes_over(i) and not self._is_at_hand(i)}
        results = self.workers.run(self._tasks_and_later(wanted), every=True)
        try:
            while left:
                self._keep(*next(results))
                left -= self._at_hand.keys()
        finally:
            results.close()
            for spared in self.workers.spared():
                self._keep(*spared)

    def floors_s(self, numbers: Sequence[int]) -> list[float]:
        """Seconds that the steps of layouts take at least, action by action; those of layouts that are
        the same to the simulator are worked out once. Who has nothing else to do begins with the ``soon``.
        """
        ones = [self.one_of(number) for number in numbers]
        ahead, self.soon_bounded = self.soon_bounded, ()
        wanted = [one for one in dict.fromkeys(ones) if one not in self._floors_s]
        soon, self.soon = self.soon, ()
        if not wanted:
            return [self._floors_s[one] for one in ones]
        beside = self._bounded(one for one in map(self.one_of, ahead) if one not in wanted)
        tasks = itertools.chain(self._bounded(wanted), beside, self._tasks_and_later(soon))
        with self._results(tasks) as results:
            for answered in itertools.islice(results, len(wanted)):
                self._keep(*answered)
        return [self._floors_s[one] for one in ones]

    def least(self, numbers: Sequence[int]) -> list[JudgedLayout]:
        """Lower bounds of the layouts' steps: the steps in which nobody shares a link."""
        with self._results(self._tasks_least(numbers)) as results:
            for answered in results:
                self._keep(*answered)
        return [self._least[self.one_of(number)] for number in numbers]

    def _bounded(self, ones: Iterable[int]) -> Iterator[Asked]:
        """Bounds of those that are not known yet, each once."""
        for one in dict.fromkeys(ones):
            if one not in self._floors_s:
                yield self._asked(one, bounded=True)

    def beside(self, scenario: Scenario) -> JudgedLayout:
        """A scenario that is none of the layouts; it is neither known nor kept afterwards."""
        ((_, judged),) = self.workers.run([Asked(scenario=scenario)])
        assert isinstance(judged, JudgedLayout), "a replay was asked for"
        return judged

    def replications(
        self, scenario: Scenario, step_s: float, numbers: Iterable[int]
    ) -> Generator[Replicated, None, None]:
        """Replications of the weeks of a scenario whose healthy step takes ``step_s``, in turn; workers are a
        few ahead."""
        asked = (Asked(scenario=scenario, weeks=Weeks(step_s, number)) for number in numbers)
        with closing(self.workers.run(asked)) as results:
            for _, done in results:
                assert isinstance(done, Replicated), "a replication was asked for"
                yield done

    def arrived(self) -> dict[int, JudgedLayout]:
        """Replays that workers did ahead of the search and that it has not asked for yet, by number of
        layout."""
        return {i: judged for i, judged in self._at_hand.items() if i not in self.known}

    def _is_at_hand(self, number: int) -> bool:
        """Whether a layout needs no replay; results in the journal are loaded for later."""
        number = self.one_of(number)
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

    def _keep(self, number: int | None, judged: JudgedLayout | LeastStep | Replicated | float) -> None:
        if number is None or isinstance(judged, Replicated):
            return
        if isinstance(judged, LeastStep):
            self._least[number] = judged.judged
        elif not isinstance(judged, JudgedLayout):
            self._floors_s[number] = judged
        elif number not in self._at_hand:
            self._at_hand[number] = judged
            if self.journal.path is not None:
                self.journal.add(self._keys[number], judged)
