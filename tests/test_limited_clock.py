"""Clocks at other power limits: the same at the same watts, and never down faster than the watts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepsim
from stepsim.hardware.calibrated.overlay import load_profile, profile_for
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.limited_clock import MEMORY_BUSY_W, clock_at, clock_carried
from stepsim.sim.scenario.machine import gpu_of

fractions = st.floats(0.5, 1.0)
shares = st.floats(0.1, 2.0)
bounds = st.floats(0.0, 1.0)


def sustained(fraction: float, share: float, most: float) -> float:
    """The clock itself, over the one that the measured limit leaves GEMMs."""
    return clock_at(fraction, share, most) * share ** (1 / 3)


@given(fractions, bounds)
def test_the_measured_limit_has_the_measured_clock(fraction: float, most: float) -> None:
    assert clock_at(fraction, 1.0, most) == pytest.approx(fraction)


@given(shares, bounds)
def test_products_that_take_all_watts_go_as_the_cube(share: float, most: float) -> None:
    assert clock_at(1.0, share, most) == pytest.approx(1.0)


@given(fractions, shares)
def test_a_fraction_of_which_nothing_is_watts_stays(fraction: float, share: float) -> None:
    assert clock_at(fraction, share, 0.0) == pytest.approx(fraction)


@given(fractions, st.floats(0.1, 0.99), bounds, bounds)
def test_the_fewer_watts_do_not_follow_the_clock_the_more_is_left_of_it(
    fraction: float, share: float, one: float, other: float
) -> None:
    fewer, more = sorted((one, other))
    assert clock_at(fraction, share, fewer) >= clock_at(fraction, share, more) - 1e-12


@given(fractions, shares, st.floats(1.001, 2.0), bounds)
def test_more_watts_give_more_clock_but_no_more_than_they_are(
    fraction: float, share: float, times: float, most: float
) -> None:
    gained = sustained(fraction, times * share, most) / sustained(fraction, share, most)
    assert 1.0 < gained < times * (1 + 1e-9)
    assert gained >= times ** (1 / 3) * (1 - 1e-9)  # what does not follow the clock makes it steeper


def test_a_limit_that_is_set_gives_the_clock_of_the_part_that_is_sold_with_it() -> None:
    h100, capped = get_gpu("H100-SXM5-80GB"), get_gpu("H100-SXM-HBM2e-96GB-500W")
    fraction = load_profile(h100.name).clock_fraction
    job = stepsim.load_scenario("llama3-8b-h100").with_({"cluster.power.limit": "500 W"})
    assert profile_for(gpu_of(job.cluster)).clock_fraction == clock_carried(fraction, h100, capped)
    assert clock_carried(fraction, h100, capped) < fraction
    assert load_profile(capped.name).clock_fraction == round(clock_carried(fraction, h100, capped), 2)


def test_a_busy_memory_bounds_what_does_not_follow_the_clock() -> None:
    """The steps of H100 would have 229 W of it; an H200 whose memory is saturated draws 183 above idle."""
    h100, capped = get_gpu("H100-SXM5-80GB"), get_gpu("H100-SXM-HBM2e-96GB-500W")
    left_w, busy_w = h100.tdp_w - h100.idle_w, MEMORY_BUSY_W[h100.architecture] - h100.idle_w
    assert busy_w < (1 - 0.86**3) * left_w
    by_watts = ((capped.tdp_w - capped.idle_w - busy_w) / (left_w - busy_w)) ** (1 / 3)
    alone = ((capped.tdp_w - capped.idle_w) / left_w) ** (1 / 3)
    assert clock_carried(0.86, h100, capped) == pytest.approx(0.86 * by_watts / alone)
    assert clock_carried(0.97, h100, capped) == pytest.approx(clock_at(0.97, alone**3))


def test_another_chip_keeps_the_fraction() -> None:
    h100 = get_gpu("H100-SXM5-80GB")
    assert clock_carried(0.86, h100, get_gpu("H20-96GB")) == 0.86
    assert clock_carried(0.86, h100, get_gpu("H200-SXM-141GB")) == 0.86
    assert clock_carried(0.86, h100, get_gpu("MI300X")) == 0.86
