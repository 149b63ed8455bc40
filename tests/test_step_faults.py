"""Faults inside a step: what they cost against closed forms, who waits, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused_at
from small_scenarios import changed, layouts, main_gradient_bytes, parameters_of_ranks, scenario
from struck_steps import LINKED, TWIN, assert_same, cost, with_faults
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.degradation.of_faults import standing
from stepsim.sim.reliability.campaign.plan import Effect
from stepsim.sim.reliability.planning.step_time import SimulatedStep
from stepsim.sim.result.step_faults import WAITING, StepFaults
from stepsim.sim.scenario.checks_faults import machine_of
from stepsim.sim.scenario.faults.faults import Domains, parse_fault
from stepsim.sim.scenario.faults.kinds import kind_names, step_kinds
from stepsim.sim.scenario.faults.targets import parse_target
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.schema import json_schema
from stepsim.sim.simulate import build_cluster, simulate


def relation(found: StepFaults, name: str) -> float:
    """More waiting of the ranks of that name."""
    one = next(r for r in found.relations if r.name == name)
    return one.after.total_waiting_s - one.before.total_waiting_s


# A slow GPU ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=15)
@given(data=st.data(), factor=st.sampled_from([1.05, 1.3, 3.0]))
def test_a_folded_step_with_a_slow_gpu_is_the_unfolded_one(data: st.DataObject, factor: float) -> None:
    run = data.draw(layouts())
    scope = data.draw(st.sampled_from(["gpu", "rank"]))
    line = f"gpu_throttle {scope}/{data.draw(st.integers(0, run.world_size - 1))} slow_factor={factor}"
    assert_same(cost(run, line), cost(run, line, fold=False))


@pytest.mark.parametrize(
    "line", ["gpu_throttle gpu/9 slow_factor=1.3", "gpu_throttle node/1 slow_factor=1.1"]
)
def test_a_small_twin_of_a_large_run(line: str) -> None:
    run = scenario(**TWIN)
    few, each = cost(run, line), cost(run, line, fold=False)
    assert few.classes_after < each.classes_after == run.world_size
    assert_same(few, each)
    assert few.slowdown > 1.0


def test_every_rank_is_told_once_and_the_struck_one_works_longer() -> None:
    run = scenario(**TWIN)
    found = cost(run, "gpu_throttle gpu/9 slow_factor=1.5")
    assert {r.name: r.ranks for r in found.relations} == {
        "struck": 1,
        "same TP group": 1,
        "same replica, other stages": 6,
        "same stage, other replicas": 6,
        "other replicas and stages": 18,
    }
    struck = found.relations[0]
    assert struck.after.work_s == pytest.approx(1.5 * struck.before.work_s, rel=0.05)
    assert relation(found, "struck") < 0 < relation(found, "same TP group")
    total = sum(r.ranks * r.after.total_waiting_s for r in found.relations)
    assert total == pytest.approx(run.world_size * found.after.total_waiting_s, rel=1e-12)


def test_without_anything_wrong_nothing_changes() -> None:
    run = scenario(**TWIN)
    found = cost(run, "gpu_throttle gpu/9 slow_factor=1", "link_degraded rail/1 bandwidth_factor=1")
    assert found.slowdown == 1.0
    assert found.before == found.after
    assert found.critical_path_before == found.critical_path_after
    assert found.classes_before == found.classes_after
    assert simulate(run, faults=()).faults is None


def test_only_touched_classes_unfold() -> None:
    """Their number follows the layout of one replica, not the number of replicas."""
    few, many = (
        cost(scenario(**{**TWIN, "dp": dp}), "gpu_throttle gpu/9 slow_factor=1.3").classes_after
        for dp in (8, 64)
    )
    assert few == many


def test_kernels_of_one_slow_rank_alone_are_the_whole_slowdown() -> None:
    """One GPU: the step is its kernels, and what its host adds stays."""
    run = scenario(software={"preset": "megatron-2022-sp", "host": {"host_s_per_kernel": 0.0}})
    found = cost(run, "gpu_throttle gpu/0 slow_factor=2")
    assert found.after.work_s == pytest.approx(2 * found.before.work_s, rel=1e-9)


# Links, NICs and switches ----------------------------------------------------------------------------------


def transfer_s(run: Scenario, hosts: int) -> float:
    """A ring's bytes of one rank's gradients over the usable rate of its NIC."""
    gradients = parameters_of_ranks(run)[0] * main_gradient_bytes(run)
    return 2 * (hosts - 1) / hosts * gradients / build_cluster(run).nic_bytes_per_s_per_gpu


def dp_s(found: StepFaults) -> float:
    """Waiting for data parallelism, of the ranks that are struck or else of all."""
    side = found.relations[0].after if found.relations else found.after
    return side.waiting_s["dp"]


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("link_degraded rail/3 bandwidth_factor=0.5", 1 / 2),
        ("link_degraded rail/3", 1 / 2),
        ("link_degraded rail/3 bandwidth_factor=0.125", 1 / 8),
        ("link_degraded rail/3@node/2 bandwidth_factor=0.5", 1 / 2),
        ("link_degraded rail/3@leaf/0 bandwidth_factor=0.5", 1 / 2),
        ("link_degraded nic/3@node/2 bandwidth_factor=0.5", 1 / 2),
        ("link_degraded link/19 bandwidth_factor=0.5", 1 / 2),
        ("nic_down nic/3@node/2", 7 / 8),
        ("nic_down nic/19", 7 / 8),
        ("nic_down nic/19 bandwidth_factor=0.75", 3 / 4),
        ("leaf_switch_down leaf/0", 7 / 8),
        ("leaf_switch_down leaf/0 bandwidth_factor=0.5", 1 / 2),
    ],
)
def test_a_ring_goes_at_the_pace_of_its_weakest_link(line: str, left: float) -> None:
    """Latencies stay, bytes take 1/left as long: reference section 3, slow links. The rail model's failover
    gives each GPU of R NICs (R - 1)/R of its rate.
    """
    run = scenario(**LINKED)
    quarter, found = cost(run, "link_degraded rail/3 bandwidth_factor=0.25"), cost(run, line)
    line_s = transfer_s(run, 4)
    latency_s = dp_s(quarter) - 4 * line_s
    assert 0 < latency_s < line_s / 20
    assert dp_s(found) == pytest.approx(latency_s + line_s / left, rel=2e-3)
    healthy = found.before.waiting_s["dp"]
    more = dp_s(found) - healthy
    assert found.slowdown == pytest.approx(1 + more / found.healthy_step_time_s, rel=1e-6)


@pytest.mark.parametrize("oversubscription", [1, 2])
def test_a_lost_spine_leaves_its_share_to_the_others(oversubscription: int) -> None:
    fabric = {"kind": "fat-tree", "nodes_per_leaf": 1, "oversubscription": oversubscription}
    run = scenario(**{**LINKED, "dp": 32, "fabric": fabric})
    spines = 32 * 8 // oversubscription // 64
    whole, port = cost(run, "spine_switch_down spine/0"), cost(run, "spine_switch_down spine/0@leaf/5")
    with pytest.raises(ValueError, match=f"is spine/{spines - 1}"):
        cost(run, f"spine_switch_down spine/{spines}")
    quarter = cost(run, "link_degraded rail/3 bandwidth_factor=0.125")
    latency_s = dp_s(quarter) - 8 * transfer_s(run, 32)
    expected = latency_s + transfer_s(run, 32) * oversubscription * spines / (spines - 1)
    assert dp_s(whole) == pytest.approx(expected, rel=2e-3)
    assert dp_s(port) == pytest.approx(expected, rel=2e-3)  # a ring waits for its weakest leaf
    assert whole.relations == ()  # no rank is struck


def test_faults_at_once_multiply() -> None:
    run = scenario(**LINKED)
    two = cost(run, *["link_degraded rail/3 bandwidth_factor=0.5"] * 2)
    one = cost(run, "link_degraded rail/3 bandwidth_factor=0.25")
    assert two.step_time_s == one.step_time_s
    assert two.relations == one.relations


@pytest.mark.parametrize(
    "line",
    [
        "gpu_throttle gpu/2 slow_factor=1.5",
        "link_degraded nic/3@node/0 bandwidth_factor=0.5",
        "nic_down nic/3@node/0 bandwidth_factor=0.875",
        "spine_switch_down spine/0",
    ],
)
def test_weeks_have_the_slowdown_of_a_step(line: str) -> None:
    """Effects of campaigns are replayed by the same words."""
    fabric = {"kind": "fat-tree", "nodes_per_leaf": 1}
    run = scenario(**{**LINKED, "dp": 32, "fabric": fabric})
    machine = machine_of(run.cluster, run.parallelism, Domains())
    event = parse_fault(line)
    assert event.kind
    effect = Effect(event.kind, event.where, event.slow_factor, event.bandwidth_factor)
    step, found = SimulatedStep(run, machine), cost(run, line)
    assert step(frozenset([effect])) == pytest.approx(found.step_time_s, rel=1e-9)
    assert found.slowdown > 1.01


def test_an_effect_that_changes_nothing_costs_weeks_nothing() -> None:
    run = scenario(**LINKED)
    step = SimulatedStep(run, machine_of(run.cluster, run.parallelism, Domains()))
    none = Effect("gpu_throttle", parse_target("gpu/2"), 1.0)
    assert step(frozenset([none])) == step(frozenset()) == step.healthy_s


def test_the_step_without_each_fault() -> None:
    run = scenario(**LINKED)
    lines = ("link_degraded rail/3 bandwidth_factor=0.5", "gpu_throttle gpu/2 slow_factor=1.5")
    both, *alone = cost(run, *lines), *(cost(run, line) for line in lines)
    assert both.without_s == (alone[1].step_time_s, alone[0].step_time_s)
    assert both.step_time_s > max(both.without_s)
    assert [one.without_s for one in alone] == [(both.healthy_step_time_s,)] * 2


# What is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("gpu_throttle gpu/32", "gpu/32 .*32"),
        ("gpu_throttle node/0 slow_factor=0.9", "slow_factor: 0.9"),
        ("link_degraded nic/0 bandwidth_factor=0", "bandwidth_factor: 0"),
        ("link_degraded nic/0 latency_add=2us", "link_degraded nic/0: latency_add:"),
        ("link_degraded nic/0 slow_factor=2", "link_degraded nic/0: slow_factor:"),
        ("nic_down node/0", "every NIC"),
        ("gpu_jitter node/0", "'gpu_jitter'"),
        ("host_jitter job cv=-0.1", "cv: -0.1"),
        ("host_jitter gpu/0", "host_jitter .*job .*node .*rack .*leaf, not gpu"),
        ("spine_switch_down spine/0@node/1", "spine .*leaf, .*node"),
        ("", "kind target"),
    ],
)
def test_faults_that_cannot_be_are_refused(line: str, told: str) -> None:
    with pytest.raises(ValueError, match=told.replace("(", r"\(")):
        simulate(scenario(**LINKED), faults=[line])


@pytest.mark.parametrize("kind", sorted(set(kind_names()) - set(step_kinds())))
def test_kinds_that_no_step_feels_are_refused_with_those_that_it_does(kind: str) -> None:
    run = scenario(**LINKED)
    event = next(
        line
        for scope in ("job", "storage", "rack/0", "node/0", "rank/0", "link/0")
        if kind_takes(line := f"{kind} {scope}")
    )
    with refused_at(f"faults: {event}", kind, *step_kinds()):
        simulate(run, faults=[event])


def kind_takes(line: str) -> bool:
    try:
        parse_fault(line)
    except ValueError:
        return False
    return True


def test_a_fat_tree_cannot_do_without_a_leaf() -> None:
    run = scenario(**{**LINKED, "fabric": {"kind": "fat-tree", "nodes_per_leaf": 2}})
    with pytest.raises(ValueError, match=r"leaf_switch_down leaf/1: leaf 1.*host 2"):
        simulate(run, faults=["leaf_switch_down leaf/1"])


@pytest.mark.parametrize(
    "faults",
    [
        ["gpu_throttle gpu/9 slow_factor=1.3"],
        [{"kind": "gpu_throttle", "target": "gpu/9", "slow_factor": 1.3}],
        {"events": ["gpu_throttle gpu/9 slow_factor=1.3"]},
        {"events": ["gpu_throttle gpu/9 slow_factor=1.3", "node_down node/0 at=3h"]},
    ],
)
def test_faults_of_a_file_are_those_without_a_time(faults: Any) -> None:
    run = with_faults(faults)
    assert len(standing(run.faults)) == 1
    found = simulate(run).faults
    assert found is not None
    assert found.faults == ("gpu_throttle gpu/9 slow_factor=1.3",)
    assert found.step_time_s == cost(scenario(**TWIN), *found.faults).step_time_s
    assert simulate(run, faults=()).step_time_s == found.healthy_step_time_s
    again = changed(run, training={})
    assert standing(again.faults) == standing(run.faults)


def test_the_schema_knows_lists_and_lines() -> None:
    schema = json_schema()
    short = schema["properties"]["faults"]["anyOf"][0]
    assert short["type"] == "array"
    assert {"type": "string"}.items() <= short["items"]["anyOf"][0].items()
    assert schema["$defs"]["Faults"]["properties"]["events"]["items"] == short["items"]


def test_a_wrong_line_of_a_file_is_told_with_its_place() -> None:
    with refused_at("faults.events[0].target", "gpu/99", "gpu/31"):
        with_faults(["gpu_throttle gpu/99"])
    with refused_at("faults.events[0]", "'gpu_throtle'", "mean gpu_throttle?"):
        with_faults(["gpu_throtle gpu/9"])


def test_the_command_and_its_document(tmp_path: Path) -> None:
    line = "gpu_throttle node/0 slow_factor=1.5"
    words = ["run", "llama3-8b-h100", "--fault", line]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    run = load_scenario("llama3-8b-h100", ())
    same = simulate(run, faults=[line]).to_dict()
    assert found["faults"] == json.loads(json.dumps(same["faults"]))
    faults = found["faults"]
    assert faults["faults"] == [line]
    assert faults["slowdown"] == faults["step_time_s"]["after"] / faults["step_time_s"]["before"] > 1
    assert faults["step_time_s"]["after"] == found["step_time_s"]
    assert list(faults["waiting_s"]) == list(WAITING)
    assert sum(one["ranks"] for one in faults["who_waits"]) == found["ranks"]
    assert faults["critical_path"]["after"] == found["critical_path"]
    assert faults["classes"]["after"] == found["classes"]

    text = CliRunner().invoke(app, words).output
    for shown in (f"Faults: {line}", "times as long", "who waits", "struck", "critical path"):
        assert shown in text
    plain = CliRunner().invoke(app, ["run", "llama3-8b-h100", "--json"])
    assert json.loads(plain.stdout)["faults"] is None
    for option, name in (("--topology", "net.svg"), ("--save-program", "program.json")):
        refused = CliRunner().invoke(app, [*words, option, str(tmp_path / name)])
        assert refused.exit_code == 2
        assert not (tmp_path / name).exists()
