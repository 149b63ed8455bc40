"""Schedules replayed by the engine show the published closed forms (uniform stages)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.bare import ActionTimes, bare_programs

from stepsim.schedules.orders.schedule import Shape
from stepsim.schedules.pipeline import get
from stepsim.sim.engine.accounting import rank_time
from stepsim.sim.engine.replay import replay

times = st.floats(0.1, 10.0)


def makespan(
    name: str, shape: Shape, forward_s: float, backward_s: float, latency_s: float = 0.0, rule: str = "async"
) -> float:
    """The gradient of a whole backward leaves at its end: how it divides does not matter."""
    times = ActionTimes(forward_s=forward_s, input_grad_s=backward_s, weight_grad_s=0.0, latency_s=latency_s)
    return replay(bare_programs(get(name), shape, times, rule)).makespan_s


@given(st.integers(2, 8), st.integers(1, 20), times, times, st.floats(0, 3))
def test_gpipe_takes_the_closed_form(p: int, m: int, f: float, b: float, c: float) -> None:
    """Huang 2018; any latency."""
    expected = (m + p - 1) * (f + b) + 2 * c * (p - 1)
    assert makespan("gpipe", Shape(ranks=p, microbatches=m), f, b, c) == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 8), st.integers(1, 20), times, times, st.floats(0, 3))
def test_1f1b_takes_the_closed_form(p: int, m: int, f: float, b: float, c: float) -> None:
    """Narayanan 2021; the latency term of an asynchronous 1F1B, any latency and any m."""
    hops = m + p - 2 - (m + p - 2) // p
    expected = (m + p - 1) * (f + b) + 2 * c * hops
    assert makespan("1f1b", Shape(ranks=p, microbatches=m), f, b, c) == pytest.approx(expected, rel=1e-9)


@given(st.integers(3, 8), st.integers(2, 20), times, times)
def test_blocking_1f1b_pays_more_latencies(p: int, m: int, f: float, b: float) -> None:
    """Blocking exchanges pay 2m + 2p - 5 latencies, for latencies small against the kernels."""
    c = 1e-3 * min(f, b)
    expected = (m + p - 1) * (f + b) + c * (2 * m + 2 * p - 5)
    assert makespan("1f1b", Shape(ranks=p, microbatches=m), f, b, c, "blocking") == pytest.approx(
        expected, rel=1e-9
    )


@pytest.mark.slow
@given(st.integers(2, 8), st.integers(1, 5), st.integers(2, 4), times, times, st.floats(0, 1))
def test_interleaved_takes_the_closed_form(p: int, groups: int, v: int, f: float, b: float, c: float) -> None:
    """Times are per chunk. The latency term needs c no larger than a chunk's time; m is a multiple of p."""
    c *= min(f, b)
    m = groups * p
    expected = (m * v + p - 1) * (f + b) + 2 * c * (p * v - 1)
    shape = Shape(ranks=p, microbatches=m, chunks=v)
    assert makespan("interleaved", shape, f, b, c) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", 1), ("1f1b", 1), ("interleaved", 3)])
def test_bubble_fraction_of_the_replay_is_the_closed_form(name: str, chunks: int) -> None:
    """(p - 1) / (v m) of the ideal time, on every rank."""
    shape = Shape(ranks=8, microbatches=64, chunks=chunks)
    record = replay(
        bare_programs(get(name), shape, ActionTimes(forward_s=0.7, input_grad_s=0.7, weight_grad_s=0.6))
    )
    for rank in range(8):
        time = rank_time(record, rank)
        assert math.isclose(time.bubble_s / time.busy_s, 7 / (chunks * 64), rel_tol=1e-9)
