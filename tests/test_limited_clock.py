"""Clocks at other power limits: the same at the same watts, and never down faster than the watts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepsim
from stepsim.hardware.calibrated.overlay import load_profile, profile_for
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.limited_clock import clock_at, clock_carried
from stepsim.sim.scenario.machine import gpu_of

fractions = st.floats(0.5, 1.0)
shares = st.floats(0.1, 2.0)


def sustained(fraction: float, share: float) -> float:
    """The clock itself, over the one that the measured limit leaves products."""
    return clock_at(fraction, share) * share ** (1 / 3)


@given(fractions)
def test_the_measured_limit_has_the_measured_clock(fraction: float) -> None:
    assert clock_at(fraction, 1.0) == pytest.approx(fraction)


@given(shares)
def test_products_that_take_all_watts_go_as_the_cube(share: float) -> None:
    assert clock_at(1.0, share) == pytest.approx(1.0)


@given(fractions, shares, st.floats(1.001, 2.0))
def test_more_watts_give_more_clock_but_no_more_than_they_are(
    fraction: float, share: float, times: float
) -> None:
    gained = sustained(fraction, times * share) / sustained(fraction, share)
    assert 1.0 < gained < times * (1 + 1e-9)
    assert gained >= times ** (1 / 3) * (1 - 1e-9)  # what does not follow the clock makes it steeper


def test_a_limit_that_is_set_gives_the_clock_of_the_part_that_is_sold_with_it() -> None:
    h100, capped = get_gpu("H100-SXM5-80GB"), get_gpu("H100-SXM-HBM2e-96GB-500W")
    fraction = load_profile(h100.name).clock_fraction
    job = stepsim.load_scenario("llama3-8b-h100").with_({"cluster.power.limit": "500 W"})
    assert profile_for(gpu_of(job.cluster)).clock_fraction == clock_carried(fraction, h100, capped)
    assert clock_carried(fraction, h100, capped) < fraction
    assert load_profile(capped.name).clock_fraction == round(clock_carried(fraction, h100, capped), 2)


def test_another_chip_keeps_the_fraction() -> None:
    h100 = get_gpu("H100-SXM5-80GB")
    assert clock_carried(0.86, h100, get_gpu("H20-96GB")) == 0.86
    assert clock_carried(0.86, h100, get_gpu("H200-SXM-141GB")) == 0.86
    assert clock_carried(0.86, h100, get_gpu("MI300X")) == 0.86
