"""Fields and values that a search is asked about: slips of the pen are refused, contradictions too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from refusals import refused_at
from small_plans import DOCUMENT, FIX, small
from typer.testing import CliRunner

import stepsim
from stepsim.cli.main import app
from stepsim.sim.plan.axes import Axes
from stepsim.sim.plan.axis_values import fixed
from stepsim.sim.plan.base_scenarios import RefusedValues
from stepsim.sim.plan.questions.find import find
from stepsim.sim.plan.refused import LINES, WORDS, reasons, told_left_out
from stepsim.sim.plan.search.plan import Means, candidates_of, wishes_of
from stepsim.sim.plan.space import space_of
from stepsim.sim.report.plan.table import alike, nothing
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario

WISHES = wishes_of(top=1, objective="step-time", deadline_s=None, budget=None, fits=0.9, audit=0)


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("fields") / "small.yaml"
    path.write_text(yaml.safe_dump(DOCUMENT), encoding="utf-8")
    return str(path)


def said(*words: str, code: int) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize(
    ("field", "values", "known"),
    [
        ("cluster.gpu", ["A100-SXM4-80GB", "NOPE"], "H100-SXM5-80GB"),
        ("cluster.gpus", [8, "banana"], "whole number"),
        ("cluster.gpus", [0], "1 or more"),
        ("training.precision", ["bf16", "bf61"], "fp16"),
        ("software", ["megatron-core-2052"], "megatron-core-2025"),
        ("parallelism.tp", ["two"], "whole number"),
    ],
)
def test_a_value_that_a_field_cannot_have_is_refused(field: str, values: list[Any], known: str) -> None:
    """Beside one that it can: whoever mistypes one of many would not miss it."""
    with pytest.raises(ScenarioError, match=known) as error:
        space_of(small(), vary={field: values})
    assert error.value.problems[0].path == field
    assert "Value error" not in str(error.value)


@pytest.mark.parametrize(
    "wish", [{"top": 2.5}, {"top": "3"}, {"audit": -1}, {"replays": 1.5}, {"fits": "a"}, {"fits": True}]
)
def test_a_wish_of_the_wrong_kind_names_itself(wish: dict[str, Any]) -> None:
    (name,) = wish
    with pytest.raises(ValueError, match=f"^{name} .* is"):
        stepsim.plan(DOCUMENT, **wish)


@pytest.mark.parametrize(("name", "given"), [("fix", ["parallelism.tp"]), ("vary", ["cluster.gpus"])])
def test_fields_that_are_no_mapping_name_what_they_are_given_for(name: str, given: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name}: .*, not "):
        stepsim.plan(DOCUMENT, **{name: given})


def test_choices_of_one_step_and_one_memory_are_said_to_be_alike() -> None:
    """FSDP's shards of the second and the third stage are one where nothing is gathered again."""
    found = stepsim.plan(DOCUMENT, fix=FIX, top=1, audit=0, jobs=1)
    (one,) = found.choices
    other = replace(one, settings={**one.settings, "parallelism.zero": 9})
    slower = replace(one, figures=replace(one.figures, step_time_s=2 * one.figures.step_time_s))
    assert alike((one, slower)) == []
    (line,) = alike((one, slower, other))
    assert line == "1, 3: the same step and memory, whatever parallelism.zero is of these"


def test_a_plan_says_of_itself_what_is_best() -> None:
    found = stepsim.plan(DOCUMENT, fix=FIX, top=1, audit=0, jobs=1)
    assert repr(found).startswith(f"<LayoutPlan {found.scenario.name}: ")
    assert len(repr(found)) < 200


def test_a_value_that_no_layout_has_is_counted() -> None:
    """25 GPUs are possible, and no layout of whole hosts has them."""
    space = space_of(small(), fix=FIX, vary={"cluster.gpus": [8, 25]})
    assert len(space)
    assert space.refused["no scenario: cluster.gpus"] == 1
    (out,) = space.left_out
    assert (out.values, out.field) == ({"cluster.gpus": 25}, "cluster.gpus")


def test_sizes_that_lack_a_network_are_told_beside_the_best(scenario: str) -> None:
    """One host needs none, two do: the reason is a short name, the sentence stands by itself."""
    two = ["--vary", "cluster.gpus=8,16", "--set", "cluster.interconnect=null", "--audit", "0"]
    two += [word for name, value in FIX.items() for word in ("--fix", f"{name}={value}")]
    text = " ".join(said("plan", scenario, *two, code=0).split())
    assert "left out: cluster.gpus=16: cluster.interconnect: " in text
    with_json = said("plan", scenario, *two, "--json", code=0)
    told, _, document = with_json.partition("{")
    assert told.startswith("left out: cluster.gpus=16: cluster.interconnect: ")
    found = json.loads("{" + document)
    refused = found["space"]["refused"]
    assert refused["no scenario: cluster.interconnect"] == 1
    assert [one["set"] for one in found["left_out"]] == [{"cluster.gpus": 16}]
    assert all(" " not in reason.partition(": ")[2] for reason in refused)


def test_a_reason_that_most_layouts_have_is_the_one_that_is_told() -> None:
    """No batch would make 12 GPUs whole hosts of 8."""
    wide: dict[str, list[Any]] = {"cluster.gpus": [12], "cluster.interconnect": ["ib-ndr400-x8"]}
    space = space_of(load_scenario("llama3-8b-h100"), vary=wide)
    assert space.refused == {"no scenario: cluster.gpus": 1}
    why = "cluster.gpus: 12 GPUs do not fill hosts of 8; gpus can be 8 or 16"
    assert reasons(space.refused, space.left_out) == f"{why} (1)"


def test_a_field_is_fixed_or_varied() -> None:
    with refused_at("parallelism.tp"):
        space_of(small(), fix={"parallelism.tp": 4}, vary={"parallelism.tp": [1, 2]})
    kept = fixed(["parallelism"], small())
    assert {*space_of(small(), fix=kept, vary={"parallelism.tp": [4]}).columns["parallelism.tp"]} == {4}


def test_a_field_without_a_value_is_kept_where_there_is_one() -> None:
    assert fixed(["parallelism.dp", "training.global_batch"], small()) == {"parallelism.dp": 2}
    with refused_at("training.batch"):
        fixed(["training.batch"], small())


def test_what_is_sought_takes_whole_numbers_and_is_not_fixed() -> None:
    for vary in ({"cluster.gpus": [8, "two"]}, {"cluster.gpus": [None]}):
        with pytest.raises(ValueError, match=r"cluster\.gpus"):
            find("gpus", small(), FIX, vary, WISHES, means=Means(jobs=1))
    with pytest.raises(ValueError, match=r"cluster\.gpus"):
        find("gpus", small(), {**FIX, "cluster.gpus": 4}, {}, WISHES, means=Means(jobs=1))


def test_the_largest_microbatch_is_not_missed_behind_one_that_is_not_legal() -> None:
    """Of a batch of 240 on two replicas 16 is in the middle, and does not divide 120."""
    run = small(training__global_batch=240, training__micro_batch=1, training__seq_length=512)
    fix = {**fixed(["parallelism"], run), **FIX}
    fits = []
    for size in (one for one in range(1, 241) if 240 % one == 0):
        among, _ = candidates_of(run, fix, {"training.micro_batch": [size]}, lambda _: None)
        fits += [size] if (among.fit_probability >= 0.9).any() else []
    assert 16 not in fits
    answer = find("micro_batch", run, fix, {}, WISHES, means=Means(jobs=1))
    assert answer.value == max(fits) > 16


def test_one_number_writes_no_files_of_plans(scenario: str, tmp_path: Path) -> None:
    for option, name in (("--csv", "a.csv"), ("--picture", "a.svg"), ("--save", "folder")):
        words = ("plan", scenario, "--find", "gpus", option, str(tmp_path / name))
        assert option in said(*words, code=2)


def test_a_sweep_over_nothing_that_there_is_is_refused(scenario: str, tmp_path: Path) -> None:
    assert "known" in said("sweep", scenario, "--set", "foo=1", code=2).lower()
    assert "H200-SXM-141GB" in said("sweep", scenario, "--set", "cluster.gpu=NOPE", code=2)
    three = (
        "--set",
        "parallelism.tp=1,2",
        "--set",
        "parallelism.zero=0,1",
        "--set",
        "training.micro_batch=1,2",
    )
    assert "--picture" in said("sweep", scenario, *three, "--picture", str(tmp_path / "a.svg"), code=2)


def test_a_value_that_no_field_can_have_is_a_row_of_a_sweep_beside_one_that_it_can() -> None:
    swept = stepsim.sweep(small(), {"cluster.gpu": ["NOPE", "H100-SXM5-80GB"]}, jobs=1)
    bad, good = swept.points
    assert bad.refused.startswith("cluster.gpu: no GPU is called 'NOPE'")
    assert good.figures is not None


def test_a_sweep_of_refused_points_tells_why_and_draws_nothing(scenario: str, tmp_path: Path) -> None:
    picture = tmp_path / "a.svg"
    told = said("sweep", scenario, "--set", "parallelism.tp=3,5", "--picture", str(picture), code=1)
    assert "does not divide" in " ".join(told.split())
    assert not picture.exists()


def test_points_that_are_no_scenario_are_rows_where_others_are_planned() -> None:
    swept = stepsim.sweep(
        small(), {"cluster.gpus": [2, 0], "parallelism.pp": [1], "parallelism.cp": [1]}, replan=True, jobs=1
    )
    good, bad = swept.points
    assert good.figures is not None
    assert bad.refused.startswith("cluster.gpus")


def test_points_without_a_legal_layout_tell_why() -> None:
    swept = stepsim.sweep(small(), {"training.micro_batch": [1, 7]}, replan=True, jobs=1)
    assert [one.figures is None for one in swept.points] == [False, True]
    assert swept.points[1].refused.startswith("no layout is legal: ")
    assert WORDS["global_batch"] in swept.points[1].refused


@pytest.mark.parametrize(
    ("field", "values"),
    [("cluster.what_if.hbm", [1.0, 2.0]), ("cluster.gpu.memory_bandwidth", ["2 TB/s", "4 TB/s"])],
)
def test_fields_of_a_block_that_was_left_out_may_be_varied(field: str, values: list[Any]) -> None:
    fix = {**FIX, "parallelism.tp": 2, "parallelism.pp": 1, "parallelism.zero": 1}
    found = stepsim.plan(small(), fix=fix, vary={field: values}, top=20, audit=0, jobs=1)
    assert {one.settings[field] for one in found.choices} == {*values}
    assert min(found.choices, key=lambda one: one.figures.step_time_s).settings[field] == values[1]


def test_every_reason_that_a_space_counts_has_words() -> None:
    """And where no layout is legal, they are what is said."""
    odd: dict[str, list[Any]] = {
        "schedule": ["1f1b", "pipedream", "dualpipe"],
        "parallelism.tp": [1, 2, 3],
        "parallelism.cp_a2a": [None, 3],
        "parallelism.fsdp_shard_size": [None, 3],
        "training.recompute": ["none", {"kind": "full", "layers": 9}],
        "training.seq_length": [1024, 1023],
        "training.micro_batch": [1, 8],
    }
    scaled = small(training__precision="fp16", training__loss_scale={})
    spaces = [
        space_of(small()),
        space_of(load_scenario("mixtral-8x7b-h100")),
        space_of(scaled, vary=odd),
        space_of(small(), fix={"parallelism.dp": 3}),
        space_of(small(software="megatron-core-2025", cluster__gpus=16), axes=Axes.ALL),
    ]
    counted = {reason for space in spaces for reason in space.refused if ":" not in reason}
    assert counted == {*WORDS}
    assert nothing(stepsim.plan(small(), fix={"parallelism.tp": 3}, jobs=1))[0].startswith(
        "No layout is legal: tp does not divide the heads"
    )


def test_the_reason_that_left_no_layout_comes_first() -> None:
    """Most are cut since sizes do not divide the GPUs, in any space."""
    (told,) = nothing(stepsim.plan(small(), fix={"training.micro_batch": 7}, jobs=1))
    assert told.startswith("No layout is legal: micro_batch × dp does not divide the batch")


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("tp=2", "elsewhere: parallelism.tp"),
        ("parallelism.tpp=2", "mean parallelism.tp?"),
        ("paralelism.tp=2", "mean parallelism?"),
    ],
)
def test_a_field_that_is_meant_is_named(scenario: str, field: str, meant: str) -> None:
    assert meant in said("plan", scenario, "--fix", field, code=2)


def test_a_job_on_other_gpus_keeps_what_else_it_says_of_its_layout() -> None:
    """Its own dp is of its own number of GPUs."""
    odd = {"kind": "full", "layers": 3, "method": "block"}
    space = space_of(small(parallelism__dp=2, training__recompute=odd), vary={"cluster.gpus": [16]})
    kept = {*space.codes["training.recompute"].tolist()}
    assert odd in [space.values["training.recompute"][code] for code in kept]


def test_a_few_of_many_combinations_that_are_left_out_are_told() -> None:
    many = [
        RefusedValues(values={"cluster.gpus": gpus}, field="cluster", why="no") for gpus in range(LINES + 3)
    ]
    told = told_left_out(many)
    assert told[:LINES] == told_left_out(many[:LINES])
    assert told[0] == "left out: cluster.gpus=0: cluster: no"
    assert told[LINES:] == ["and 3 more left out (--json)"]
