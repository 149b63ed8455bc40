"""Files of measured cases: read strictly, and mapped to scenarios field by field."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from validation_cases import MOE, NETWORK, case_document, write_cases

from stepsim.calibration.cases.case import build, read_cases
from stepsim.calibration.cases.sweep import layout_fields
from stepsim.calibration.cases.to_scenario import scenario_document, to_scenario


def test_a_sound_file_is_read_whole(tmp_path: Path) -> None:
    path = write_cases(tmp_path / "a.yaml", [case_document(), case_document({"id": "two", "layout.tp": 4})])
    one, two = read_cases(path)
    assert (one.id, one.layout.tp, one.measured.step_time_s) == ("one", 8, 10.0)
    assert replace(two, id="one", layout=replace(two.layout, tp=8)) == one


def test_the_case_of_the_documentation_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(schema: 1\n.*?)```", page, re.DOTALL)
    (tmp_path / "cases.yaml").write_text(text, encoding="utf-8")
    (case,) = read_cases(tmp_path / "cases.yaml")
    assert to_scenario(case).cluster.gpus == case.hardware.gpus


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layout.colour": "red"}, "layout.colour: no field is called 'colour'"),
        (
            {"layout.micro_batchs": 1},
            "layout.micro_batchs: no field is called 'micro_batchs'. Did you mean micro_batch",
        ),
        ({"hardware.gpus": "64"}, "hardware.gpus: a whole number is needed, not '64'"),
        ({"hardware.gpus": True}, "hardware.gpus: a whole number is needed, not True"),
        ({"layout.pp": 0}, "layout.pp: 0 is too small; it must be 1 or more"),
        ({"layout.zero": -1}, "layout.zero: -1 is too small; it must be 0 or more"),
        ({"measured.step_time_s": float("nan")}, "measured.step_time_s: a finite number is needed, not nan"),
        ({"measured.step_time_s": 0}, "measured.step_time_s: 0 is too small; it must be more than 0"),
        ({"measured.step_time_s": None}, "measured.step_time_s: outcome is ok, step time null"),
        ({"measured.outcome": "oom"}, "measured.step_time_s: outcome is oom, step time 10.0"),
        ({"measured.memory_bytes": 1e9}, "measured.memory_kind: goes with memory_bytes"),
        ({"measured.outcome": "fine"}, "measured.outcome: no outcome is called 'fine'. Known: ok, oom"),
        ({"trust": None}, "trust: null is not among the choices 'high', 'medium' or 'low'"),
        ({"model.tied_embeddings": 1}, "model.tied_embeddings: true or false is needed, not 1"),
        ({"model.moe": {"topk": 2}}, "model.moe.num_experts: this field is required"),
        ({"model": None}, "model: a block of fields is needed, not null"),
        ({"layout.stage_split": 4}, "layout.stage_split: a list is needed"),
        ({"layout.stage_split": [4, "four"]}, "layout.stage_split[1]: a whole number is needed, not 'four'"),
        ({"assumed": "layout.tp"}, "assumed: a list is needed"),
        ({"assumed": ["layout.tp", 3]}, "assumed[1]: text is needed, not 3"),
    ],
)
def test_a_mistake_names_file_case_and_field(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = write_cases(tmp_path / "a.yaml", [case_document(), case_document({"id": "two"} | changes)])
    with pytest.raises(ValueError, match=r"a\.yaml: case two: ") as error:
        read_cases(path)
    assert str(error.value).startswith(f"{path}: case two: {said}")


@pytest.mark.parametrize("told", [None, 0])
def test_a_case_may_have_queries_without_a_low_rank(tmp_path: Path, told: int | None) -> None:
    sizes = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    changes = {"model.attention": "mla", "model.mla": {"q_lora_rank": told} | sizes}
    (case,) = read_cases(write_cases(tmp_path / "a.yaml", [case_document(changes)]))
    found = to_scenario(case).model.mla
    assert found is not None
    assert found.q_lora_rank is None


@pytest.mark.parametrize("dotted", ["measured_network", "layout.dp", "software.balanced_routing"])
def test_a_missing_key_is_a_mistake_even_where_null_is_allowed(tmp_path: Path, dotted: str) -> None:
    document = case_document()
    *blocks, key = dotted.split(".")
    block = document
    for name in blocks:
        block = block[name]
    del block[key]
    with pytest.raises(ValueError, match=f"case one: {dotted}: "):
        read_cases(write_cases(tmp_path / "a.yaml", [document]))


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    wrong = [{"layout.pp": 0, "trust": 1}, {"id": "two"}, {"id": "three", "model": None}]
    path = write_cases(tmp_path / "a.yaml", [case_document(changes) for changes in wrong])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="case three") as error:
        read_cases(path)
    told = [line.split(": ")[1:3] for line in str(error.value).splitlines()]
    assert told == [["case one", "trust"], ["case one", "layout.pp"], ["case three", "model"]]


def test_an_id_occurs_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="case one: id: occurs twice"):
        read_cases(write_cases(tmp_path / "a.yaml", [case_document(), case_document()]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("schema: 1\nkind: kernels\nsources: {}\npoints: []\n", "has schema, kind, sources, points"),
        ("schema: 2\nsource: {}\ncases: []\n", "schema: must be 1, is 2"),
        ("schema: 1\nsource: {}\ncases: []\n", "cases: the list"),
        ("schema: 1\nsource: {}\ncases: {}\n", "cases: must"),
        ("- 1\n", "has [1]"),
        ("schema: [1\n", "valid YAML"),
        ("schema: 1\nsource: {}\ncases: [7]\n", "case number 1: "),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.yaml:") as error:
        read_cases(path)
    assert said in str(error.value)


def test_every_configured_field_reaches_the_scenario() -> None:
    case = build(case_document({"measured_network": NETWORK, "layout.stage_split": "uniform"}))
    scenario = to_scenario(case)
    assert (scenario.cluster.gpu, scenario.cluster.gpus, scenario.cluster.interconnect) == (
        "A100-SXM4-80GB",
        64,
        "ib-hdr200-x8",
    )
    assert (scenario.parallelism.tp, scenario.parallelism.pp, scenario.parallelism.vpp) == (8, 4, 3)
    assert (scenario.parallelism.dp, scenario.parallelism.zero, scenario.parallelism.sequence_parallel) == (
        2,
        1,
        True,
    )
    assert (scenario.training.seq_length, scenario.training.micro_batch, scenario.num_microbatches) == (
        2048,
        1,
        32,
    )
    assert (scenario.training.precision, scenario.training.recompute) == ("fp16", "selective")
    assert (scenario.schedule, scenario.software.name) == ("interleaved", "megatron-2022-sp")
    assert (scenario.model.vocab_size, scenario.model.tied_embeddings) == (51200, True)
    assert scenario.cluster.measured_network is not None
    assert scenario.cluster.measured_network.all_reduce_bytes_per_s == 425.34e9
    assert scenario.cluster.measured_network.reduce_scatter_intra_bytes_per_s == 240.63e9


def test_a_case_may_list_the_layers_of_each_chunk() -> None:
    layers = [5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3]
    case = build(case_document({"layout.stage_split": layers}))
    assert to_scenario(case).parallelism.stage_split == tuple(layers)
    assert layout_fields(case)["parallelism.stage_split"] == tuple(layers)


def test_only_the_configuration_reaches_the_scenario() -> None:
    case = build(case_document())
    measured = replace(case.measured, step_time_s=99.0, memory_bytes=1e9, memory_kind="reserved")
    other = replace(
        case,
        id="x",
        family="y",
        trust="low",
        measured=measured,
        assumed=("layout.tp",),
        notes="An OOM nearby.",
    )
    assert scenario_document(other) == scenario_document(case)
    assert other.regime == case.regime


@pytest.mark.parametrize(
    ("changes", "regime"),
    [
        ({}, "A100-SXM4-80GB dense tp+pp+dp"),
        ({"layout.cp": 2, "layout.dp": 1}, "A100-SXM4-80GB dense tp+cp+pp"),
        ({"model.moe": MOE, "layout.ep": 2, "layout.pp": 1}, "A100-SXM4-80GB moe tp+ep+dp"),
        ({"layout.tp": 1, "layout.pp": 1, "layout.dp": 1}, "A100-SXM4-80GB dense one GPU"),
    ],
)
def test_the_regime_names_gpu_kind_and_axes_in_use(changes: dict[str, Any], regime: str) -> None:
    assert build(case_document(changes)).regime == regime
