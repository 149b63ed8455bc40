"""Layers with experts among dense ones, by a pattern or a Hugging Face file; what a router is known to do."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from imported_models import import_model
from refusals import refused_at
from small_experts import with_experts
from small_scenarios import lowered
from typer.testing import CliRunner

from stepsim.calibration.cases.model_facts import known_facts
from stepsim.cli.main import app
from stepsim.sim.lowering.sizes import parameters
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.model.catalogue import get_model
from stepsim.sim.scenario.model.model import Model
from stepsim.sim.simulate import simulate

QWEN = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 8,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}


def imported(folder: Path, **fields: Any) -> Model:
    (folder / "config.json").write_text(json.dumps({**QWEN, **fields}), encoding="utf-8")
    return import_model(folder)


def experts_at(model: Model) -> list[int]:
    return [i for i in range(model.num_layers) if model.has_experts(i)]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"decoder_sparse_step": 2}, [1, 3, 5, 7]),
        ({"mlp_only_layers": [0, 3]}, [1, 2, 4, 5, 6, 7]),
        ({"decoder_sparse_step": 2, "mlp_only_layers": [1]}, [3, 5, 7]),
        ({"decoder_sparse_step": 3}, [2, 5]),
    ],
)
def test_experts_are_where_qwens_configuration_puts_them(
    fields: dict[str, Any], expected: list[int], tmp_path: Path
) -> None:
    """Qwen3MoeDecoderLayer: experts where (i + 1) % step is 0 and i is not among the dense ones."""
    model = imported(tmp_path, **fields)
    assert experts_at(model) == expected
    each = 3 * 2048 * 6144 - 3 * 128 * 2048 * 768 - 2048 * 128  # a dense layer in place of one with experts
    fewer = 8 - len(expected)
    assert parameters(model).total - parameters(imported(tmp_path)).total == fewer * each


@given(pattern=st.lists(st.sampled_from([0, 1]), min_size=4, max_size=4).filter(any))
def test_a_step_of_any_pattern(pattern: list[int]) -> None:
    """Kernels of experts run in those layers alone."""
    run = with_experts(layer_freq=pattern, microbatches=1)
    kinds = [run_.kind.experts for run_ in lowered(run).plan.stages[0].runs for _ in range(run_.count)]
    assert kinds == [bool(one) for one in pattern]
    assert simulate(run).step_time_s > 0


def test_an_even_pattern_is_the_frequency() -> None:
    named = with_experts(layer_freq=[1, 0, 1, 0], pp=2)
    assert simulate(named).step_time_s == simulate(with_experts(layer_freq=2, pp=2)).step_time_s
    assert simulate(named, fold=False).step_time_s == pytest.approx(simulate(named).step_time_s, rel=1e-9)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"layer_freq": [1, 0]}, r"layer_freq names 2 layers, but num_layers is 4"),
        ({"layer_freq": [0, 0, 0, 0]}, "layer_freq"),
        ({"layer_freq": [1, 0, 1, 0], "num_dense_layers": 1}, "num_dense_layers"),
        ({"layer_freq": [1, 2, 1, 0]}, "layer_freq"),
    ],
)
def test_patterns_that_do_not_fit(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        with_experts(**fields)


# Counts of a run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[1, .nan, 2, 3]", "[1, -2, 3, 4]", "[.inf, 1, 1, 1]", "[0, 0, 0, 0]", "{}"]
)
def test_counts_that_are_none(text: str, tmp_path: Path) -> None:
    file = tmp_path / "counts.yaml"
    file.write_text(text, encoding="utf-8")
    with refused_at("training.routing.file", str(file)):
        lowered(with_experts(num_experts=4, ep=4, routing={"kind": "counts", "file": str(file)}))


def test_the_command_names_the_field(tmp_path: Path) -> None:
    file = tmp_path / "counts.json"
    file.write_text("[1, NaN, " + ", ".join(["1"] * 254) + "]", encoding="utf-8")
    change = f"training.routing={{kind: counts, file: {file}}}"
    result = CliRunner().invoke(app, ["run", "deepseek-v3-2048-h800", "--set", change])
    assert result.exit_code == 2
    assert "training.routing.file" in result.output


# Facts of routers ---------------------------------------------------------------------------------------


def shapes(name: str) -> dict[str, Any]:
    model = get_model(name).model_dump()
    assert model["moe"]
    del model["moe"]["node_limit"]
    return model


def test_deepseek_v3_is_known_by_its_shape() -> None:
    """Four of eight groups, whatever the layers and the padding of the vocabulary."""
    known = known_facts(shapes("deepseek-v3") | {"num_layers": 4, "vocab_size": 129536})
    assert known["moe"]["node_limit"] == 4
    for other in ("kimi-k2", "mixtral-8x7b"):
        assert "node_limit" not in known_facts(shapes(other))["moe"]
    changed = shapes("deepseek-v3")
    changed["moe"]["topk"] = 6
    assert "node_limit" not in known_facts(changed)["moe"]
    dense = shapes("deepseek-v3") | {"moe": None}
    assert known_facts(dense) == dense


def test_gpt_oss_is_known_by_its_shape_with_its_windows_and_biases() -> None:
    """A case has no field for them; a model of other shapes, or a dense one, gets none."""
    own = ("sliding_window", "full_attention_every", "biases", "clamped_gate")
    shape = {name: value for name, value in get_model("gpt-oss-20b").model_dump().items() if name not in own}
    known = known_facts(shape | {"num_layers": 24, "vocab_size": 128256})
    assert [known[name] for name in own] == [128, 2, True, True]
    assert known["moe"] == shape["moe"]
    assert "sliding_window" not in known_facts(shape | {"kv_channels": 128})


def test_groups_of_a_hugging_face_file(tmp_path: Path) -> None:
    config = {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432, "kv_lora_rank": 512,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "q_lora_rank": 1536,
        "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    }  # fmt: skip
    for groups, expected in (({"n_group": 8, "topk_group": 4}, 4), ({"n_group": 1, "topk_group": 1}, None)):
        (tmp_path / "config.json").write_text(json.dumps(config | groups), encoding="utf-8")
        moe = import_model(tmp_path).moe
        assert moe is not None
        assert moe.node_limit == expected


def test_no_case_has_the_limit_itself() -> None:
    """So that the fact must come from the model."""
    from stepsim.calibration.cases.case import CaseMoe

    fields = asdict(
        CaseMoe(
            num_experts=8, topk=2, expert_ffn_hidden_size=8, num_shared_experts=0,
            shared_expert_ffn_hidden_size=0, num_dense_layers=0, capacity_factor=None,
        )
    )  # fmt: skip
    assert "node_limit" not in fields
