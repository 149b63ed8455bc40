"""Weighted max-min sharing: its laws, a linear-programming oracle, and the textbook's special cases."""

from __future__ import annotations

import math
from collections.abc import Hashable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from stepsim.sim.network import sharing
from stepsim.sim.network.sharing import FEW, Demand, max_min_rates

Case = tuple[list[Demand], dict[Hashable, float]]

weights = st.sampled_from([0.25, 0.5, 1.0, 1.5, 2.0])


@st.composite
def cases(draw: st.DrawFn, most: int = 7) -> Case:
    """Activities on a few links; each has a finite ceiling or a link."""
    names = [f"link {i}" for i in range(draw(st.integers(1, 5)))]
    capacity: dict[Hashable, float] = {name: float(draw(st.integers(1, 40))) for name in names}
    demands = []
    for _ in range(draw(st.integers(1, most))):
        used = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names)))
        ceiling = float(draw(st.integers(1, 40))) if draw(st.booleans()) or not used else math.inf
        demands.append(Demand(ceiling, tuple((name, draw(weights)) for name in used)))
    return demands, capacity


def levels(demands: list[Demand], rates: list[float]) -> list[float]:
    """What is made fair: bytes per second on the busiest link."""
    return [rate * demand.heaviest for rate, demand in zip(rates, demands, strict=True)]


def load(demands: list[Demand], rates: list[float], link: Hashable) -> float:
    return sum(x * w for d, x in zip(demands, rates, strict=True) for name, w in d.weights if name == link)


# Laws ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(cases(most=90))
def test_rates_are_feasible_and_each_has_a_bottleneck(case: Case) -> None:
    """A ceiling, or a full link on which nobody has a higher level. That alone makes the rates unique."""
    demands, capacity = case
    rates = max_min_rates(demands, capacity)
    level = levels(demands, rates)
    for link, most in capacity.items():
        assert load(demands, rates, link) <= most * (1 + 1e-9)
    for i, demand in enumerate(demands):
        if rates[i] == pytest.approx(demand.ceiling, rel=1e-9):
            continue
        assert any(
            load(demands, rates, link) == pytest.approx(capacity[link], rel=1e-9)
            and all(
                level[i] >= level[j] * (1 - 1e-9)
                for j, other in enumerate(demands)
                if any(name == link for name, _ in other.weights)
            )
            for link, _ in demand.weights
        )


@pytest.mark.slow
@given(cases(most=90), st.randoms(use_true_random=False))
def test_rates_do_not_depend_on_order(case: Case, random: Random) -> None:
    demands, capacity = case
    order = list(range(len(demands)))
    random.shuffle(order)
    shuffled = max_min_rates([demands[i] for i in order], capacity)
    rates = max_min_rates(demands, capacity)
    assert shuffled == pytest.approx([rates[i] for i in order], rel=1e-9)


@given(cases(most=30))
def test_arrays_and_plain_python_agree_to_the_last_bit(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for few in (1000, 1):
            patch.setattr(sharing, "FEW", few)
            found.append(max_min_rates(*case))
    assert found[0] == found[1]


@given(cases())
def test_many_and_few_are_shared_alike(case: Case) -> None:
    """Over arrays or not: copies of a case on links of their own, more than plain Python takes."""
    demands, capacity = case
    copies = FEW // len(demands) + 1
    many = [
        Demand(d.ceiling, tuple((f"{c} {link}", w) for link, w in d.weights))
        for c in range(copies)
        for d in demands
    ]
    links: dict[Hashable, float] = {
        f"{c} {link}": rate for c in range(copies) for link, rate in capacity.items()
    }
    assert len(many) > FEW
    assert max_min_rates(many, links) == pytest.approx(max_min_rates(demands, capacity) * copies, rel=1e-9)


# Against linear programming -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(cases())
def test_rates_are_those_of_linear_programming(case: Case) -> None:
    """Raise the lowest level as far as it goes, fix who cannot go higher, and go on with the others."""
    demands, capacity = case
    assert levels(demands, max_min_rates(demands, capacity)) == pytest.approx(_by_programs(case), rel=1e-6)


def _by_programs(case: Case) -> list[float]:
    demands, capacity = case
    n, links = len(demands), list(capacity)
    a = np.array([[dict(d.weights).get(link, 0.0) / d.heaviest for d in demands] for link in links])
    b = np.array([capacity[link] for link in links])
    ceilings = [d.ceiling * d.heaviest for d in demands]
    fixed: dict[int, float] = {}
    while len(fixed) < n:
        open_ = [i for i in range(n) if i not in fixed]
        bounds = [(fixed.get(i, 0.0), fixed.get(i, ceilings[i])) for i in range(n)]
        lowest = _highest(a, b, bounds, open_, None)
        stuck = [i for i in open_ if _highest(a, b, bounds, open_, (i, lowest)) <= lowest * (1 + 1e-7)]
        assert stuck
        fixed |= dict.fromkeys(stuck, lowest)
    return [fixed[i] for i in range(n)]


def _highest(
    a: np.ndarray,
    b: np.ndarray,
    bounds: list[tuple[float, float]],
    open_: list[int],
    one: tuple[int, float] | None,
) -> float:
    """The highest common level of the open ones; or of one of them while the others have a given level."""
    n = a.shape[1]
    cost = np.zeros(n + 1)
    cost[n if one is None else one[0]] = -1.0
    rows, right = [np.append(row, 0.0) for row in a], list(b)
    for i in open_:
        row = np.zeros(n + 1)
        row[i], row[n] = -1.0, 1.0
        rows.append(row)
        right.append(0.0)
    least = (0.0, None) if one is None else (one[1], one[1])
    limits = [(low, None if math.isinf(high) else high) for low, high in bounds] + [least]
    solved = linprog(cost, A_ub=np.array(rows), b_ub=np.array(right), bounds=limits)
    assert solved.success
    return float(-solved.fun)


# Special cases ------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.floats(1.0, 100.0))
def test_flows_on_one_network_card_share_it_equally(count: int, rate: float) -> None:
    nic = [Demand(math.inf, (("nic", 1.0),))] * count
    assert max_min_rates(nic, {"nic": rate}) == pytest.approx([rate / count] * count)


@given(st.integers(2, 32))
def test_an_incast_is_bound_by_its_receiver(senders: int) -> None:
    """Each sender has a card of its own; what they send to one receiver shares that receiver's."""
    demands = [Demand(math.inf, ((f"out {i}", 1.0), ("in", 1.0))) for i in range(senders)]
    capacity: dict[Hashable, float] = {"in": 10.0, **{f"out {i}": 10.0 for i in range(senders)}}
    assert max_min_rates(demands, capacity) == pytest.approx([10.0 / senders] * senders)


@given(st.integers(2, 8), st.floats(1.0, 4.0))
def test_rings_over_an_oversubscribed_spine_slow_down_alike(rings: int, oversubscription: float) -> None:
    """Rings of hosts with a card each, whose uplinks together carry a share of the cards' rate."""
    uplink = rings * 10.0 / oversubscription
    demands = [Demand(math.inf, ((f"nic {i}", 1.0), ("uplink", 1.0))) for i in range(rings)]
    capacity: dict[Hashable, float] = {"uplink": uplink, **{f"nic {i}": 10.0 for i in range(rings)}}
    assert max_min_rates(demands, capacity) == pytest.approx([10.0 / oversubscription] * rings)


def test_a_send_crossing_an_all_gather_gets_its_fair_share_of_bytes() -> None:
    """The all-gather puts 7/8 of a byte on the link per payload byte: fair are bytes, not payloads."""
    send, gather = Demand(math.inf, (("nic", 1.0),)), Demand(math.inf, (("nic", 7 / 8),))
    assert max_min_rates([send, gather], {"nic": 40.0}) == pytest.approx([20.0, 20.0 / (7 / 8)])


def test_what_one_leaves_others_take() -> None:
    """A ceiling below the fair share frees the rest."""
    demands = [Demand(2.0, (("nic", 1.0),)), *[Demand(math.inf, (("nic", 1.0),))] * 2]
    assert max_min_rates(demands, {"nic": 12.0}) == pytest.approx([2.0, 5.0, 5.0])
