"""Solving only what a change reaches gives every flow the end that solving all gives."""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples

from stepsim.sim.engine import flows as engine_flows
from stepsim.sim.engine import repaired_rates
from stepsim.sim.engine.clock import Clock
from stepsim.sim.engine.flows import Flows
from stepsim.sim.engine.occupancy import Occupancy
from stepsim.sim.engine.signal import Signal
from stepsim.sim.network.sharing import Demand

Start = tuple[float, float, Demand]


@st.composite
def starts(draw: st.DrawFn) -> tuple[list[Start], dict[Hashable, float]]:
    """(time, bytes, demand) of flows over a few links."""
    capacity: dict[Hashable, float] = {
        f"link {i}": float(draw(st.integers(1, 20))) for i in range(draw(st.integers(1, 6)))
    }
    found = []
    for _ in range(draw(st.integers(1, 25))):
        used = draw(
            st.lists(st.sampled_from(sorted(map(str, capacity))), unique=True, min_size=1, max_size=3)
        )
        pairs = tuple((link, draw(st.sampled_from([0.5, 1.0, 1.5]))) for link in used)
        demand = Demand(draw(st.sampled_from([1.0, 3.0, 7.0, math.inf])), pairs)
        found.append((float(draw(st.integers(0, 9))), float(draw(st.integers(1, 60))), demand))
    return found, capacity


def ends(begun: list[Start], capacity: dict[Hashable, float]) -> list[float]:
    return replayed(begun, capacity)[0]


def replayed(begun: list[Start], capacity: dict[Hashable, float]) -> tuple[list[float], Flows]:
    """When each flow ends, and the flows themselves, which know what held them."""
    env, found = Clock(), [math.nan] * len(begun)
    flows = Flows(env, dict(capacity))

    def ended(i: int) -> None:
        found[i] = env.time

    def start(size: float, demand: Demand, done: Signal, _: object) -> None:
        flows.start(size, demand, done)

    for i, (at, size, demand) in enumerate(begun):
        done = Signal()
        done.then(partial(ended, i))
        env.call(at, partial(start, size, demand, done))
    env.run_to_end()
    return found, flows


@examples(20)
@given(starts())
def test_repaired_flows_end_when_all_solved_anew_do(case: tuple[list[Start], dict[Hashable, float]]) -> None:
    """Whether repair finds them, gives up after its first round, or is not asked."""
    found = []
    for many, rounds in ((1, repaired_rates.MOST_ROUNDS), (1, 1), (math.inf, 0)):
        with pytest.MonkeyPatch.context() as patch:
            component = engine_flows.Occupancy.component
            patch.setattr(component, "__defaults__", (many,))
            patch.setattr(repaired_rates, "MOST_ROUNDS", rounds)
            found.append(ends(*case))
    assert not any(map(math.isnan, found[0]))
    assert found[0] == pytest.approx(found[2], rel=1e-9)
    assert found[1] == pytest.approx(found[2], rel=1e-9)


@pytest.mark.parametrize("many", [1, math.inf])
def test_of_two_full_links_that_holds_a_flow_where_others_have_least(
    many: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the first link for it and another; of the second what one leaves that can be no faster."""
    monkeypatch.setattr(engine_flows.Occupancy.component, "__defaults__", (many,))
    both = Demand(math.inf, (("first", 1.0), ("second", 1.0)))
    half, slow = Demand(math.inf, (("first", 1.0),)), Demand(3.0, (("second", 1.0),))
    begun = [(0.0, 50.0, both), (0.0, 50.0, half), (0.0, 30.0, slow)]
    found, flows = replayed(begun, {"first": 10.0, "second": 8.0})
    assert found == pytest.approx([10.0, 10.0, 10.0])
    assert flows.slowed.sums.keys() == {(id(both), "second"), (id(half), "first")}


def test_who_else_may_slow_a_flow_is_asked_anew_when_links_change() -> None:
    """A flow from rank 0 to rank 1 is rank 0's alone to slow, until its link there becomes the slower one."""
    flows = Flows(Clock(), {(0, "nic.out"): 10.0, (1, "nic.in"): 10.0})
    demand = Demand(math.inf, (((0, "nic.out"), 1.0), ((1, "nic.in"), 1.0)))
    flows.start(100.0, demand, Signal())
    assert list((flows.beside(0, {"nic.out": 10.0}, steady=True) or {}).values()) == [demand]
    flows.change({(1, "nic.in"): 5.0})
    assert flows.beside(0, {"nic.out": 10.0}, steady=True) is None


def test_a_flow_that_weighs_more_elsewhere_is_not_its_ranks_alone_to_slow() -> None:
    """Its share of a link here goes by what it puts on its busiest, which a rank by itself does not see."""
    flows = Flows(Clock(), {(0, "nic.out"): 10.0, (1, "nic.in"): 100.0})
    weights = (((0, "nic.out"), 1.0), ((1, "nic.in"), 1.5))
    flows.start(100.0, Demand(math.inf, weights), Signal())
    assert flows.beside(0, {"nic.out": 10.0}, steady=True) is None


def test_a_search_for_connected_flows_ends_where_they_are_too_many() -> None:
    """Three flows hang together over two links that can be full, a fourth is by itself. A search that meets
    one of those that were too many ends with it."""
    capacity: dict[Hashable, float] = {"a": 1.0, "b": 1.0, "c": 9.0}
    links = [("a",), ("a", "b"), ("b",), ("c",)]
    demands = {k: Demand(1.0, tuple((link, 1.0) for link in used)) for k, used in enumerate(links)}
    occupancy = Occupancy(capacity)
    for number, demand in demands.items():
        occupancy.put(number, demand, 1.0)
    large: set[int] = set()
    assert [*(occupancy.component(0, demands, large, many=3) or ())] == [0, 1, 2]
    assert large == set()
    assert occupancy.component(0, demands, large, many=2) is None
    assert large == {0, 1, 2}
    assert occupancy.component(2, demands, large, many=3) is None
    assert [*(occupancy.component(3, demands, large, many=2) or ())] == [3]
