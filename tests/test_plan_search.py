"""The search for layouts: best first is exhaustive, fronts and twins are what they are called."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_plans import FIX, answer, small

from stepsim.sim.brief.step import brief_step
from stepsim.sim.lowering.layers.stages import build_stages
from stepsim.sim.plan.search import front_search, searching
from stepsim.sim.plan.search.best_first import Ranked, best_first
from stepsim.sim.plan.search.front import front_of, hopeful
from stepsim.sim.plan.search.judged import ReplayOf
from stepsim.sim.plan.search.judging import Answering, Judging
from stepsim.sim.plan.search.plan import candidates_of, plan
from stepsim.sim.plan.search.searching import LayoutSearch, Wishes
from stepsim.sim.plan.search.sure import CONTENDERS, contenders
from stepsim.sim.plan.search.workers import Local
from stepsim.sim.simulate import simulate

TIMES = st.floats(0.1, 10.0)


@st.composite
def spaces(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Values and bounds that are no larger; ties, infinite bounds (no candidates) and values are in it."""
    values = draw(st.lists(st.one_of(TIMES, st.sampled_from([1.0, 2.0, math.inf])), min_size=1, max_size=30))
    shares = draw(st.lists(st.floats(0.3, 1.0), min_size=len(values), max_size=len(values)))
    bounds = [min(value, 10.0) * share for value, share in zip(values, shares, strict=True)]
    for i in draw(st.sets(st.integers(0, len(values) - 1), max_size=3)):
        bounds[i] = math.inf
    return values, bounds


@given(spaces(), st.integers(1, 5), st.data())
def test_best_first_is_exhaustive_and_judges_no_more_than_it_must(
    space: tuple[list[float], list[float]], top: int, data: st.DataObject
) -> None:
    values, bounds = space
    open_ones = [i for i in range(len(values)) if bounds[i] < math.inf]
    first = data.draw(st.lists(st.sampled_from(open_ones), max_size=1)) if open_ones else []
    limit = data.draw(st.one_of(st.none(), st.integers(1, 10)))
    sure: list[int] = []
    few = best_first(
        bounds,
        lambda numbers: (values[i] for i in numbers),
        top=top,
        first=first,
        limit=limit,
        begin=sure.extend,
    )
    assert set(sure) <= few.value.keys()
    found = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, first=first)
    true = sorted((values[i], i) for i in open_ones if values[i] < math.inf)[:top]
    assert found.proven
    # Equal values may be ruled out by an equal bound: it is the values that are proven.
    assert [values[i] for i in found.best] == [value for value, _ in true]
    if len(true) == top:
        # Of equal bounds the first in turn is judged first, whatever the value of the other.
        assert all(bounds[i] <= true[-1][0] or i in first for i in found.value if i not in found.best)


def _bound_by(tight: list[float], bounds: list[float], i: int, values: list[float]) -> list[int]:
    """Candidates all of whose bounds are below the value of candidate ``i``."""
    return [j for j, bound in enumerate(bounds) if max(bound, tight[j]) <= values[i] and bound < math.inf]


@given(spaces(), st.integers(1, 5), st.data())
def test_bounds_that_are_tightened_on_the_way_find_the_same_by_fewer(
    space: tuple[list[float], list[float]], top: int, data: st.DataObject
) -> None:
    values, bounds = space
    share = st.floats(0.0, 1.0)
    tight = [data.draw(share) * min(value, 10.0) for value in values]  # some are no better than before
    below = [
        data.draw(st.sampled_from([i, *_bound_by(tight, bounds, i, values)])) for i in range(len(values))
    ]
    below = [i if below[j] != j else j for i, j in enumerate(below)]  # a lesser one has none itself
    asked: list[int] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        asked.extend(numbers)
        return [tight[i] for i in numbers]

    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        return (values[i] for i in numbers)

    plain = best_first(bounds, judge, top=top)
    found = best_first(bounds, judge, top=top, tighten=tighten, lesser=below.__getitem__)
    assert found.proven
    assert [values[i] for i in found.best] == [values[i] for i in plain.best]
    assert len(set(asked)) == len(asked)
    if len(found.best) == top:
        worst = values[found.best[-1]]
        known = [max(bound, other) for bound, other in zip(bounds, tight, strict=True)]
        assert all(known[i] <= worst or i in found.best for i in found.value)


def test_a_lesser_candidate_that_is_ruled_out_rules_out_others_without_bounds_of_their_own() -> None:
    values, tight = [1.0, 3.0, 3.1, 3.2, 1.5], [0.9, 2.0, 2.1, 2.2, 1.4]
    asked: list[int] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        asked.extend(numbers)
        return [tight[i] for i in numbers]

    found = best_first(
        [0.5, 0.6, 0.7, 0.8, 0.8],
        lambda numbers: (values[i] for i in numbers),
        top=2,
        tighten=tighten,
        lesser=[0, 1, 1, 1, 4].__getitem__,
    )
    assert found.proven
    assert found.best == (0, 4)
    assert asked == [0, 1, 4]


@given(spaces(), st.integers(1, 5), st.data())
def test_who_is_judged_does_not_hang_on_how_far_workers_are_ahead(
    space: tuple[list[float], list[float]], top: int, data: st.DataObject
) -> None:
    values, bounds = space
    share = st.floats(0.5, 1.0)
    tight = [data.draw(share) * min(value, 10.0) for value in values]

    def tighten(numbers: Sequence[int]) -> list[float]:
        return [tight[i] for i in numbers]

    def ahead(numbers: Iterable[int]) -> Generator[float, None, None]:
        return (values[i] for i in [*numbers])

    one = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, tighten=tighten)
    other = best_first(bounds, ahead, top=top, tighten=tighten)
    assert [*one.value.items()] == [*other.value.items()]
    assert one.best == other.best


def test_nobody_is_begun_who_will_hardly_be_among_the_best() -> None:
    """Three are asked for; by bounds that were tightened the fourth is slower than the last of these will be,
    and the fifth, whose bound is the same, is no better for being first of all by the bounds before."""
    values, tight = [1.0, 1.01, 1.02, 1.2, 1.3], [0.999, 1.009, 1.019, 1.1, 1.1]
    begun: list[int] = []

    def ahead(numbers: Iterable[int]) -> Generator[float, None, None]:
        wanted = [*numbers]
        begun.extend(wanted)
        return (values[i] for i in wanted)

    for first in ([], [4]):  # one that is judged whatever comes, so that there is a worst of the best at once
        begun.clear()
        found = best_first(
            [0.9, 0.9, 0.9, 0.9, 0.8],
            ahead,
            top=3,
            first=first,
            tighten=lambda numbers: [tight[i] for i in numbers],
            begin=begun.extend,
        )
        assert found.best == (0, 1, 2)
        assert set(begun) == {0, 1, 2, *first}


def test_nobody_is_begun_beside_bounds_who_will_hardly_be_among_the_best() -> None:
    """Three are judged, one of them far above its bound, before bounds of the last are tightened: the next is
    begun beside these, and those behind it, of which bounds are known as well, are not."""
    values = [3.0, 1.0, 1.0, 1.1, 1.6, 2.0, 2.0, 2.0, 2.0, 2.0]
    tight = [0.9, 1.0, 1.0, 1.1, 1.5, 1.9, 1.9, 1.9, 1.8, 1.8]
    begun: list[int] = []
    beside: list[tuple[list[int], list[int]]] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        beside.append(([*numbers], [*begun]))
        return [tight[i] for i in numbers]

    def begin(numbers: Sequence[int]) -> None:
        begun[:] = numbers

    found = best_first(
        [0.5] * 8 + [1.05, 1.06],
        lambda numbers: (values[i] for i in numbers),
        top=3,
        tighten=tighten,
        begin=begin,
    )
    assert found.best == (1, 2, 3)
    assert beside == [([*range(8)], []), ([8, 9], [3])]


def test_bounds_that_may_come_next_are_told_before() -> None:
    """All but those that are tightened now, and those that a lesser one may rule out without one."""
    values = [float(i) for i in range(1, 21)]
    lesser = [*range(10), 3, *range(11, 20)]
    rounds: list[tuple[list[int], list[int]]] = []
    expected: list[int] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        rounds.append(([*numbers], [*expected]))
        return [values[i] for i in numbers]

    def expect(numbers: Sequence[int]) -> None:
        expected[:] = numbers

    bounds = [0.5 + i / 100 for i in range(20)]
    best_first(
        bounds,
        lambda numbers: (values[i] for i in numbers),
        top=10,
        tighten=tighten,
        lesser=lesser.__getitem__,
        expect=expect,
    )
    now, then = rounds[0]
    assert now == [*range(8)]
    assert then == [8, 9, *range(11, 20)]


@given(spaces(), st.integers(1, 3), st.floats(1.0, 2.0))
@example(space=([1.0, 1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.5, 1.0, 2.0]), top=3, dearer=2.0)
def test_what_is_dear_to_know_is_asked_of_few(
    space: tuple[list[float], list[float]], top: int, dearer: float
) -> None:
    """``final`` values are larger, layout by layout: the best by them are found without asking all."""
    values, bounds = space
    true = {
        i: values[i] * (1 + (dearer - 1) * (i % 3) / 2) for i in range(len(values)) if bounds[i] < math.inf
    }
    asked = []

    def final(i: int, _: float) -> float:
        asked.append(i)
        return true[i]

    found = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, final=final)
    assert [true[i] for i in found.best] == sorted(v for v in true.values() if v < math.inf)[:top]
    assert len(set(asked)) == len(asked)


@given(spaces(), st.integers(1, 3), st.integers(1, 12))
def test_a_limit_leaves_nobody_better_than_is_told(
    space: tuple[list[float], list[float]], top: int, limit: int
) -> None:
    """As many are judged as may be, and whoever is left is no better than the least bound of those."""
    values, bounds = space
    found = best_first(bounds, lambda numbers: (values[i] for i in numbers), top=top, limit=limit)
    left = [values[i] for i in range(len(values)) if bounds[i] < math.inf and i not in found.value]
    assert len(found.value) <= limit
    assert found.least <= min(left, default=math.inf)
    assert found.proven or len(found.value) == limit


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


@pytest.mark.slow
@pytest.mark.parametrize("software", ["torchtitan-2024", "deepspeed-zero3-2021"])
def test_a_twin_takes_the_same_step_and_the_same_memory(software: str) -> None:
    layouts = candidates_of(small(software=software), FIX, {}, lambda _: None)[0].layouts
    zero = layouts.columns["parallelism.zero"]
    twins = [(i, layouts.twin(i)) for i in range(len(layouts)) if layouts.twin(i) != i]
    assert all(1 <= zero[j] < zero[i] for i, j in twins)
    assert all(layouts.twin(j) == j for _, j in twins)
    assert twins or software == "deepspeed-zero3-2021"
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory) == (other.step_time_s, other.memory)


@pytest.mark.slow
def test_orders_of_ranks_that_place_all_groups_alike_are_twins() -> None:
    orders = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]
    run, vary = small(cluster__gpus=32), {"parallelism.order": orders}
    layouts = candidates_of(run, {**FIX, "parallelism.zero": 1}, vary, lambda _: None)[0].layouts
    order, pp, dp = (layouts.columns[f"parallelism.{name}"] for name in ("order", "pp", "dp"))
    second = np.flatnonzero((order == orders[1]) & (pp > 1) & (dp > 1)).tolist()
    twins = [(i, layouts.twin(i)) for i in second if layouts.twin(i) != i]
    assert 0 < len(twins) < len(second)  # whole hosts in one place or the other, or parts of hosts
    assert all(order[j] == orders[0] and layouts.twin(j) == j for _, j in twins)
    for i, j in twins[:: max(1, len(twins) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory, one.parts) == (other.step_time_s, other.memory, other.parts)


@pytest.mark.slow
def test_splits_that_give_each_stage_as_many_layers_are_twins() -> None:
    splits = ["uniform", "embedding_and_loss_as_layers", "uneven_unspecified", "flops_balanced"]
    fix = {**FIX, "parallelism.zero": 1, "parallelism.tp": 2, "training.micro_batch": 2}
    del fix["parallelism.stage_split"]
    run = small(model__num_layers=6, model__vocab_size=128000)
    layouts = candidates_of(run, fix, {"parallelism.stage_split": splits}, lambda _: None)[0].layouts
    settings = [layouts.settings(i) for i in range(len(layouts))]
    split = [one.pop("parallelism.stage_split") for one in settings]
    pairs = [(i, j) for j in range(len(layouts)) for i in range(j) if settings[i] == settings[j]]
    stages = [build_stages(layouts.scenario_of(i)) for i in range(len(layouts))]
    same = [(i, j) for i, j in pairs if stages[i] == stages[j]]
    assert {split[i] for pair in same for i in pair} >= set(splits[:3])
    assert len(same) < len(pairs)
    assert all((layouts.twin(i) == layouts.twin(j)) == ((i, j) in same) for i, j in pairs)
    assert all(layouts.twin(layouts.twin(i)) == layouts.twin(i) for i in range(len(layouts)))
    for i, j in same[:: max(1, len(same) // 4)]:
        one, other = (ReplayOf()(layouts.scenario_of(number)) for number in (i, j))
        assert (one.step_time_s, one.memory, one.parts) == (other.step_time_s, other.memory, other.parts)


def test_orders_of_ranks_that_are_placed_in_several_ways_are_no_twins() -> None:
    """Here rank 0 and as many groups of each axis sit alike under both orders, and other ranks do not."""
    where = [15, 4, 7, 1, 12, 3, 10, 5, 0, 14, 11, 13, 8, 9, 6, 2]
    fields = {"gpus": 16, "gpus_per_node": 4, "placement": {"kind": "explicit", "gpus": where}}
    run = small(**{f"cluster__{name}": value for name, value in fields.items()})
    fix = {**FIX, "parallelism.zero": 1, "parallelism.pp": 2, "parallelism.tp": 2, "parallelism.vpp": 1}
    fix |= {"training.micro_batch": 2, "parallelism.ep": 1, "schedule": "1f1b"}
    vary = {"parallelism.order": ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]}
    layouts = candidates_of(run, fix, vary, lambda _: None)[0].layouts
    one, other = (ReplayOf()(layouts.scenario_of(number)).step_time_s for number in range(len(layouts)))
    assert one != other
    assert [layouts.twin(number) for number in range(len(layouts))] == [0, 1]


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
    assert work[drawn(len(every) // 3)].mean() < work[every].mean()


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
    free = plan(small(), fix=FIX, audit=0, jobs=1)
    assert free.lost[0].settings["parallelism.tp"] == 2
