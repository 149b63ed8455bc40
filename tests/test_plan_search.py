"""The search for layouts: best first is exhaustive, fronts and twins are what they are called."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_plans import FIX, answer, small

from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.search import front_search, searching
from stepsim.sim.plan.search.best_first import Ranked, best_first
from stepsim.sim.plan.search.choice_certainty import CONTENDERS, contenders
from stepsim.sim.plan.search.front import front_of, hopeful
from stepsim.sim.plan.search.judged import ReplayOf
from stepsim.sim.plan.search.judging import Answering, Judging
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.plan.search.searching import LayoutSearch, Wishes
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.simulate import simulate

TIMES = st.floats(0.1, 10.0)


@pytest.mark.slow
def test_a_plan_of_few_replays_tells_how_much_better_another_may_be(exhaustive: dict[int, float]) -> None:
    few = plan(small(), fix=FIX, top=4, replays=5, jobs=1)
    certificate = few.certificate
    assert (certificate.replayed, certificate.audited, certificate.optimal) == (5, 0, False)
    best_s = few.choices[0].figures.step_time_s
    assert best_s * (1 - certificate.tolerance) <= min(exhaustive.values()) * (1 + 1e-9)
    assert 1e-9 < certificate.tolerance < 0.2
    assert answer(few) == answer(plan(small(), fix=FIX, top=4, replays=5, jobs=2))
    enough = plan(small(), fix=FIX, top=4, replays=len(exhaustive), jobs=1)
    assert enough.certificate.optimal
    with pytest.raises(ValueError, match="0"):
        plan(small(), fix=FIX, replays=0)


def test_an_interrupt_leaves_the_best_so_far() -> None:
    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        for i in numbers:
            if i == 2:
                raise KeyboardInterrupt
            yield 5.0 - i

    found = best_first([1.0, 2.0, 3.0, 4.0], judge, top=1)
    assert (found.best, found.proven, found.interrupted) == ((1,), False, True)


@given(st.lists(st.tuples(*(st.integers(0, 4),) * 3), min_size=1, max_size=25))
def test_a_front_holds_what_nothing_dominates(rows: list[tuple[int, int, int]]) -> None:
    costs = np.array(rows, dtype=np.float64)
    front = front_of(costs)
    dominated = [any((other <= row).all() and (other < row).any() for other in costs) for row in costs]
    assert {tuple(costs[i]) for i in front} == {tuple(costs[i]) for i in range(len(rows)) if not dominated[i]}
    assert len({tuple(costs[i]) for i in front}) == len(front)
    # A row is hopeful beside others exactly where none of them is as good everywhere.
    may_be = hopeful(costs, costs[:3])
    assert may_be.tolist() == [not any((one <= row).all() for one in costs[:3]) for row in costs]


@pytest.fixture(scope="module")
def exhaustive() -> dict[int, float]:
    """Step times of the whole small space, by number."""
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    fits = np.flatnonzero(among.fit_probability >= 0.9).tolist()
    return {i: brief_step(among.layouts.scenario_of(i)).step_time_s for i in fits}


@pytest.mark.slow
def test_the_proposed_are_the_best_of_all_that_fit(exhaustive: dict[int, float]) -> None:
    found = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    assert 20 < len(exhaustive) < 300
    assert found.certificate.optimal
    assert found.certificate.replayed < len(exhaustive)
    best = sorted(exhaustive.values())[:4]
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(best, rel=1e-9)
    assert found.choices[0].figures.step_time_s == pytest.approx(simulate(found.best).step_time_s, rel=1e-9)


@pytest.mark.slow
def test_many_short_replays_are_bounded_first_and_prove_the_same(
    exhaustive: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    for name, value in (("QUICKLY_TIGHTENED", 0), ("QUICK", float("inf")), ("MANY_NEAR", 1)):
        monkeypatch.setattr(searching, name, value)
    found = plan(small(), fix=FIX, top=4, audit=5, jobs=1)
    assert found.certificate.optimal
    assert found.certificate.replayed < before.certificate.replayed
    best = sorted(exhaustive.values())[:4]
    assert [one.figures.step_time_s for one in found.choices] == pytest.approx(best, rel=1e-9)


def test_layouts_of_a_lighter_one_are_found_in_whatever_order_they_stand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    lighter = np.arange(len(among.layouts))
    lighter[[1, 5, 6, 9]] = [8, 2, 8, 2]
    monkeypatch.setitem(vars(among.layouts), "lighter", lighter)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(abs, 1))  # type: ignore[arg-type]
    search = LayoutSearch(among=among, wishes=Wishes(fits=0.0), judging=judging)
    assert search.open[[1, 5, 6, 9]].all()
    assert [search._heavier(i) for i in (2, 3, 8)] == [[5, 9], [], [1, 6]]


@pytest.mark.slow
def test_what_is_expected_of_a_contender_is_near_its_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    workers = Local(Answering(ReplayOf()), 1)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=workers)
    search = LayoutSearch(among=among, wishes=Wishes(top=2), judging=judging)
    values = contenders(search, search.best(top=2).best)
    assert len(values) == CONTENDERS
    expected = [i for i in values if i not in judging.known]
    assert expected
    for i in expected:
        assert values[i] >= search.bound[i]
        assert values[i] == pytest.approx(next(search.values([i])), rel=0.05)


def test_any_layout_may_be_audited_those_with_short_replays_rather_than_others() -> None:
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    work, ranked = among.replayed_actions, Ranked(best=(0,), value={0: 1.0}, proven=True)

    def drawn(count: int) -> list[int]:
        wishes = Wishes(audit=count, fits=0.5)
        judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(abs, 1))  # type: ignore[arg-type]
        return LayoutSearch(among=among, wishes=wishes, judging=judging).drawn(ranked)

    every = drawn(len(among.layouts))
    assert len(every) == len(set(every)) > 20
    assert 0 not in every
    assert drawn(10) == drawn(10)
    assert set(drawn(10)) < set(every)
    one_by_one = random.Random(searching.AUDIT_SEED)
    waits = {i: -math.log(1.0 - one_by_one.random()) * work[i] ** 2 for i in sorted(every)}
    assert drawn(10) == sorted(sorted(waits, key=waits.__getitem__)[:10])
    assert work[drawn(len(every) // 3)].mean() < work[every].mean()


def test_who_has_nothing_else_to_do_begins_with_the_audit_that_is_foreseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a search of all layouts; nothing of it is known before it is asked for."""
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(Answering(ReplayOf()), 1))
    search = LayoutSearch(among=among, wishes=Wishes(top=1, audit=5, fits=0.5), judging=judging)

    def found(_bounds: Any, _judge: Any, **told: Any) -> Ranked:
        told["foresee"]([3, 0])
        return Ranked(best=(0,), value={0: 1.0, 3: 2.0}, proven=True)

    monkeypatch.setattr(searching, "best_first", found)
    search.best(within=search.only([0, 1]), top=1)
    assert not [*search.judging.later]
    ranked = search.best(top=1)
    assert sorted(search.judging.later) == search.drawn(ranked)
    assert not judging.known


def test_an_audit_sees_whatever_bound_was_too_high() -> None:
    """One that was raised by the layout that recomputes nothing, too."""
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(Answering(ReplayOf()), 1))
    search = LayoutSearch(among=among, wishes=Wishes(top=1, audit=2), judging=judging)
    ranked = search.best(top=1)
    assert search.audited(ranked).below == 0
    for i in search.drawn(ranked):
        search._raise(i, 2.0 * judging.known[i].step_time_s)
    assert search.audited(ranked).below == 2


@pytest.mark.slow
def test_the_front_is_that_of_all_that_fit(exhaustive: dict[int, float]) -> None:
    found = plan(small(), fix=FIX, top=1, audit=0, jobs=1)
    assert found.front_whole
    among, _ = candidates_of(small(), FIX, {}, lambda _: None)
    near = [i for i, step_s in exhaustive.items() if step_s <= 1.5 * min(exhaustive.values())]
    free = np.floor(among.headroom_bytes / among.bounds.capacity_bytes * 40)
    costs = np.array([[exhaustive[i], -free[i]] for i in near])
    told = np.array([(point.step_time_s, -free[point.number]) for point in found.front])
    assert told == pytest.approx(costs[front_of(costs)], rel=1e-9)


@pytest.mark.parametrize(
    ("row", "beaten"),
    [
        ((2.1, -3.0, 8.0, 5.0), True),
        ((2.0, -3.0, 8.0, 5.0), False),  # as fast as the known one, at best
        ((2.1, -4.0, 8.0, 5.0), False),  # with more memory left
        ((2.1, -3.0, 8.0, 4.9), False),  # cheaper
        ((2.1, -3.0, 16.0, 5.0), False),  # on other GPUs, where it may be the best
    ],
)
def test_a_layout_is_beaten_by_a_faster_one_that_is_as_good_in_all_else(
    row: tuple[float, ...], beaten: bool
) -> None:
    """Rows of seconds, memory left (negative), GPUs and price."""
    known = np.array([[2.0, -3.0, 8.0, 5.0], [1.0, -2.0, 8.0, 9.0]])
    assert front_search._beaten(np.array([row]), known) == [beaten]


@pytest.mark.slow
def test_who_is_beaten_by_its_bound_is_not_replayed_for_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "WORTH_TIGHTENING", 0)
    among, _ = candidates_of(small(training__seq_length=4096), {}, {}, lambda _: None)

    def searched() -> LayoutSearch:
        judging = Judging(scenario_of=among.layouts.scenario_of, workers=Local(Answering(ReplayOf()), 1))
        search = LayoutSearch(among=among, wishes=Wishes(top=1), judging=judging)
        search.best(top=1)
        front_search.replay_front(search)
        return search

    spared = searched()
    with monkeypatch.context() as patched:
        patched.setattr(front_search, "_beaten", lambda hoped, _: [False] * len(hoped))
        every = searched()
    assert front_search.front(spared) == front_search.front(every)
    assert spared.beaten
    assert spared.judging.known.keys() | spared.beaten == every.judging.known.keys()
    assert not spared.beaten & {*front_search.front(every)[0]}


@pytest.mark.slow
def test_the_front_waits_for_no_long_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    def searched(longest: float) -> tuple[bool, int]:
        monkeypatch.setattr(front_search, "MOST_ACTIONS", longest)
        among, _ = candidates_of(small(), FIX, {}, lambda _: None)
        workers = Local(Answering(ReplayOf()), 1)
        judging = Judging(scenario_of=among.layouts.scenario_of, workers=workers)
        search = LayoutSearch(among=among, wishes=Wishes(top=1), judging=judging)
        search.best(top=1)
        front_search.replay_front(search)
        found, whole = front_search.front(search)
        assert found
        return whole, len(judging.known)

    none, nothing = searched(0.0)
    _, some = searched(np.inf)
    assert not none
    assert nothing < some


def test_replays_that_are_not_shortened_are_longer() -> None:
    """Of many microbatches: schedules that are never steady, and shards that move beside microbatches."""
    run = small(software="torchtitan-2024").with_({"training.global_batch": 512})
    fix = {**FIX, "parallelism.pp": 2, "parallelism.tp": 1, "parallelism.sequence_parallel": False}
    fix |= {"training.micro_batch": 1, "parallelism.vpp": 1}
    vary: dict[str, list[Any]] = {"schedule": ["1f1b", "zb-h1"], "parallelism.zero": [1, 2]}
    among, _ = candidates_of(run, fix, vary, lambda _: None)
    columns, work = among.layouts.columns, among.replayed_actions
    steady = (columns["schedule"] == "1f1b") & (columns["parallelism.zero"] == 1)
    assert steady.any()
    assert (~steady).any()
    assert work[steady].max() < work[~steady].min()


def test_of_as_many_actions_those_that_recompute_all_are_begun_first() -> None:
    """Four passes of the layers beside three."""
    run = small()
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 1, "parallelism.zero": 1, "training.micro_batch": 1}
    vary: dict[str, list[Any]] = {"training.recompute": ["none", "full"]}
    among, _ = candidates_of(run, fix, vary, lambda _: None)
    again = among.layouts.columns["training.recompute"] == "full"
    assert again.any()
    assert (~again).any()
    assert among.passes.tolist() == np.where(again, 4.0, 3.0).tolist()
    (kept, _) = candidates_of(run, {**fix, "training.recompute": "full"}, {}, lambda _: None)
    assert {*kept.passes.tolist()} == {4.0}


@pytest.mark.slow
def test_the_own_layout_is_always_judged() -> None:
    """Also where it is no choice: what is fixed leaves it out, or it does not fit."""
    fixed = plan(small(), fix={**FIX, "parallelism.tp": 1}, audit=0, jobs=1)
    mine = fixed.lost[0]
    assert mine.name == "your layout"
    step_s = brief_step(small()).step_time_s
    assert mine.factor == pytest.approx(step_s / fixed.choices[0].figures.step_time_s, rel=1e-9)
    few = {f"parallelism.{axis}": size for axis, size in (("tp", 2), ("pp", 1), ("cp", 1))}
    doubtful = plan("llama3-8b-h100", {"training.micro_batch": 2}, fix=few, audit=0, jobs=1)
    step_s = brief_step(doubtful.scenario).step_time_s
    assert not doubtful.lost[0].fits
    assert f"would be {step_s / doubtful.choices[0].figures.step_time_s:.2f} ×" in doubtful.lost[0].why
    free = plan(small(), fix=FIX, audit=0, jobs=1)
    assert free.lost[0].settings["parallelism.tp"] == 2
