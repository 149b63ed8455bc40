"""Faults that come and go within a step: whole and empty windows, closed forms, folded and expanded."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from law_examples import examples
from refusals import refused_at
from repeated_programs import assert_same_times, degraded
from small_scenarios import layouts, lowered, scenario
from struck_steps import LINKED, TWIN, assert_same, cost, with_faults

from stepsim.sim.degradation.of_faults import beginning
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.fold.partition import partition_of
from stepsim.sim.fold.programs import programs_of_classes
from stepsim.sim.fold.ranks import Degradation, ranks_of
from stepsim.sim.program.program import Programs
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

LINES = (
    "gpu_throttle gpu/9 slow_factor=1.5",
    "gpu_throttle node/1 slow_factor=1.2",
    "link_degraded rail/3 bandwidth_factor=0.5",
    "nic_down nic/3@node/2",
)
ALONE: dict[str, Any] = {"software": {"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 0.0}}}


def window(line: str, since: float, until: float) -> str:
    return f"{line} at={since!r}s duration={until - since!r}s"


# The engine ------------------------------------------------------------------------------------------------


@st.composite
def changing(draw: st.DrawFn) -> tuple[Scenario, Degradation, list[float]]:
    """A small job with two troubles, one after the other, healthy before and between or not; the edges as
    shares of the healthy step.
    """
    run, first = draw(degraded())
    rank = st.integers(0, run.world_size - 1)
    second = Degradation(slow=draw(st.dictionaries(rank, st.sampled_from([1.25, 3.0]), max_size=2)))
    states = draw(st.permutations([first, second, Degradation()]))
    edges = draw(st.lists(st.floats(0.0, 1.2), min_size=2, max_size=2, unique=True).map(sorted))
    return (
        run,
        Degradation(
            slow=states[0].slow,
            link_share=states[0].link_share,
            later=tuple(zip(edges, states[1:], strict=True)),
        ),
        edges,
    )


def programs_in_time(run: Scenario, degradation: Degradation, step_s: float) -> Programs:
    """Classes of a job whose changes come at shares of a step."""
    step = lowered(run)
    ranks = ranks_of(step)
    later = tuple((share * step_s, state) for share, state in degradation.later)
    timed = Degradation(slow=degradation.slow, link_share=degradation.link_share, later=later)
    return programs_of_classes(step.programs, ranks, partition_of(ranks, timed).rank, timed)


@pytest.mark.slow
@examples(12)
@given(changing())
def test_a_step_that_changes_is_the_same_expanded(
    drawn: tuple[Scenario, Degradation, list[float]],
) -> None:
    """No repeated blocks run through an edge unnoticed: op by op, all times are the same."""
    run, degradation, _ = drawn
    step_s = replay(folded(lowered(run)).programs).makespan_s
    assert_same_times(programs_in_time(run, degradation, step_s))


def test_the_edges_of_that_law_lie_inside_repeated_blocks() -> None:
    """It could fail: runs that do not heed edges end otherwise."""
    run = scenario(**TWIN)
    step_s = replay(folded(lowered(run)).programs).makespan_s
    degradation = Degradation(later=((0.3, Degradation(slow={9: 2.0})), (0.5, Degradation())))
    struck = replay(programs_in_time(run, degradation, step_s))
    healthy = replay(programs_in_time(run, Degradation(later=((2.0, Degradation(slow={9: 2.0})),)), step_s))
    assert struck.makespan_s > 1.05 * healthy.makespan_s


# Laws of windows -------------------------------------------------------------------------------------------


@pytest.mark.slow
@examples(12)
@given(layouts(), st.data())
def test_a_folded_step_with_a_window_is_the_unfolded_one(run: Scenario, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, run.world_size - 1))
    step_s = simulate(run, faults=()).makespan_s
    since = data.draw(st.floats(0.0, 0.95))
    length = data.draw(st.floats(0.01, 1.0))
    line = window(f"gpu_throttle rank/{rank} slow_factor=1.7", since * step_s, (since + length) * step_s)
    assert_same(cost(run, line), cost(run, line, fold=False))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "line"), [*((LINKED, line) for line in LINES), *((TWIN, line) for line in LINES[:2])]
)
def test_windows_against_the_whole_step(fields: dict[str, Any], line: str) -> None:
    run = scenario(**fields)
    always = cost(run, line)
    healthy_s, whole_s = always.healthy_step_time_s, always.step_time_s
    covering = cost(run, f"{line} duration={2 * whole_s!r}s")
    assert covering.step_time_s == pytest.approx(whole_s, rel=1e-9)
    assert covering.relations == always.relations
    tiny = cost(run, window(line, 0.4 * healthy_s, 0.4 * healthy_s + 1e-12))
    assert tiny.step_time_s == pytest.approx(healthy_s, rel=1e-9)
    starts = [
        cost(run, window(line, 0.2 * healthy_s, (0.2 + share) * healthy_s)).step_time_s
        for share in (0.05, 0.1, 0.2, 0.4, 0.7, 1.5)
    ]
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise([healthy_s, *starts]))
    assert healthy_s < starts[-1] <= whole_s * (1 + 1e-9)
    folded_, each = (cost(run, window(line, 0.3 * healthy_s, 0.6 * healthy_s), fold=f) for f in (True, False))
    assert_same(folded_, each)
    assert folded_.classes_after == always.classes_after


@pytest.mark.parametrize("factor", [1.25, 2.0, 7.0])
@pytest.mark.parametrize(("since", "share"), [(0.0, 0.3), (0.21, 0.4), (0.5, 0.499)])
def test_one_gpu_alone_loses_what_the_window_takes(factor: float, since: float, share: float) -> None:
    """In the window 1/factor of the work is done: the step is longer by length (1 - 1/factor)."""
    run = scenario(**ALONE)
    step_s = simulate(run, faults=()).step_time_s
    length_s = share * step_s
    line = window(f"gpu_throttle gpu/0 slow_factor={factor}", since * step_s, since * step_s + length_s)
    assert cost(run, line).step_time_s == pytest.approx(step_s + length_s * (1 - 1 / factor), rel=1e-9)


def test_a_window_that_the_step_ends_in() -> None:
    run = scenario(**ALONE)
    step_s = simulate(run, faults=()).step_time_s
    line = f"gpu_throttle gpu/0 slow_factor=3 at={0.75 * step_s!r}s"
    assert cost(run, line).step_time_s == pytest.approx(step_s * 1.5, rel=1e-9)


def test_a_rail_at_half_rate_for_a_while_loses_half_of_it() -> None:
    """While a ring moves, length x bandwidth_factor goes through: it ends length (1 - factor) later. The rail
    is weak before and after too, so that nothing but the rail holds the ring.
    """
    run, rail = scenario(**LINKED), "link_degraded rail/3 bandwidth_factor="
    step_s = cost(run, f"{rail}0.9").step_time_s
    for factor in (0.5, 0.25):
        found = cost(run, f"{rail}0.9", window(f"{rail}{factor}", 0.5 * step_s, 0.6 * step_s))
        assert found.step_time_s - step_s == pytest.approx((1 - factor) * 0.1 * step_s, rel=1e-6)


def test_a_link_of_a_pipeline_that_is_weak_for_a_while() -> None:
    run = scenario(**TWIN)
    lines = [window(LINES[2], 0.02, 0.07), window(LINES[0], 0.05, 0.09)]
    assert_same(cost(run, *lines), cost(run, *lines, fold=False))


def test_a_spine_that_is_lost_for_a_while() -> None:
    fabric = {"kind": "fat-tree", "nodes_per_leaf": 1, "oversubscription": 2}
    run = scenario(**{**LINKED, "dp": 32, "fabric": fabric})
    always = cost(run, "spine_switch_down spine/0")
    healthy_s = always.healthy_step_time_s
    covering = cost(run, f"spine_switch_down spine/0 duration={3 * healthy_s!r}s")
    assert covering.step_time_s == pytest.approx(always.step_time_s, rel=1e-9)
    line = window("spine_switch_down spine/0", 0.6 * healthy_s, 0.7 * healthy_s)
    found, each = cost(run, line), cost(run, line, fold=False)
    spines = 32 * 8 // 2 // 64
    assert found.step_time_s - healthy_s == pytest.approx(0.1 * healthy_s / spines, rel=1e-3)
    assert_same(found, each)


def test_several_windows_are_each_heeded() -> None:
    run = scenario(**ALONE)
    step_s = simulate(run, faults=()).step_time_s
    two = [
        window("gpu_throttle gpu/0 slow_factor=2", 0.1 * step_s, 0.3 * step_s),
        window("gpu_throttle gpu/0 slow_factor=3", 0.2 * step_s, 0.4 * step_s),
    ]
    found = cost(run, *two)  # halves, then a sixth, then a third of the speed
    lost = 0.1 * (1 - 1 / 2) + 0.1 * (1 - 1 / 6) + 0.1 * (1 - 1 / 3)
    assert found.step_time_s == pytest.approx(step_s * (1 + lost), rel=1e-9)
    assert found.without_s == pytest.approx(
        tuple(cost(run, line).step_time_s for line in two[::-1]), rel=1e-12
    )


# What is told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("gpu_throttle gpu/2 at=-1s", "at: .*-1"),
        ("gpu_throttle gpu/2 at=2", "at: "),
        ("gpu_throttle gpu/2 duration=0s", "gpu_throttle gpu/2: duration: 0 s"),
        ("gpu_throttle gpu/2 duration=-1s", "duration"),
        ("gpu_throttle gpu/2 at=1h", "gpu_throttle gpu/2: at: .*0.0"),
        ("gpu_throttle gpu/2 at_step=3", "at_step: one"),
        ("hang rank/3 at=1ms duration=1s", "hang .*duration"),
    ],
)
def test_times_that_are_none(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        simulate(scenario(**LINKED), faults=[line])


def test_a_hashed_fabric_does_not_change_its_ways_within_a_step() -> None:
    fabric = {"kind": "fat-tree", "nodes_per_leaf": 1, "ecmp": "hashed"}
    run = scenario(**{**LINKED, "dp": 32, "fabric": fabric})
    with refused_at("faults: spine_switch_down spine/0: at", "cluster.fabric.ecmp"):
        simulate(run, faults=["spine_switch_down spine/0 at=1ms"])


def test_a_file_has_windows_of_its_first_step() -> None:
    """What strikes later is for weeks."""
    early = "gpu_throttle gpu/9 slow_factor=2 at=20ms duration=50ms"
    run = with_faults(
        [early, "gpu_throttle gpu/9 slow_factor=2 at=3h duration=1h", "node_down node/0 at=5ms"]
    )
    assert len(beginning(run.faults)) == 2
    found = simulate(run).faults
    assert found is not None
    assert found.faults == ("gpu_throttle gpu/9 slow_factor=2 at=0.02s duration=0.05s",)
    assert found.step_time_s == cost(scenario(**TWIN), early).step_time_s > found.healthy_step_time_s
    assert simulate(with_faults(["gpu_throttle gpu/9 at=3h"])).faults is None


# A link that is down for a while ---------------------------------------------------------------------------


def test_a_rail_that_flaps_while_a_ring_moves_costs_its_time() -> None:
    run = scenario(**LINKED)
    healthy_s = simulate(run, faults=()).step_time_s
    line = window("link_flap rail/3", 0.6 * healthy_s, 0.9 * healthy_s)
    found = cost(run, line)
    assert found.step_time_s == pytest.approx(1.3 * healthy_s, rel=1e-9)
    assert_same(found, cost(run, line, fold=False))
    one = cost(run, window("link_flap nic/3@node/2", 0.6 * healthy_s, 0.9 * healthy_s))
    assert one.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)


def test_a_flap_from_the_start_lasts_as_long_as_flaps_do() -> None:
    """10 s, unless it says otherwise."""
    found = cost(scenario(**LINKED), "link_flap rail/3")
    assert 10.0 < found.step_time_s < 10.0 + found.healthy_step_time_s


@pytest.mark.slow
@examples(15)
@given(layouts(), st.data())
def test_a_flap_is_the_same_expanded_and_folded(run: Scenario, data: st.DataObject) -> None:
    step_s = replay(folded(lowered(run)).programs).makespan_s
    rank = data.draw(st.integers(0, run.world_size - 1))
    since, until = sorted(data.draw(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.5))))
    down = Degradation(link_share={(rank, "nic.out"): 0.0, (rank, "nic.in"): 0.0})
    degradation = Degradation(later=((since, down), (until + 0.01, Degradation())))
    assert_same_times(programs_in_time(run, degradation, step_s))


def test_a_flap_that_no_transport_waits_for() -> None:
    with pytest.raises(ValueError, match="link_flap rail/3:"):
        simulate(scenario(**LINKED), faults=["link_flap rail/3 duration=40s"])
