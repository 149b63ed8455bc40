"""V-Half, V-Min and V-1F1B: goldens, tables, closed forms, and the passes that make them."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from law_examples import examples
from schedule_shapes import goldens

from stepsim.schedules.orders.action import ActionKind
from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import ActivationUnits, Costs, Shape, stage_to_rank
from stepsim.schedules.orders.timeline import Timeline, timeline
from stepsim.schedules.orders.validate import find_problems
from stepsim.schedules.pipeline import get, v_1f1b, v_half, v_min
from stepsim.schedules.pipeline.building_block import (
    B_A,
    B_Z,
    F_A,
    F_Z,
    IDLE,
    W_A,
    W_Z,
    Block,
    Rows,
    awaited,
    orders_of,
    repeated,
    with_weight_grads,
    without_weight_grads,
)
from stepsim.schedules.pipeline.reorder import START, Place, reorder, squeeze, steady

NAMES = {"vhalf": "v-half", "vmin": "v-min", "v1f1b": "v-1f1b"}
"""Ours, by names in the golden files."""

names = st.sampled_from(sorted(NAMES.values()))
durations = st.integers(1, 20)


def v_shape(p: int, m: int, **fields: Costs | ActivationUnits | int) -> Shape:
    return Shape(ranks=p, microbatches=m, **{"chunks": 2, **fields})  # type: ignore[arg-type]


def run(name: str, p: int, m: int, costs: Costs | None = None) -> Timeline:
    shape = v_shape(p, m)
    return timeline(get(name).orders(shape), shape, costs)


def peak(name: str, p: int, m: int) -> int:
    return max(peak_activations(get(name).orders(v_shape(p, m))))


# Goldens and tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", NAMES)
def test_goldens(shared: Path, prefix: str) -> None:
    """Orders action for action, peaks, makespan and longest span of sail-sg/zero-bubble."""
    found = goldens(shared / "data" / "goldens" / "zb", f"{prefix}_*.json")
    assert len(found) == 10
    for name, golden in found:
        schedule, shape = get(NAMES[prefix]), v_shape(golden["p"], golden["m"])
        orders = schedule.orders(shape)
        assert [[str(action) for action in order] for order in orders] == golden["actions"], name
        assert stage_to_rank(schedule.rank_of, shape) == tuple(golden["stage_to_rank"]), name
        assert list(peak_activations(orders)) == golden["peak_act_chunks"], name
        costs = Costs(
            forward=golden["tF"],
            input_grad=golden["tB"],
            weight_grad=golden["tW"],
            latency=golden["tC"],
        )
        timed = timeline(orders, shape, costs)
        assert (timed.makespan, timed.max_span) == (golden["makespan"], golden["max_span"]), name


@pytest.mark.parametrize("prefix", ["vhalf", "vmin"])
def test_bubbles_and_peaks_of_the_authors_table(shared: Path, prefix: str) -> None:
    """Equal times, and (10, 11, 7), which the order was not made for."""
    table = json.loads((shared / "data" / "goldens" / "v_schedules_bubble_peak.json").read_text())
    rows = [row for row in table["rows"] if row[0] == prefix]
    assert len(rows) == 10
    for _, p, m, span_bubble, makespan_bubble, activations, rate in rows:
        timed = run(NAMES[prefix], p, m)
        assert (timed.max_span - 6 * m, timed.makespan - 6 * m) == (span_bubble, makespan_bubble), (p, m)
        assert peak(NAMES[prefix], p, m) == activations, (p, m)
        unequal = run(NAMES[prefix], p, m, Costs(forward=10, input_grad=11, weight_grad=7))
        assert 1 - 56 * m / unequal.max_span == pytest.approx(rate, abs=5e-5), (p, m)


# Closed forms, times per chunk -------------------------------------------------------------------------


def v_half_bubble(p: int) -> int:
    """In chunk slots: reference 5.1."""
    return 3 * p - 4 if p % 2 else 3 * p - 7 if p > 2 else 1


def v_min_bubble(p: int) -> int:
    """In chunk slots: reference 5.1."""
    return 4 * p - 7 if p % 3 == 0 else 4 * p - 5


def v_1f1b_bubble(p: int) -> int:
    """In chunk slots, where 3 does not divide p > 2. Measured here: nobody states it."""
    return 5 * p - 5 if p % 3 == 1 else 5 * p - 7


@pytest.mark.slow
@examples(15)
@given(st.integers(2, 20), st.integers(0, 12), durations)
def test_makespan_with_equal_times(p: int, more: int, t: int) -> None:
    """From m = 2p on (reference 5.1); span and makespan are one."""
    m, costs = 2 * p + more, Costs(forward=t, input_grad=t, weight_grad=t)
    forms = {"v-half": v_half_bubble, "v-min": v_min_bubble}
    if p > 2 and p % 3:
        forms["v-1f1b"] = v_1f1b_bubble
    for name, bubble in forms.items():
        timed = run(name, p, m, costs)
        assert timed.makespan == timed.max_span == t * (6 * m + bubble(p)), name


@pytest.mark.slow
@examples(15)
@given(st.integers(3, 20), st.data())
def test_v_half_and_v_min_need_fewer_microbatches_than_stated(p: int, data: st.DataObject) -> None:
    """Measured here: from m = p+3 on, both have the bubble that reference 5.1 states from m = 2p on."""
    m = data.draw(st.integers(p + 3, 2 * p))
    assert run("v-min", p, m).makespan == 6 * m + v_min_bubble(p)
    assert run("v-half", p, m).makespan == 6 * m + v_half_bubble(p)


@examples(20)
@given(st.integers(1, 20), st.integers(1, 40))
def test_peak_of_v_half(p: int, m: int) -> None:
    """Rank r: min(2m, m+1+r, 2⌊(p+2)/2⌋); so reference 5.2 holds on every rank from m = 2⌊(p+2)/2⌋ - 1 on."""
    stated = [min(2 * m, m + 1 + r, 2 * ((p + 2) // 2)) for r in range(p)]
    assert list(peak_activations(get("v-half").orders(v_shape(p, m)))) == stated


@examples(20)
@given(st.integers(1, 20), st.integers(1, 40))
def test_peak_of_v_min(p: int, m: int) -> None:
    """The same with 2⌊(p+4)/3⌋, reached by some rank; one rank holds one less, only where p mod 3 is 2."""
    stated = [min(2 * m, m + 1 + r, 2 * ((p + 4) // 3)) for r in range(p)]
    held = peak_activations(get("v-min").orders(v_shape(p, m)))
    missing = sum(stated) - sum(held)
    assert all(0 <= s - h <= 1 for s, h in zip(stated, held, strict=True))
    assert missing <= (p % 3 == 2)
    assert max(held) == max(stated)
    if p % 3 == 2 and m >= 2 * p:
        assert (held[0], missing) == (stated[0] - 1, 1)


def test_v_half_holds_one_more_on_rank_0_where_it_is_long() -> None:
    """Why the schedule states no bound: the form is one short at p = 47, m = 46, as the authors' code is."""
    held = peak_activations(get("v-half").orders(v_shape(47, 46)))
    assert held == (48,) * 47


@pytest.mark.parametrize(
    ("name", "share"), [("v-half", Fraction(1, 2)), ("v-min", Fraction(1, 3)), ("v-1f1b", Fraction(2, 3))]
)
def test_memory_relative_to_1f1b(name: str, share: Fraction) -> None:
    """Authors' README: 1/2 and 1/3 of the p activations of 1F1B (V-1F1B: measured here), up to O(1/p)."""
    for p in (4, 9, 14, 24):
        assert abs(Fraction(peak(name, p, 2 * p), 2 * p) - share) <= Fraction(4, 3) / p


@pytest.mark.parametrize(("name", "share"), [("v-half", Fraction(1, 2)), ("v-min", Fraction(2, 3))])
def test_bubble_relative_to_1f1b(name: str, share: Fraction) -> None:
    """Authors' README: 1/2, and 2/3 + O(n); that of 1F1B is p-1 times a stage's F, B and W."""
    for p in (5, 9, 14, 24):
        bubble = run(name, p, 2 * p).makespan - 12 * p
        assert abs(Fraction(bubble, 6 * (p - 1)) - share) <= Fraction(1, p)


def test_bubbles_of_primus() -> None:
    """AMD-AGI/Primus schedule replay, p = 8, m = 32: 8.85 % and 13.54 % of the ideal time; 5 and 4 stages.

    Its V-Min is a variant of its own, one chunk slot shorter than the authors': 13/96 against 13.5/96.
    """
    ideal = 32 * 2 * 3
    v_half_share = (run("v-half", 8, 32).makespan - ideal) / ideal
    v_min_share = (run("v-min", 8, 32).makespan - ideal) / ideal
    assert 100 * v_half_share == pytest.approx(8.85, abs=0.005)
    assert v_min_share == pytest.approx(13.5 / 96)
    assert 100 * (v_min_share - 1 / ideal) == pytest.approx(13.54, abs=0.005)
    assert (peak("v-half", 8, 32), peak("v-min", 8, 32)) == (2 * 5, 2 * 4)


# Times that the orders were not made for (reference 5.3 d) ---------------------------------------------


def test_rates_with_unequal_times() -> None:
    """(10, 11, 7) at p = 8: V-Min pays in its steady state, V-Half does not."""
    costs = Costs(forward=10, input_grad=11, weight_grad=7)
    for name, m, rate in (
        ("v-min", 16, 0.326),
        ("v-min", 32, 0.249),
        ("v-half", 16, 0.196),
        ("v-half", 32, 0.109),
    ):
        assert 1 - 56 * m / run(name, 8, m, costs).max_span == pytest.approx(rate, abs=6e-4), (name, m)


def bubble_of_six_microbatches(name: str, p: int, costs: Costs) -> int:
    """What six more cost in the steady state, beyond their work."""
    spans = [run(name, p, m, costs).max_span for m in (4 * p + 6, 4 * p + 12)]
    return spans[1] - spans[0] - 12 * (costs.forward + costs.input_grad + costs.weight_grad)


@pytest.mark.slow
@given(st.integers(2, 8), durations, durations, durations)
def test_when_v_half_has_no_steady_bubble(p: int, f: int, b: int, w: int) -> None:
    """Exactly if W + 2B >= 2F and W + 2F >= 2B (the authors' condition)."""
    costs = Costs(forward=f, input_grad=b, weight_grad=w)
    bubble = bubble_of_six_microbatches("v-half", p, costs)
    assert (bubble == 0) == (w + 2 * b >= 2 * f and w + 2 * f >= 2 * b)


@pytest.mark.parametrize("p", range(3, 11))
def test_steady_bubble_of_v_min(p: int) -> None:
    """(10, 11, 7): ten for each microbatch, on any pipeline of three ranks or more; none with equal times."""
    costs = Costs(forward=10, input_grad=11, weight_grad=7)
    assert bubble_of_six_microbatches("v-min", p, costs) == 60
    assert bubble_of_six_microbatches("v-min", p, Costs()) == 0


# Laws --------------------------------------------------------------------------------------------------


@examples(20)
@given(names, st.integers(1, 16), st.integers(1, 40))
def test_any_number_of_ranks_and_microbatches(name: str, p: int, m: int) -> None:
    """Fewer microbatches than ranks and a single rank too: complete, free of deadlock, as full as stated."""
    schedule, shape = get(name), v_shape(p, m)
    orders = schedule.orders(shape)
    assert find_problems(orders, shape, schedule.rank_of, schedule.in_flight) == ()
    if schedule.in_flight is not None:
        assert peak_activations(orders) == tuple(schedule.in_flight(rank, shape) for rank in range(p))


@given(names, st.integers(1, 8), st.integers(1, 20), st.tuples(*[st.integers(0, 9)] * 4))
def test_orders_are_fixed_whatever_the_costs(
    name: str, p: int, m: int, times: tuple[int, int, int, int]
) -> None:
    f, b, w, c = times
    costs = Costs(forward=f, input_grad=b, weight_grad=w, latency=c)
    other = v_shape(p, m, costs=costs, memory=ActivationUnits(forward=5, input_grad=-2))
    assert get(name).orders(other) == get(name).orders(v_shape(p, m))


@pytest.mark.parametrize("name", sorted(NAMES.values()))
def test_a_refusal_says_what_would_do(name: str) -> None:
    for shape, message in (
        (Shape(ranks=4, microbatches=8), f"{name} .*2 chunks .*1; use chunks=2"),
        (Shape(ranks=4, microbatches=8, chunks=3), "not 3; use chunks=2"),
        (v_shape(4, 8, group=4), "group=4"),
        (v_shape(4, 8, memory=ActivationUnits(limit=6)), "limit of 6"),
    ):
        with pytest.raises(ValueError, match=message):
            get(name).orders(shape)


# The passes --------------------------------------------------------------------------------------------


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    """Any V-shaped block: delays drawn at each of its 4p slots, no two slots of a rank six apart."""
    p = draw(st.integers(1, 5))
    way = [*range(p), *reversed(range(p))] * 2
    taken: list[set[int]] = [set() for _ in range(p)]
    slots: list[list[int]] = [[] for _ in range(p)]
    slot = -1
    for rank in way:
        slot += 1 + draw(st.integers(0, 7))
        while slot % 6 in taken[rank]:
            slot += 1
        taken[rank].add(slot % 6)
        slots[rank].append(slot)
    return slots


def slow_reorder(
    rows: Rows, *, keep: tuple[Place, Place] | None = None, postponed: bool = False, whole: bool = False
) -> Rows:
    """By the definition: try every idle slot, measure the whole row each time, look for inputs anew."""

    def most_held(row: bytearray) -> int:
        filled = with_weight_grads(row) if postponed else row
        return max(accumulate((c in (F_A, F_Z)) - (c in (W_Z, W_A)) for c in filled))

    def end(rank: int, codes: tuple[int, ...], k: int) -> int:
        slots = [slot for slot, code in enumerate(rows[rank]) if code in codes]
        return slots[k] + (2 if whole and codes[0] in (B_Z, B_A) else 1)

    limit = max(map(most_held, rows))
    actions = sorted((slot, rank, code) for rank, row in enumerate(rows) for slot, code in enumerate(row))
    rows, done = [bytearray(row) for row in rows], [[0] * 7 for _ in rows]
    for slot, rank, code in actions:
        if code == IDLE or (whole and code in (W_Z, W_A)):
            continue
        k, size = done[rank][code], 2 if whole and code in (B_Z, B_A) else 1
        done[rank][code] += 1
        if keep is not None and keep[0] <= (slot, rank) <= keep[1]:
            continue
        source = (B_Z, rank) if code == W_Z else awaited(code, rank, len(rows))
        codes = (B_Z, B_A) if code == W_Z else (source[0],) if source else ()
        needs = [end(rank, (code,), k - 1)] if k else []
        needs += [end(source[1], codes, k)] if source else []
        for at in range(max(needs, default=0), slot - size + 1):
            if not any(rows[rank][at : at + size]):
                row = bytearray(rows[rank])
                row[at : at + size], row[slot : slot + size] = row[slot : slot + size], bytes(size)
                if most_held(row) <= limit:
                    rows[rank] = row
                    break
    return rows


@examples(20)
@given(blocks(), st.integers(1, 9))
def test_reorder_finds_what_a_slow_search_finds(block: Block, m: int) -> None:
    """On blocks of any kind: weight gradients with slots of their own, or postponed."""
    rows = [with_weight_grads(row) for row in repeated(block, m)]
    assert reorder(rows) == slow_reorder(rows)
    assert reorder(rows, keep=steady(rows)) == slow_reorder(rows, keep=steady(rows))
    rows = [without_weight_grads(row) for row in squeeze(reorder(rows, keep=steady(rows)))]
    keep = START, steady(rows)[1]
    assert reorder(rows, keep=keep, postponed=True) == slow_reorder(rows, keep=keep, postponed=True)
    assert reorder(rows, postponed=True) == slow_reorder(rows, postponed=True)


@given(st.integers(1, 7), st.integers(1, 12))
def test_reorder_of_whole_backwards_finds_what_a_slow_search_finds(p: int, m: int) -> None:
    rows = repeated(v_1f1b.block(p), m)
    assert reorder(rows, whole=True) == slow_reorder(rows, whole=True)


@given(blocks(), st.integers(1, 9))
def test_squeeze_keeps_the_order_and_wastes_nothing(block: Block, m: int) -> None:
    """Every action stands in the slot in which it begins if all take one."""
    kinds = {
        F_A: ActionKind.FORWARD,
        F_Z: ActionKind.FORWARD,
        B_Z: ActionKind.INPUT_GRAD,
        B_A: ActionKind.INPUT_GRAD,
    }
    rows = repeated(block, m)
    squeezed = squeeze(rows)
    orders = orders_of(squeezed, kinds)
    assert orders == orders_of(rows, kinds)
    timed = timeline(orders, v_shape(len(rows), m), Costs())
    begins = [[slot for slot, code in enumerate(row) if code] for row in squeezed]
    assert begins == [[action.begin for action in rank] for rank in timed.ranks]


@given(st.integers(1, 60), st.sampled_from([v_half.block, v_min.block, v_1f1b.block]))
def test_a_block_repeats_every_six_slots(p: int, block: object) -> None:
    """No two of its actions on a rank are six slots apart, and each comes after what it awaits."""
    assert callable(block)
    slots = block(p)
    assert all(len({slot % 6 for slot in rank}) == len(rank) for rank in slots)
    for rank in range(p):
        for code in (F_A, F_Z, B_Z, B_A):
            source = awaited(code, rank, p)
            assume(source is not None or code == F_A)
            if source is not None:
                assert slots[source[1]][source[0] - F_A] < slots[rank][code - F_A]
