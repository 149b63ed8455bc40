"""A step shortened by the last turns before two cuts is the step: every preset, schedule and sharding."""

from __future__ import annotations

from array import array
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from law_examples import examples
from small_scenarios import BARE_HOST, presets_for, scenario

from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.schedules.orders.action import Action
from stepsim.sim.brief.pace import ActionPaces, periods_until_paced
from stepsim.sim.brief.search import Search
from stepsim.sim.brief.steady import Extended, of_length, shortened
from stepsim.sim.brief.steady_turns import Turns, fewest_microbatches, period_of_turns, turns_of
from stepsim.sim.engine.record import Record
from stepsim.sim.engine.replay import replay
from stepsim.sim.fold.fold import folded
from stepsim.sim.lowering.lower import lower, make_plan
from stepsim.sim.lowering.plan import StepPlan
from stepsim.sim.read_record import path_of
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.refusal import NotSupported
from stepsim.sim.simulate import build_cluster

BASE: dict[str, Any] = {"gpu": "H100-SXM5-80GB", "interconnect": "ib-ndr400-x8", "num_attention_heads": 8}

BARE = {"preset": "nemo-2025", "host": BARE_HOST}
"""With the preset's own, hosts of these small models would be behind from the first microbatch on."""


def _record(run: Scenario) -> Record:
    return replay(folded(lower(run, build_cluster(run))).programs)


def _shortened(run: Scenario) -> Extended[Record]:
    return shortened(run, _record, lambda one: one)


@st.composite
def long_steps(draw: st.DrawFn) -> Scenario:
    """Steps with more microbatches than their pipelines need to become steady, bound by GPUs or by hosts."""
    pp = draw(st.sampled_from([1, 2, 4]), label="pp")
    schedule = draw(st.sampled_from(["1f1b", "interleaved"]), label="schedule") if pp > 1 else "none"
    vpp = draw(st.sampled_from([2, 4]), label="vpp") if schedule == "interleaved" else 1
    grouped = draw(st.integers(4, 12), label="groups") * pp
    fields: dict[str, Any] = {
        "pp": pp,
        "vpp": vpp,
        "schedule": schedule,
        "microbatches": grouped if schedule == "interleaved" else grouped + draw(st.integers(0, pp - 1)),
        "tp": draw(st.sampled_from([1, 2]), label="tp"),
        "cp": draw(st.sampled_from([1, 2]), label="cp"),
        "dp": draw(st.sampled_from([1, 2, 4]), label="dp"),
        "zero": draw(st.sampled_from([0, 1, 2, 3]), label="zero"),
        "num_layers": pp * vpp * draw(st.sampled_from([1, 2]), label="layers"),
        "hidden_size": draw(st.sampled_from([256, 1024, 4096]), label="hidden"),
        "seq_length": draw(st.sampled_from([128, 1024]), label="sequence"),
        "gpus_per_node": draw(st.sampled_from([2, 8]), label="node"),
        "recompute": draw(st.sampled_from(["none", "full"]), label="recompute"),
        "software": draw(st.sampled_from(presets_for("H100-SXM5-80GB")), label="software"),
    }
    try:
        return scenario(**BASE | fields)
    except ScenarioError:
        assume(False)
        raise


@pytest.mark.slow
@examples(8, suppress_health_check=[HealthCheck.filter_too_much])
@given(long_steps())
def test_a_shortened_step_is_the_step(run: Scenario) -> None:
    try:
        found = _shortened(run)
    except NotSupported:
        assume(False)
        raise
    assume(found.period is not None)
    assert found.period is not None
    whole = _record(run)
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole.step_s, rel=1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {"pp": 4, "schedule": "1f1b", "microbatches": 25},
        {"pp": 4, "vpp": 2, "schedule": "interleaved", "microbatches": 24, "dp": 2, "zero": 1},
        {"pp": 2, "vpp": 4, "schedule": "interleaved", "microbatches": 12, "dp": 4},
        {"pp": 2, "schedule": "1f1b", "microbatches": 24, "cp": 2, "gpus_per_node": 2},
        {"microbatches": 40, "dp": 4, "zero": 1},
    ],
)
def test_few_turns_show_it(fields: dict[str, Any]) -> None:
    """Also where messages share the NIC with layers; the critical path goes on as the step does."""
    run = scenario(**BASE | {"hidden_size": 4096, "seq_length": 2048, "software": "nemo-2025"} | fields)
    found, turns = _shortened(run), turns_of(run)
    assert turns is not None
    assert found.period is not None
    assert found.more * turns.microbatches == run.num_microbatches - fewest_microbatches(run, turns)
    whole = _record(run)
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole.step_s, rel=1e-9)
    told = {part.name: part.seconds for part in Search().step_of(run).path}
    assert told == pytest.approx({part.name: part.seconds for part in path_of(whole)}, rel=1e-6, abs=1e-9)


HOSTS_SLOWER: list[dict[str, Any]] = [
    {"pp": 2, "schedule": "1f1b", "seq_length": 512, "hidden_size": 2048, "tp": 2},
    {"pp": 4, "schedule": "1f1b", "seq_length": 512, "hidden_size": 4096, "tp": 2, "cp": 2},
    {"pp": 2, "vpp": 2, "schedule": "interleaved", "seq_length": 1536, "hidden_size": 2048, "tp": 2},
    {"pp": 2, "vpp": 2, "schedule": "interleaved", "seq_length": 1024, "hidden_size": 2048, "tp": 2, "cp": 2},
]
"""Their GPUs, or those of some ranks, are at paces of their own for a while."""


@pytest.mark.parametrize("fields", HOSTS_SLOWER)
def test_hosts_set_the_pace_as_soon_as_is_foretold(fields: dict[str, Any]) -> None:
    """A step of the length that is foretold shows the pace of the slowest host, and one of half the periods
    before that does not."""
    run = scenario(**BASE | {"software": BARE, "num_layers": 8, "microbatches": 160} | fields)
    turns, plan = turns_of(run), _plan(run)
    assert turns is not None
    few, periods = fewest_microbatches(run, turns), periods_until_paced(plan, turns, 80)
    assert 0 < periods < 80
    early, late = (
        period_of_turns(_record(of_length(run, few + count * turns.microbatches)), turns, 1e-12)
        for count in (periods // 2, periods)
    )
    assert early is None
    assert late is not None
    found = shortened(run, _record, lambda one: one, partial(periods_until_paced, plan))
    assert found.period is not None
    whole = _record(run).step_s
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole, rel=1e-9)


def test_a_forecast_that_is_one_period_short_costs_one_period_more() -> None:
    """And not the whole step."""
    run = scenario(**BASE | {"software": "nemo-2025", "num_layers": 8, "microbatches": 160} | HOSTS_SLOWER[3])
    turns, lengths = turns_of(run), list[int]()
    assert turns is not None
    few = fewest_microbatches(run, turns)

    def replayed(one: Scenario) -> Record:
        lengths.append(one.num_microbatches)
        return _record(one)

    def is_steady(periods: int) -> bool:
        short = _record(of_length(run, few + periods * turns.microbatches))
        return period_of_turns(short, turns, 1e-12) is not None

    periods = periods_until_paced(_plan(run), turns, 80)
    while is_steady(periods):
        periods -= 1
    found = shortened(run, replayed, lambda one: one, lambda turns, most: periods)
    assert lengths == [few + count * turns.microbatches for count in (periods, periods + 1)]
    assert found.period is not None
    whole = _record(run).step_s
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole, rel=1e-9)


def _plan(run: Scenario) -> StepPlan:
    cluster = build_cluster(run)
    return make_plan(run, cluster, calibrated_profile(cluster.gpu, run.calibration))


def test_hosts_that_gpus_do_not_wait_for_set_no_pace() -> None:
    size = {"hidden_size": 4096, "seq_length": 4096, "software": "nemo-2025"}
    for more in ({"schedule": "1f1b"}, {"schedule": "interleaved", "vpp": 2}):
        run = scenario(**BASE | size | more, pp=4, microbatches=40, num_layers=8)
        turns = turns_of(run)
        assert turns is not None
        assert periods_until_paced(_plan(run), turns, 10) == 0


@examples(10, suppress_health_check=[HealthCheck.filter_too_much])
@given(long_steps())
def test_hosts_that_keep_up_with_each_action_set_no_pace(run: Scenario) -> None:
    """What is asked of stages that differ says no more than the orders of all ranks do."""
    turns = turns_of(run)
    assume(turns is not None)
    assert turns is not None
    try:
        plan = _plan(run)
    except NotSupported:
        assume(False)
        raise
    assume(ActionPaces(plan).hosts_keep_up())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ActionPaces, "hosts_keep_up", lambda _: False)
        assert periods_until_paced(plan, turns, 10) == 0


def test_stages_that_hold_the_same_are_asked_once_whether_their_hosts_keep_up() -> None:
    size = {"hidden_size": 4096, "seq_length": 4096, "software": "nemo-2025", "num_layers": 16}
    times = ActionPaces(_plan(scenario(**BASE | size, pp=2, vpp=8, schedule="interleaved", microbatches=40)))
    asked = list[Action]()

    def seconds(action: Action) -> tuple[float, float]:
        asked.append(action)
        return 2.0, 1.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(times, "seconds", seconds)
        assert times.hosts_keep_up()
    assert len(asked) == 2 * 3  # forwards and backwards of both ends and of one between them


@pytest.mark.parametrize("more", [{}, {"dp": 8, "zero": 1}])
def test_a_step_in_which_hosts_fall_back_is_tried_where_they_bind(more: dict[str, Any]) -> None:
    """In the second of two replays, if nothing foretold it."""
    fields = {"pp": 2, "vpp": 2, "schedule": "interleaved", "seq_length": 2048, "hidden_size": 2048, "tp": 4}
    run = scenario(**BASE | fields | more, num_layers=8, microbatches=160, software=BARE)
    lengths = []

    def replayed(one: Scenario) -> Record:
        lengths.append(one.num_microbatches)
        return _record(one)

    found = shortened(run, replayed, lambda one: one)
    assert len(lengths) == 2
    assert found.period is not None
    whole = _record(run).step_s
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("periods", [60, 160])
def test_no_step_is_tried_before_hosts_are_foretold_to_set_the_pace(periods: int) -> None:
    """However much longer that is, and not at all where it is longer than the step."""
    run = scenario(**BASE, pp=2, schedule="1f1b", microbatches=160, num_layers=8, software="nemo-2025")
    turns, lengths = turns_of(run), list[int]()
    assert turns is not None
    few = fewest_microbatches(run, turns)

    def replayed(one: Scenario) -> Record:
        lengths.append(one.num_microbatches)
        return _record(one)

    shortened(run, replayed, lambda one: one, lambda turns, most: min(periods, most))
    assert lengths[0] == min(few + periods, 160)


def _short() -> tuple[Record, Turns]:
    size = {"hidden_size": 2048, "seq_length": 2048}
    run = scenario(**BASE, **size, pp=4, schedule="1f1b", microbatches=40, software=BARE)
    turns = turns_of(run)
    assert turns is not None
    return _record(of_length(run, fewest_microbatches(run, turns))), turns


def test_an_op_that_ends_later_than_its_like_is_not_steady() -> None:
    record, turns = _short()
    assert period_of_turns(record, turns, 1e-9) is not None
    ops = record.programs.classes[2].ops
    for i, op in enumerate(ops):
        if op.action.endswith("7"):
            moved = array("d", record.end[2])
            moved[i] += 1e-4
            record.end[2] = moved
    assert period_of_turns(record, turns, 1e-9) is None


def test_turns_are_not_steady_while_hosts_fall_back() -> None:
    """GPUs are at their own pace until slightly slower hosts have lost what they were ahead."""
    software = {"preset": "nemo-2025", "host": {**BARE_HOST, "host_s_per_kernel": 2.6e-5}}
    size = {"hidden_size": 2048, "seq_length": 1024, "num_layers": 8}
    run = scenario(**BASE, **size, pp=4, schedule="1f1b", microbatches=100, software=software)
    turns = turns_of(run)
    assert turns is not None
    short = _record(of_length(run, fewest_microbatches(run, turns)))
    assert period_of_turns(short, turns, 1e-9) is None
    found = _shortened(run)
    assert found.period is not None
    whole_s = _record(run).step_s
    assert found.run.step_s + found.more * found.period.seconds == pytest.approx(whole_s, rel=1e-9)


def test_what_takes_no_turns_is_replayed_whole() -> None:
    for schedule in ("gpipe", "zb-1p"):
        run = scenario(**BASE, pp=4, microbatches=40, schedule=schedule)
        assert turns_of(run) is None
        assert _shortened(run).more == 0
