"""The best-first search finds what an exhaustive one does, and judges no more than it must."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Sequence
from functools import partial

from hypothesis import example, given
from hypothesis import strategies as st

from stepsim.sim.plan.search.best_first import best_first

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


def test_values_without_ties_near_their_bounds_are_ruled_out_by_nothing_but_these() -> None:
    """Values of all sizes, where one that is ruled out a little too soon is missed."""
    for seed in range(300):
        drawn = random.Random(seed)
        values = [drawn.uniform(0.1, 10.0) for _ in range(drawn.randint(5, 30))]
        bounds, top = [value * drawn.uniform(0.3, 1.0) for value in values], drawn.randint(1, 5)
        found = best_first(bounds, partial(_values_of, values), top=top)
        assert [values[i] for i in found.best] == sorted(values)[:top]


def _values_of(values: list[float], numbers: Iterable[int]) -> Generator[float, None, None]:
    return (values[i] for i in numbers)


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


def test_who_is_likely_to_be_judged_is_bounded_before_anyone_is() -> None:
    """Two are sure to be judged, and a third is as likely as they are by its bound: it is judged beside them.
    The last will hardly be, and nobody asks for its bound."""
    values = [1.0, 1.5, *[1.6] * 6, 1.001, 1.4]
    tight = [1.0, 1.0004, *[1.2] * 6, 1.001, 1.3]
    done: list[tuple[str, list[int]]] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        done.append(("bounded", [*numbers]))
        return [tight[i] for i in numbers]

    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        done.append(("judged", [*numbers]))
        return (values[i] for i in done[-1][1])

    found = best_first([0.5] * 8 + [1.0009, 1.1], judge, top=2, tighten=tighten)
    assert found.best == (0, 8)
    assert done == [("bounded", [*range(8)]), ("bounded", [8]), ("judged", [0, 1, 8])]


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


def test_who_will_have_been_judged_is_foreseen_before_the_last_is() -> None:
    """Values are as near their bounds as they are foreseen to be."""
    values = [1.0, 1.5, 1.0003, 1.6, 1.01, 1.4, 1.3, 1.7]
    told: list[tuple[int, list[int]]] = []
    judged: list[int] = []

    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        for number in numbers:
            judged.append(number)
            yield values[number]

    found = best_first(
        [0.5] * 8,
        judge,
        top=2,
        first=[5],
        tighten=lambda numbers: [values[i] for i in numbers],
        foresee=lambda numbers: told.append((len(judged), sorted(numbers))),
    )
    assert found.best == (0, 2)
    assert told[-1][1] == sorted(found.value)
    assert any(who == sorted(found.value) for count, who in told if count < len(found.value))


def _foreseen(values: Sequence[float], loose: Sequence[float], tight: Sequence[float], top: int) -> set[int]:
    """Who is foreseen when the first of the second round is about to be judged; all of them will be."""
    told: list[set[int]] = []
    rounds: list[int] = []

    def tighten(numbers: Sequence[int]) -> list[float]:
        rounds.append(len(told))
        return [tight[i] for i in numbers]

    found = best_first(
        loose,
        lambda numbers: (values[i] for i in numbers),
        top=top,
        tighten=tighten,
        foresee=lambda numbers: told.append({*numbers}),
    )
    assert told[-1] == {*found.value}
    return told[rounds[1]]


def test_who_is_as_far_above_its_bound_as_others_were_is_foreseen() -> None:
    """Bounds are 0.99 of values. Those of the last two are of no use to tighten, as all before them, or of
    use; either way the last of the best is foreseen to be one of those that are known, so that both are
    judged."""
    values = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 1.075, 1.08]
    loose = [0.99 * value for value in values]
    for tight in (loose, [*loose[:8], *(1.0001 * bound for bound in loose[8:])]):
        assert {8, 9} <= _foreseen(values, loose, tight, top=8)


def test_nobody_is_foreseen_while_it_is_open_who_of_two_is_the_last() -> None:
    """Three bounds and how far values are above them: unknown until the first of them is judged."""
    tight = [1.0, 1.01, 1.0121, 1.2, 1.2, 1.2, 1.2, 1.2]
    told: list[tuple[int, set[int]]] = []
    judged: list[int] = []

    def judge(numbers: Iterable[int]) -> Generator[float, None, None]:
        for number in numbers:
            judged.append(number)
            yield 1.003 * tight[number]

    found = best_first(
        [0.5] * 8,
        judge,
        top=2,
        tighten=lambda numbers: [tight[i] for i in numbers],
        foresee=lambda numbers: told.append((len(judged), {*numbers})),
    )
    assert {*found.value} == {0, 1, 2}
    assert told == [(count, {0, 1, 2}) for count in (1, 2)]


def test_whose_bound_will_rise_as_others_have_is_not_foreseen() -> None:
    """Bounds rise by half and more where they are tightened: so will the last one's, which is a little below
    the last of the best."""
    tight = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    told: list[list[int]] = []
    found = best_first(
        [*[0.6] * 8, 1.108],
        lambda numbers: (1.01 * tight[i] for i in numbers),
        top=2,
        tighten=lambda numbers: [tight[i] for i in numbers],
        foresee=lambda numbers: told.append([*numbers]),
    )
    assert found.best == (0, 1)
    assert told
    assert all(sorted(one) == [0, 1] for one in told)


@given(spaces(), st.integers(1, 3), st.floats(1.0, 2.0))
@example(space=([1.0, 1.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.5, 1.0, 2.0]), top=3, dearer=2.0)
@example(space=([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]), top=1, dearer=2.0)
def test_what_is_dear_to_know_is_asked_of_few(
    space: tuple[list[float], list[float]], top: int, dearer: float
) -> None:
    """``final`` values are larger, layout by layout: the best by them are found without asking all."""
    values, bounds = space
    true = {
        i: values[i] * (1 + (dearer - 1) * (i % 3) / 2) for i in range(len(values)) if bounds[i] < math.inf
    }
    asked = []

    def final(i: int, value: float, worst: float) -> float:
        asked.append(i)
        assert value == values[i] <= worst
        between = worst + (true[i] - worst) / 2 if worst < true[i] else true[i]  # as much as tells
        return between if between > worst else true[i]

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
