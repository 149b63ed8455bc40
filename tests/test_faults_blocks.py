"""A campaign's blocks: what is refused and where, the plans that follow, their schema, and documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from faults_campaigns import document, plan_of
from refusals import refused_at

from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import (
    campaign_from_document,
    load_campaign,
    load_scenario,
    scenario_from_document,
)
from stepsim.sim.scenario.schema import json_schema

# Blocks -----------------------------------------------------------------------------------------------------


def refused(**blocks: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is what is tested
        plan_of(document(**blocks))
    return str(caught.value)


def process(**fields: Any) -> dict[str, Any]:
    return {"processes": [{"kind": "gpu_fatal", **fields}]}


@pytest.mark.parametrize(
    ("blocks", "told"),
    [
        ({"faults": process(rate_per_unit_day=-1)}, "rate_per_unit_day: -1 is too small"),
        ({"faults": process()}, "exactly one of rate_per_unit_day, mtbf and prevalence"),
        ({"faults": process(mtbf="3 d", rate_per_unit_day=1)}, "exactly one of"),
        ({"faults": process(mtbf="0 s")}, "mtbf: 0 s is too small"),
        ({"faults": process(mtbf="3")}, "3 has no unit"),
        ({"faults": process(mtbf="3 d", dist="weibul")}, "weibul"),
        ({"faults": process(mtbf="3 d", scope="leaf")}, "strikes gpu or node or rank, not leaf"),
        ({"faults": process(prevalence=0.1)}, "gpu_fatal is an event; give a rate"),
        ({"faults": {"events": [{"kind": "gpu_fatal", "target": "gpu/512"}]}}, "the last is gpu/511"),
        ({"faults": {"events": [{"kind": "leaf_switch_down", "target": "leaf/4"}]}}, "the last is leaf/3"),
        ({"faults": {"events": [{"kind": "hang", "at": "1 h", "at_step": 3}]}}, "at or at_step, not both"),
        ({"faults": {"events": [{"kind": "nic_down", "target": "nic/8@node/3"}]}}, "a node has 8 of them"),
        ({"faults": {"clock": "moon"}}, "Known: exposure, wall"),
        ({"faults": {"presets": ["llama4"]}}, "faults.presets: no preset of faults is called 'llama4'"),
        ({"faults": {"off": ["gpu"]}}, "no kind of fault is called 'gpu'"),
        ({"detection": {"fixed": "2 min", "error": "3 s"}}, "leave error or fixed out"),
        ({"detection": {"straggler": {"threshold": 0.9}}}, "threshold"),
        (
            {"detection": {"order": ["error"]}, "faults": {"processes": [{"kind": "hang", "mtbf": "1 d"}]}},
            "only the watchdog ends a hang",
        ),
        ({"recovery": "restartt"}, "Did you mean restart"),
        ({"recovery": {"policy": "elastic_dp"}}, "elastic_dp needs two replicas"),
        (
            {"recovery": {"elastic": {"replicas": 7}}},
            "recovery.elastic.replicas: 7 replicas do not share out",
        ),
        (
            {"recovery": {"elastic": {"replicas": 1024}}},
            "recovery.elastic.replicas: 1024 replicas do not share out",
        ),
        (  # 12 GPUs are a host and a half
            {"cluster": {"gpus": 24, "gpus_per_node": 8}, "recovery": {"elastic": {"replicas": 2}}},
            "it can be 1, 3, 6, 12 or 24",
        ),
        ({"recovery": {"policy": "peer_memory"}}, "the policy peer_memory needs it"),
        ({"recovery": {"restart_cost": {"fixed": "1 min", "kill": "3 s"}}}, "leave kill or fixed out"),
        ({"recovery": {"restart_cost": {"init": {"curve": [[64, "5 s"], [8, "1 s"]]}}}}, "must ascend"),
        (
            {"recovery": {"policy": "per_step_ft", "elastic": {"replicas": 8}, "spares": {"warm": 2}}},
            "recovery.spares",
        ),
        ({"checkpoint": {"storage": {"every": "30"}}}, "30 has no unit"),
        (
            {"checkpoint": {"storage": {"every": "30 min"}}},
            "from_bytes needs a model",
        ),
        ({"checkpoint": {"storage": {"every": "30 min", "persist": "3 s"}}}, "persist is for the other mode"),
        ({"run": {"horizon": "0 d"}}, "horizon: 0 d is too small"),
        ({"run": {"work": "1 d", "steps": 3}}, "work and steps both say"),
        ({"run": {"work": "1 d", "confidence": 1}}, "confidence"),
        ({"checkpointt": {}}, "Did you mean checkpoint"),
        ({"step_time": "10"}, "10 has no unit"),
    ],
)
def test_nonsense_is_refused(blocks: dict[str, Any], told: str) -> None:
    assert told in refused(**blocks)


def overlapping(**more: Any) -> dict[str, Any]:
    storage = {
        "every": "1 min",
        "mode": "async",
        "snapshot_stall": "1 s",
        "persist": "5 min",
        "load": "1 s",
        **more,
    }
    return {"checkpoint": {"storage": storage}}


def test_an_overlapping_checkpoint_needs_a_rule() -> None:
    assert "checkpoint.storage.on_overlap" in refused(**overlapping())
    for rule in ("skip", "block", "queue"):
        (tier,) = plan_of(document(**overlapping(on_overlap=rule))).tiers
        assert (tier.overlap, tier.every, tier.stall_s, tier.lag_s) == (rule, 6, 1.0, 300.0)
    (tier,) = plan_of(document(**overlapping(persist="30 s", on_overlap="skip"))).tiers
    assert tier.overlap == ""


def test_loading_needs_a_size_only_where_it_counts() -> None:
    """The example of the interface: a fixed restart says how long loading takes."""
    checkpoint = {"storage": {"every": "30 min", "mode": "blocking", "stall": "1 min"}}
    plan = plan_of(document(checkpoint=checkpoint, recovery={"restart_cost": "8 min"}, detection="2 min"))
    assert plan.tiers[0].stall_s == 60.0
    assert "checkpoint.storage.load" in refused(checkpoint=checkpoint)


def test_corruption_needs_copies_that_reach_back() -> None:
    faults = {"processes": [{"kind": "sdc", "rate_per_unit_day": 0.001}]}
    storage = {"every": "30 min", "stall": "20 s", "load": "30 s"}
    told = refused(faults=faults, checkpoint={"storage": {**storage, "keep": 2}})
    assert "checkpoint.storage.keep: 2 copies reach back 1.0 h" in told
    assert plan_of(document(faults=faults, checkpoint={"storage": storage})).storage


def test_a_weak_link_needs_its_factor_where_the_step_is_given() -> None:
    faults = {"processes": [{"kind": "link_degraded", "scope": "nic", "rate_per_unit_day": 0.01}]}
    assert "give slow_factor" in refused(faults=faults)


@pytest.mark.parametrize(
    ("curve", "found"),
    [
        ([], {"": "not []"}),
        ([1], {"[0]": "not 1"}),
        ([[8, "2 s", 3]], {"[0]": "at most 2 entries"}),
        ([["a", "x"]], {"[0][0]": "'a'", "[0][1]": "'x'"}),
    ],
)
def test_a_curve_of_restart_costs_is_refused_point_by_point(curve: Any, found: dict[str, str]) -> None:
    """Each mistake once, and in our words."""
    with pytest.raises(ScenarioError) as caught:
        plan_of(document(recovery={"restart_cost": {"init": {"curve": curve}}}))
    told = {problem.path: problem.message for problem in caught.value.problems}
    assert list(told) == [f"recovery.restart_cost.init.curve{place}" for place in found]
    assert all(named in message for named, message in zip(found.values(), told.values(), strict=True))
    assert "validation" not in str(caught.value)


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "step_time: 10 s\nfaults:\n  events:\n    - {kind: gpu_fatal, target: gpu/99}\n    - {kind: hangg}\n"
    )
    with pytest.raises(ScenarioError) as caught:
        load_campaign(path)
    assert ":5:7: faults.events[1]: " in str(caught.value)
    path.write_text("step_time: 10 s\nfaults:\n  events:\n    - {kind: gpu_fatal, target: gpu/99}\n")
    with refused_at("faults.events[0].target", f"{path}:4:33: ", "gpu/99"):
        load_campaign(path)


def test_a_campaign_needs_a_model_or_a_step_time(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("faults: {}\n")
    with pytest.raises(ScenarioError) as caught:
        load_campaign(path)
    needed = ["cluster", "model", "software", "training"]
    assert [problem.path for problem in caught.value.problems] == needed


def test_scenarios_write_their_fault_blocks_back() -> None:
    for name in scenario_names():
        scenario = load_scenario(name)
        assert scenario_from_document(scenario.to_document(), scenario.name) == scenario
    changed = load_scenario(
        "llama3.1-405b-16k",
        [
            "detection=2 min",
            "recovery={policy: restart, restart_cost: 8 min}",
            "step_time=7 s",
            "checkpoint.storage.every=50 steps",
        ],
    )
    assert scenario_from_document(changed.to_document(), changed.name) == changed
    assert changed.step_time == 7.0
    assert plan_from(changed).step_s == 7.0


def plan_from(scenario: Any) -> Any:
    from stepsim.sim.reliability.planning.blocks import blocks_of
    from stepsim.sim.reliability.planning.build_plan import build_plan

    return build_plan(blocks_of(scenario))


def test_replicas_of_a_model_are_those_of_its_layout() -> None:
    run = load_scenario("llama3.1-405b-16k", {"recovery.elastic.replicas": 7})
    with pytest.raises(ValueError, match=r"recovery\.elastic\.replicas: 7, .*parallelism\.dp"):
        plan_from(run)
    right = load_scenario("llama3.1-405b-16k", {"recovery.elastic.replicas": run.parallelism.dp})
    assert plan_from(right).machine.replicas == run.parallelism.dp


def test_a_blocked_scenario_still_is_a_scenario_to_run() -> None:
    """Faults over weeks say nothing about one step."""
    with_blocks = load_scenario("llama3.1-405b-16k")
    assert with_blocks.faults is not None
    assert with_blocks.faults.presets == ("llama3-2024",)


def test_the_schema_documents_every_key() -> None:
    schema = json_schema()
    blocks = ("faults", "detection", "recovery", "checkpoint", "run")
    assert {"step_time", *blocks} <= set(schema["properties"])
    names, found = set(), {name.capitalize() for name in blocks}
    while found:
        name = found.pop()
        names.add(name)
        text = str(schema["$defs"][name])
        found |= {part.split("'")[0] for part in text.split("#/$defs/")[1:]} - names
    assert {"Process", "RestartCost", "StorageTier", "Lasting"} <= names
    for name in names - {"Nothing", "Every"}:
        assert schema["$defs"][name]["description"], name
        fields = schema["$defs"][name]["properties"]
        assert [key for key, field in fields.items() if not field.get("description")] == [], name


# Documents --------------------------------------------------------------------------------------------------


def test_a_trace_lies_beside_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("time,kind,target\n100,gpu_fatal,gpu/1\n")
    path = tmp_path / "mine.yaml"
    path.write_text("step_time: 10 s\nrun: {work: 1 h}\nfaults: {events: [{trace: log.csv}]}\n")
    assert len(plan_from(load_campaign(path)).events) == 1


def test_bare_documents_may_name_their_hardware() -> None:
    loaded = campaign_from_document(
        document(cluster={"gpu": "H100-SXM5-80GB", "gpus": 64, "interconnect": "ib-ndr400-x8"}), "mine"
    )
    assert loaded.cluster.gpus == 64


def test_the_examples_of_the_page_are_documents(root: Path, tmp_path: Path) -> None:
    """Every YAML block of docs/faults.md loads; the short one is a campaign by itself."""
    blocks = (root / "docs" / "faults.md").read_text().split("```yaml\n")[1:]
    short, long = (block.partition("```")[0] for block in blocks)
    path = tmp_path / "page.yaml"
    path.write_text(short)
    assert plan_from(load_campaign(path)).horizon_s == 54 * 86400.0
    path.write_text(f"extends: llama3.1-405b-16k\n{long}")
    loaded = load_campaign(path)
    assert loaded.faults is not None
    assert len(loaded.faults.processes) == 4
