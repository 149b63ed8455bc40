"""No unchecked scenario: what copies say is checked where it is used, and with_ changes as --set does."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused_at
from small_documents import SMALL
from small_scenarios import layouts

from stepsim.sim.reliability.ask import ask
from stepsim.sim.replay import save_program
from stepsim.sim.scenario.checked import checked
from stepsim.sim.scenario.documents import scenario_names
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_campaign, load_scenario
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

NAME = "llama3.1-405b-16k"
BASE = load_scenario(NAME)
ENDLESS = BASE.software.host.model_copy(update={"step_fixed_s": float("inf")})


def copied(**parts: dict[str, Any]) -> Scenario:
    """The scenario with fields of its parts changed behind the back of every check."""
    changed = {part: getattr(BASE, part).model_copy(update=fields) for part, fields in parts.items()}
    return BASE.model_copy(update=changed)


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"cluster": {"gpus": 64}}, "cluster.gpus"),
        ({"parallelism": {"dp": 3}}, "parallelism.dp"),
        ({"training": {"global_batch": -8}}, "training.global_batch"),
        ({"training": {"seq_length": 8191}}, "training.seq_length"),
        ({"model": {"num_layers": True}}, "model.num_layers"),
        ({"model": {"vocab_size": 128257}}, "model.vocab_size"),
        ({"software": {"host": ENDLESS}}, "software.host.step_fixed_s"),
        ({"cluster": {"gpu": "H1000"}}, "cluster.gpu"),
    ],
)
def test_a_copy_with_other_fields_is_checked_wherever_it_is_used(
    parts: dict[str, Any], path: str, tmp_path: Path
) -> None:
    scenario = copied(**parts)
    for use in (simulate, checked, ask, lambda s: save_program(tmp_path / "p.json", s)):
        with pytest.raises(ScenarioError) as refusal:
            use(scenario)
        assert path in {problem.path for problem in refusal.value.problems}
    assert not list(tmp_path.iterdir())


def test_a_scenario_without_its_parts_is_none() -> None:
    with pytest.raises(ScenarioError) as refusal:
        checked(Scenario.model_construct(name="x"))
    missing = ["cluster", "model", "parallelism", "schedule", "software", "training"]
    assert [problem.path for problem in refusal.value.problems] == missing
    nothing: Any
    for nothing in (NAME, {}, None):
        with pytest.raises(ValueError, match="load_scenario"):
            simulate(nothing)


def test_the_constructor_checks_parts_that_were_copied() -> None:
    bad = BASE.training.model_copy(update={"micro_batch": 0})
    with pytest.raises(ValueError, match="micro_batch"):
        Scenario(**{**dict(BASE), "training": bad})


@given(scenario=layouts())
def test_what_was_checked_is_not_checked_again(scenario: Scenario) -> None:
    assert checked(scenario) is scenario
    for same in (pickle.loads(pickle.dumps(scenario)), copy.deepcopy(scenario), scenario.model_copy()):
        assert same == scenario
        assert checked(same) is same
    twin = scenario.training.model_copy()  # equal, but not the very part: it is checked, and passes
    changed = scenario.model_copy(update={"training": twin})
    assert not changed.is_checked
    assert checked(changed) == changed == scenario


CHANGES: list[dict[str, Any]] = [
    {},
    {"parallelism.vpp": 4},
    {"parallelism.virtual_pipeline_model_parallel_size": 4},
    {"cluster.gpus": 131072, "training.gbs": 16384},
    {"title": "mine"},
    {"training.recompute": "full", "title": "mine"},
    {"training.tokens": None},
    {"run.horizon": "30 d", "checkpoint.storage.every": "50 steps"},
    {"schedule": "interleaved-zb"},
    {"software.kernels.attention": "fa2", "model.dropout": 0.1},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_with_changes_as_the_command_line_does(changes: dict[str, Any]) -> None:
    lines = [f"{field}={'null' if value is None else value}" for field, value in changes.items()]
    expected = load_scenario(NAME, lines)
    assert BASE.with_(changes) == BASE.with_(lines) == load_scenario(NAME, changes) == expected
    assert (BASE.with_(changes).title == BASE.title) == (expected.title == BASE.title)


@pytest.mark.parametrize(
    "changes",
    [
        {"parallelism.tp": 3},
        {"parallelism.tensor_parallel": 4},
        {"training.global_batch": "many", "parallelism.pp": 0},
        {"run.horizon": 30},
        {"extends": "llama3-8b-h100"},
        {"parallelism.tp": 8, "parallelism.tensor_model_parallel_size": True},
    ],
)
def test_with_refuses_what_the_command_line_refuses(changes: dict[str, Any]) -> None:
    def told(use: Any) -> set[tuple[str, str]]:
        with pytest.raises(ScenarioError) as refusal:
            use()
        return {(problem.path, problem.message) for problem in refusal.value.problems}

    lines = [f"{field}={str(value).lower()}" for field, value in changes.items()]
    assert told(lambda: BASE.with_(changes)) == told(lambda: load_scenario(NAME, lines))


@pytest.mark.parametrize("changes", [{"": 4}, {"a..b": 4}, {".".join("a" * 500): 4}])
def test_a_change_names_a_field(changes: dict[str, Any]) -> None:
    with refused_at("", '"parallelism.tp": 4'):
        BASE.with_(changes)
    with refused_at("", "parallelism.tp=4"):
        load_scenario(NAME, [f"{field}=4" for field in changes])


def test_what_follows_follows_anew() -> None:
    scenario = load_scenario(SMALL)
    assert (scenario.parallelism.dp, scenario.schedule) == (8, "1f1b")
    other = scenario.with_({"parallelism.pp": 1, "parallelism.tp": 1})
    assert (other.parallelism.dp, other.schedule) == (32, "none")
    again = other.with_({"parallelism": {"pp": 2, "vpp": 2}})
    assert (again.parallelism.dp, again.schedule) == (16, "interleaved")


def test_a_scenario_made_in_python_changes_too() -> None:
    made = Scenario(**dict(load_scenario(SMALL)))
    assert made.document is None
    assert made.with_({"training.seq_length": 2048}).training.seq_length == 2048
    assert made.with_({"parallelism.pp": 4, "parallelism.dp": None}).parallelism.dp == 4
    copy_with = made.model_copy(update={"training": made.training.model_copy(update={"micro_batch": 2})})
    assert copy_with.with_({}).training.micro_batch == 2


@pytest.mark.parametrize("changes", [None, 4, [4], [{"parallelism.tp": 4}]])
def test_changes_are_fields_or_lines(changes: Any) -> None:
    for change in (BASE.with_, lambda changes: load_scenario(NAME, changes)):
        with refused_at("", '{"parallelism.tp": 4}', "field=value"):
            change(changes)


def test_a_mapping_is_what_a_file_would_hold() -> None:
    scenario = load_scenario(SMALL, {"parallelism.tp": np.int64(4), "training.recompute": "full"})
    assert (scenario.name, scenario.parallelism.tp, scenario.training.recompute) == ("scenario", 4, "full")
    assert load_scenario({"extends": "llama3-8b-h100", "name": "mine"}).name == "mine"
    with refused_at("trainin", "'trainin'", "mean training?"):
        load_scenario({**SMALL, "trainin": {}})
    circle: dict[str, Any] = {**SMALL}
    circle["cluster"] = circle
    with refused_at("", "nested"):
        load_scenario(circle)


def test_a_campaign_may_be_a_mapping() -> None:
    bare = load_campaign({"step_time": "10 s", "faults": {"events": ["hang at=1h"]}}, {"run.horizon": "3 d"})
    assert bare.run
    assert bare.run.horizon == 3 * 86400


@pytest.mark.parametrize("name", scenario_names())
def test_shipped_scenarios_are_checked_as_they_are_loaded(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.is_checked
    assert scenario.with_({}) == scenario


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=4))
def test_any_value_of_any_field_is_taken_or_refused(value: Any) -> None:
    for field in (
        "parallelism.tp",
        "faults",
        "cluster.fabric",
        "software.gradients.bucket_elements",
        "model.moe",
    ):
        try:
            BASE.with_({field: value})
        except ScenarioError:
            continue


def test_a_copy_is_compared_by_itself_and_refused_as_it_is_where_it_is_checked() -> None:
    run = load_scenario(SMALL)
    parts = {"training": run.training.model_copy(update={"micro_batch": 2 * run.training.micro_batch})}
    copies = [run.model_copy(update=parts) for _ in range(2)]
    assert not any(one.is_checked for one in copies)
    compared = [one.compared() for one in copies]
    assert all(one.is_checked for one in compared)
    assert compared == copies
    wrong = run.model_copy(update={"parallelism": run.parallelism.model_copy(update={"tp": 3})})
    with pytest.raises(ScenarioError) as found:
        wrong.compared()
    with pytest.raises(ScenarioError) as expected:
        wrong.checked()
    assert found.value.problems == expected.value.problems
