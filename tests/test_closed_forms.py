"""Closed forms of the schedules with whole backwards: makespans, latencies, peaks, published bubbles.

Times are per chunk: ``f`` a forward, ``bf`` a whole backward, ``c`` the latency of a message. The fill is
what a step of m microbatches takes beyond its work. Those with split backwards are in
test_closed_forms_zero_bubble.py.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepsim.schedules.orders.in_flight import peak_activations
from stepsim.schedules.orders.schedule import Costs, Shape
from stepsim.schedules.orders.timeline import Timeline, timeline
from stepsim.schedules.pipeline import get

durations = st.integers(1, 40)
ranks, microbatches = st.integers(1, 9), st.integers(1, 24)


def timed(name: str, shape: Shape, f: int, bf: int, c: int = 0) -> Timeline:
    costs = Costs(forward=f, input_grad=bf, weight_grad=0, latency=c)
    return timeline(get(name).orders(shape), shape, costs)


def makespan(name: str, shape: Shape, f: int, bf: int, c: int = 0) -> int:
    return timed(name, shape, f, bf, c).makespan


# Makespans ------------------------------------------------------------------------------------------------


@given(ranks, microbatches, durations, durations, st.integers(0, 100))
def test_gpipe_makespan(p: int, m: int, f: int, bf: int, c: int) -> None:
    """Huang 2019, section 2.3; with latency exact for any c."""
    expected = (m + p - 1) * (f + bf) + 2 * c * (p - 1)
    assert makespan("gpipe", Shape(ranks=p, microbatches=m), f, bf, c) == expected


@given(ranks, microbatches, durations, durations, st.integers(0, 100))
def test_1f1b_makespan(p: int, m: int, f: int, bf: int, c: int) -> None:
    """Narayanan 2021, section 2.2.1; asynchronous latency is never hidden, for any c and m."""
    messages = 2 * (m + p - 2 - (m + p - 2) // p)
    assert makespan("1f1b", Shape(ranks=p, microbatches=m), f, bf, c) == (m + p - 1) * (f + bf) + messages * c


@given(ranks, microbatches, durations, durations)
def test_no_rank_of_1f1b_spans_less_than_the_step(p: int, m: int, f: int, bf: int) -> None:
    """Rank 0 begins first and ends last, so that span and makespan are one."""
    timing = timed("1f1b", Shape(ranks=p, microbatches=m), f, bf)
    assert timing.max_span == timing.makespan


@given(st.integers(2, 7), st.integers(1, 4), st.integers(2, 4), durations, durations, st.data())
def test_interleaved_makespan(p: int, groups: int, v: int, f: int, bf: int, data: st.DataObject) -> None:
    """Narayanan 2021, section 2.2.2; latency is hidden after the first fill, up to the time of a chunk."""
    c = data.draw(st.integers(0, min(f, bf)))
    shape = Shape(ranks=p, microbatches=groups * p, chunks=v)
    expected = (shape.microbatches * v + p - 1) * (f + bf) + 2 * c * (p * v - 1)
    assert makespan("interleaved", shape, f, bf, c) == expected


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 4), durations, durations, st.data())
def test_interleaved_makespan_does_not_depend_on_the_group(
    p: int, groups: int, v: int, f: int, bf: int, data: st.DataObject
) -> None:
    """Without latency, for any group size of Megatron's (m mod N is 0 or at least p); p divides m."""
    m = groups * p
    legal = [group for group in range(p, m + 1) if m % group == 0 or m % group >= p]
    shape = Shape(ranks=p, microbatches=m, chunks=v, group=data.draw(st.sampled_from(legal)))
    assert makespan("interleaved", shape, f, bf) == (m * v + p - 1) * (f + bf)


@given(st.integers(2, 7), st.integers(1, 20), st.integers(1, 4), durations, durations, st.integers(0, 100))
def test_looped_bfs_makespan(p: int, m: int, v: int, f: int, bf: int, c: int) -> None:
    """Exact for any c: a chunk waits p latencies for the one before it, less m - p of its actions."""
    waits = max(0, p * c - (m - p) * f) + max(0, p * c - (m - p) * bf)
    expected = (m * v + p - 1) * (f + bf) + 2 * c * (p - 1) + (v - 1) * waits
    assert makespan("looped-bfs", Shape(ranks=p, microbatches=m, chunks=v), f, bf, c) == expected


@given(st.integers(1, 7), st.data(), st.integers(1, 4), durations, durations)
def test_looped_bfs_makespan_of_few_microbatches(
    p: int, data: st.DataObject, v: int, f: int, bf: int
) -> None:
    """m <= p: the first microbatch passes all stages without rest, up and down, and the others follow it."""
    m = data.draw(st.integers(1, p))
    expected = (p * v + m - 1) * (f + bf)
    assert makespan("looped-bfs", Shape(ranks=p, microbatches=m, chunks=v), f, bf) == expected


@given(ranks, microbatches, durations, durations)
def test_pipedream_fills_once_and_has_no_bubble_after(p: int, m: int, f: int, bf: int) -> None:
    """Narayanan 2019, section 3.2: rank r begins after r forwards, and from its first backward to its last
    forward it never rests. What follows drains, because the stream here ends."""
    for rank, row in enumerate(timed("pipedream", Shape(ranks=p, microbatches=m), f, bf).ranks):
        assert row[0].begin == rank * f
        steady = row[p - rank : 2 * m - (p - 1 - rank)] if m >= p - rank else row[m:m]
        assert all(one.end == other.begin for one, other in pairwise(steady))


# Latency per period: section 5.3 (a) ----------------------------------------------------------------------


@given(st.integers(2, 8), st.integers(1, 16), durations, durations, st.integers(0, 100))
def test_1f1b_pays_its_latency_in_every_period(p: int, m: int, f: int, bf: int, c: int) -> None:
    """p more microbatches take p(f + bf) + 2c(p-1) more, for any c."""
    shorter, longer = (makespan("1f1b", Shape(ranks=p, microbatches=n), f, bf, c) for n in (m, m + p))
    assert longer - shorter == p * (f + bf) + 2 * c * (p - 1)


@given(st.integers(2, 6), st.integers(1, 4), st.integers(2, 4), durations, durations, st.data())
def test_interleaved_hides_its_latency_in_every_period(
    p: int, groups: int, v: int, f: int, bf: int, data: st.DataObject
) -> None:
    """p more microbatches take their work more, for c up to the time of a chunk."""
    c = data.draw(st.integers(0, min(f, bf)))
    shorter, longer = (
        makespan("interleaved", Shape(ranks=p, microbatches=n * p, chunks=v), f, bf, c)
        for n in (groups, groups + 1)
    )
    assert longer - shorter == p * v * (f + bf)


# Bubbles: section 5.3 (b) ---------------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(1, 6), st.integers(2, 4), durations, durations)
def test_bubble_fractions_are_the_papers(p: int, groups: int, v: int, f: int, bf: int) -> None:
    """(p-1)/m of the ideal time, (p-1)/(m+p-1) of the step; interleaved (p-1)/(vm), where p divides m."""
    m = groups * p
    ideal = m * v * (f + bf)
    for name in ("gpipe", "1f1b"):
        step = makespan(name, Shape(ranks=p, microbatches=m), v * f, v * bf)
        assert (step - ideal) * m == (p - 1) * ideal
        assert (step - ideal) * (m + p - 1) == (p - 1) * step
    if p > 1:
        step = makespan("interleaved", Shape(ranks=p, microbatches=m, chunks=v), f, bf)
        assert (step - ideal) * v * m == (p - 1) * ideal


@pytest.mark.parametrize(
    ("name", "chunks", "percent", "activations"), [("1f1b", 1, 21.88, 8), ("interleaved", 2, 10.94, 11.5)]
)
def test_bubbles_and_peaks_are_those_of_primus(
    name: str, chunks: int, percent: float, activations: float
) -> None:
    """AMD-AGI/Primus schedule replay: p = 8, m = 32, F = B = W, no latency; activations of whole stages."""
    shape = Shape(ranks=8, microbatches=32, chunks=chunks)
    bubble = makespan(name, shape, 1, 2) / (32 * chunks * 3) - 1
    assert 100 * bubble == pytest.approx(percent, abs=0.005)
    assert max(peak_activations(get(name).orders(shape))) / chunks == activations


# Peaks: section 5.2 ---------------------------------------------------------------------------------------


def peaks(name: str, shape: Shape) -> list[int]:
    return list(peak_activations(get(name).orders(shape)))


@given(ranks, microbatches, st.integers(1, 4))
def test_peak_activations_are_the_closed_forms(p: int, m: int, v: int) -> None:
    """m; min(p-r, m), in PipeDream too; m·v chunks."""
    shape, chunked = Shape(ranks=p, microbatches=m), Shape(ranks=p, microbatches=m, chunks=v)
    assert peaks("gpipe", shape) == [m] * p
    assert peaks("1f1b", shape) == peaks("pipedream", shape) == [min(p - r, m) for r in range(p)]
    assert peaks("looped-bfs", chunked) == [m * v] * p


@given(st.integers(2, 8), st.integers(1, 4), st.integers(2, 4), st.integers(0, 9))
def test_interleaved_peaks(p: int, groups: int, v: int, more: int) -> None:
    """min(2(p-1-r) + (v-1)N + 1, m·v) chunks; N divides m."""
    size = p + more
    shape = Shape(ranks=p, microbatches=groups * size, chunks=v, group=size)
    expected = [min(2 * (p - 1 - r) + (v - 1) * size + 1, groups * size * v) for r in range(p)]
    assert peaks("interleaved", shape) == expected
