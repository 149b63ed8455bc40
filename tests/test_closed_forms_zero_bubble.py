"""Closed forms of the schedules with split backwards: makespans, spans, latencies, peaks, published bubbles.

Times are of a whole rank for one microbatch, all its chunks together: ``f`` a forward, ``b`` an input
gradient, ``w`` a weight gradient; ``c`` is the latency of a message. A span is what the zero-bubble papers
report: a rank's last end less its first begin. Where a published form needs an assumption, the test says it.
"""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import Costs, Shape
from stepsim.schedules.orders.timeline import Timeline, timeline
from stepsim.schedules.p2p.point_to_point import MessageGroup, point_to_point
from stepsim.schedules.pipeline import get

durations = st.integers(1, 40)
times = st.tuples(durations, durations, durations)
ranks, more = st.integers(1, 8), st.integers(0, 16)


def timed(name: str, shape: Shape, per_chunk: tuple[int, int, int], c: int = 0) -> Timeline:
    f, b, w = per_chunk
    costs = Costs(forward=f, input_grad=b, weight_grad=w, latency=c)
    return timeline(get(name).orders(shape), shape, costs)


def peaks(name: str, shape: Shape) -> list[int]:
    return list(peak_activations(get(name).orders(shape)))


# ZB-H1: m >= p --------------------------------------------------------------------------------------------


@given(ranks, more, times)
def test_zb_h1_makespan(p: int, more: int, costs: tuple[int, int, int]) -> None:
    f, b, w = costs
    m = p + more
    expected = m * (f + b + w) + (p - 1) * max(f, b, f + b - w)
    assert timed("zb-h1", Shape(ranks=p, microbatches=m), costs).makespan == expected


@given(ranks, more, times)
def test_zb_h1_as_published(p: int, more: int, costs: tuple[int, int, int]) -> None:
    """Qi 2023, table 1: the bubble is (p-1)(f + b - w). That needs w <= min(f, b), and is too little else.

    Only with w <= b is the makespan also the longest span, whatever f.
    """
    f, b, w = costs
    m = p + more
    timing = timed("zb-h1", Shape(ranks=p, microbatches=m), costs)
    published = m * (f + b + w) + (p - 1) * (f + b - w)
    assert (timing.makespan == published) if w <= min(f, b) or p == 1 else (timing.makespan > published)
    if w <= b:
        assert timing.max_span == timing.makespan


@given(st.integers(2, 8), more, st.integers(0, 10), st.data())
def test_zb_h1_with_latency(p: int, more: int, c: int, data: st.DataObject) -> None:
    """4c(p-1) more, 2c less of that at m = p; for w <= min(f, b) and latencies of up to half of w."""
    w = data.draw(st.integers(max(1, 2 * c), 40))
    f, b = data.draw(st.tuples(st.integers(w, 60), st.integers(w, 60)))
    m = p + more
    expected = m * (f + b + w) + (p - 1) * (f + b - w) + 4 * c * (p - 1) - (2 * c if m == p else 0)
    assert timed("zb-h1", Shape(ranks=p, microbatches=m), (f, b, w), c).makespan == expected


# ZB-H2: m >= 2p-1 -----------------------------------------------------------------------------------------


@given(ranks, more, times)
def test_zb_h2_span_and_makespan(p: int, more: int, costs: tuple[int, int, int]) -> None:
    f, b, w = costs
    m = 2 * p - 1 + more
    timing = timed("zb-h2", Shape(ranks=p, microbatches=m), costs)
    work = m * (f + b + w)
    assert timing.max_span == work + (p - 1) * max(0, b - f, f + b - 2 * w)
    assert timing.makespan == work + (p - 1) * max(f, b - f, f + b - 2 * w)


@given(st.integers(2, 8), more, times, st.data())
def test_zb_h2_with_latency(p: int, more: int, costs: tuple[int, int, int], data: st.DataObject) -> None:
    """For latencies of up to the shortest action."""
    f, b, w = costs
    c = data.draw(st.integers(0, min(costs)))
    m = 2 * p - 1 + more
    timing = timed("zb-h2", Shape(ranks=p, microbatches=m), costs, c)
    work = m * (f + b + w)
    assert timing.max_span == work + (p - 1) * max(0, b - f + 2 * c, f + b - 2 * w + 2 * c)
    assert timing.makespan == work + (p - 1) * max(f + c, b - f + 2 * c, f + b - 2 * w + 2 * c)


@given(st.integers(2, 8), more, times)
def test_zb_h2_as_published(p: int, more: int, costs: tuple[int, int, int]) -> None:
    """Qi 2023, table 1: (p-1)(f + b - 2w). It is a span, and needs f + b >= 2w and f >= w."""
    f, b, w = costs
    m = 2 * p - 1 + more
    span = timed("zb-h2", Shape(ranks=p, microbatches=m), costs).max_span
    published = m * (f + b + w) + (p - 1) * (f + b - 2 * w)
    assert (span == published) if f + b >= 2 * w and f >= w else (span > published)


# Several chunks -------------------------------------------------------------------------------------------


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 4), times)
def test_interleaved_zb_makespan(p: int, groups: int, v: int, per_chunk: tuple[int, int, int]) -> None:
    """W0 + (p-1)/v · max(f, b, f + b - w), with torch's groups, where p divides m; times here per chunk."""
    f, b, w = per_chunk
    m = groups * p
    expected = m * v * (f + b + w) + (p - 1) * max(f, b, f + b - w)
    assert timed("interleaved-zb", Shape(ranks=p, microbatches=m, chunks=v), per_chunk).makespan == expected


@given(ranks, more, durations)
def test_zb_v_has_no_bubble(p: int, more: int, each: int) -> None:
    """Qi 2023, section 6: for equal actions and m >= 2p-1. Rank p-1 begins (p-1) chunk forwards late."""
    m = 2 * p - 1 + more
    timing = timed("zb-v", Shape(ranks=p, microbatches=m, chunks=2), (each, each, each))
    assert timing.max_span == 6 * m * each
    assert timing.makespan == 6 * m * each + (p - 1) * each


# DualPipe and DualPipeV -----------------------------------------------------------------------------------


def two_way_shapes(stages: int, more: int) -> list[tuple[str, Shape, int]]:
    """Both schedules on so many stages (even), with the chunks' work that a rank has."""
    m = 2 * stages + 2 * (more // 2)
    halves = Shape(ranks=stages // 2, microbatches=stages + more, chunks=2)
    return [
        ("dualpipe", Shape(ranks=stages, microbatches=m), m),
        ("dualpipev", halves, 2 * halves.microbatches),
    ]


@given(st.integers(1, 5), more, durations, st.data())
def test_dualpipe_bubble_as_published(half: int, more: int, each: int, data: st.DataObject) -> None:
    """README: (PP/2-1)(F&B + B - 3W), PP stages, B a whole backward, F&B a pair: here F, then B.

    Needs tF = tB and tW <= tB, and is the idle time of the rank that idles most.
    """
    w = data.draw(st.integers(1, each))
    pair, whole = 2 * each + w, each + w
    for name, shape, actions in two_way_shapes(2 * half, more):
        timing = timed(name, shape, (each, each, w))
        expected = actions * pair + (half - 1) * (pair + whole - 3 * w)
        assert timing.makespan == timing.max_span == expected


@given(more, times)
def test_dualpipe_bubble_of_four_stages(more: int, costs: tuple[int, int, int]) -> None:
    """F&B + tF - 2tW, also with tF != tB; for tB <= 2tF and tW no longer than either."""
    f, b, w = costs
    assume(w <= min(f, b) and b <= 2 * f)
    for name, shape, actions in two_way_shapes(4, more):
        expected = actions * (f + b + w) + (f + b + w) + f - 2 * w
        assert timed(name, shape, costs).makespan == expected


# Peaks: section 5.2 ---------------------------------------------------------------------------------------


@given(ranks, more)
def test_peak_activations_are_the_closed_forms(p: int, more: int) -> None:
    """p and 2p-1 activations; 2p chunks, of which fewer than 2p-1 microbatches fill min(2m, m+1+r)."""
    assert peaks("zb-h1", Shape(ranks=p, microbatches=p + more)) == [p] * p
    assert peaks("zb-h2", Shape(ranks=p, microbatches=2 * p - 1 + more)) == [2 * p - 1] * p
    assert peaks("zb-v", Shape(ranks=p, microbatches=2 * p - 1 + more, chunks=2)) == [2 * p] * p
    for m in range(1, 2 * p - 1):
        expected = [min(2 * m, m + 1 + r, 2 * p) for r in range(p)]
        assert peaks("zb-v", Shape(ranks=p, microbatches=m, chunks=2)) == expected


@given(ranks, st.integers(1, 4), st.integers(1, 4))
def test_interleaved_zb_peaks(p: int, groups: int, v: int) -> None:
    """p·v chunks, p whole activations, with torch's groups, where p divides m."""
    assert peaks("interleaved-zb", Shape(ranks=p, microbatches=groups * p, chunks=v)) == [p * v] * p


@given(st.integers(1, 5), more)
def test_two_way_schedules_hold_a_chunk_more_than_ranks(half: int, more: int) -> None:
    """PP + 1 chunks on every rank."""
    for name, shape, _ in two_way_shapes(2 * half, more):
        assert peaks(name, shape) == [2 * half + 1] * shape.ranks


# Published tables -----------------------------------------------------------------------------------------


@given(st.integers(2, 8), more)
def test_bubbles_and_memory_are_those_of_the_zero_bubble_readme(p: int, more: int) -> None:
    """sail-sg README, equal actions: bubble B, B/3, 0, 0 and memory 1, 1, 2, 1 of 1F1B, ZB1P, ZB2P, ZBV.

    B/3 is of the idle time: of the step, ZB1P's is (p-1)/(3m+p-1), a little above (p-1)/(3(m+p-1)). The
    zeros are of spans. ZB1P is the order of ZB-H1 at m >= 2p; ZB2P's memory is 2 - 1/p by ZB-H2.
    """
    m = 2 * p + more
    single, double = Shape(ranks=p, microbatches=m), Shape(ranks=p, microbatches=m, chunks=2)
    one_f_one_b, h1 = (timed(name, single, (2, 2, 2)).makespan for name in ("1f1b", "zb-h1"))
    assert Fraction(one_f_one_b - 6 * m, one_f_one_b) == Fraction(p - 1, m + p - 1)
    assert 3 * (h1 - 6 * m) == one_f_one_b - 6 * m
    assert Fraction(h1 - 6 * m, h1) == Fraction(p - 1, 3 * m + p - 1)
    assert timed("zb-h2", single, (2, 2, 2)).max_span == 6 * m
    assert timed("zb-v", double, (1, 1, 1)).max_span == 6 * m
    memory = max(peaks("1f1b", single))
    assert max(peaks("zb-h1", single)) == memory
    assert Fraction(max(peaks("zb-h2", single)), memory) == 2 - Fraction(1, p)
    assert Fraction(max(peaks("zb-v", double)), 2 * memory) == 1


@given(st.integers(2, 6), more)
def test_a_v_sends_twice_as_much(p: int, more: int) -> None:
    """sail-sg README: point-to-point volume of the V-shaped schedules, against one stage per rank."""
    m = 2 * p + more
    sent = {}
    for name in ("zb-h1", "zb-v"):
        schedule = get(name)
        shape = Shape(ranks=p, microbatches=m, chunks=schedule.chunks)
        programs = point_to_point(schedule.orders(shape), shape, schedule.rank_of, "async")
        sent[name] = sum(isinstance(one, MessageGroup) for program in programs for one in program)
    assert sent["zb-v"] == 2 * sent["zb-h1"]


@given(st.integers(1, 4), more, durations, st.data())
def test_bubbles_and_memory_are_those_of_the_dualpipe_readme(
    half: int, more: int, each: int, data: st.DataObject
) -> None:
    """Bubbles (PP-1)(F+B), (PP-1)(F+B-2W) of 1F1B and ZB1P, activations PP, PP, PP+1; B a whole backward.

    ZB1P is the order of ZB-H1 and needs tW <= min(tF, tB); here tF = tB as for DualPipe's own bubble.
    """
    w = data.draw(st.integers(1, each))
    stages, whole = 2 * half, each + w
    shape = Shape(ranks=stages, microbatches=2 * stages + 2 * more)
    work = shape.microbatches * (each + whole)
    for name, bubble, activations in (
        ("1f1b", (stages - 1) * (each + whole), stages),
        ("zb-h1", (stages - 1) * (each + whole - 2 * w), stages),
        ("dualpipe", (half - 1) * (2 * each + w + whole - 3 * w), stages + 1),
    ):
        assert timed(name, shape, (each, each, w)).makespan == work + bubble
        assert max(peaks(name, shape)) == activations


@pytest.mark.parametrize(("name", "percent"), [("zb-h1", 7.29), ("zb-v", 3.65)])
def test_bubbles_and_peaks_are_those_of_primus(name: str, percent: float) -> None:
    """AMD-AGI/Primus schedule replay: p = 8, m = 32, F = B = W, no latency. Its ZB is the order of ZB-H1."""
    chunks = get(name).chunks
    shape = Shape(ranks=8, microbatches=32, chunks=chunks)
    bubble = timed(name, shape, (1, 1, 1)).makespan / (32 * chunks * 3) - 1
    assert 100 * bubble == pytest.approx(percent, abs=0.005)
    assert max(peaks(name, shape)) == 8 * chunks
