"""Models with experts, latent attention and windows: published sizes, Hugging Face configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from imported_models import import_model

from stepsim.sim.lowering.sizes import layer_attention_flops, model_flops, parameters
from stepsim.sim.scenario.model.catalogue import get_model, model_names
from stepsim.sim.scenario.model.model import Model

BILLION = 1e9

# Papers and model cards named in catalogue.yaml: total, and active where the source counts all matrices.
PUBLISHED = {
    "mixtral-8x7b": (46.7, 12.9),
    "mixtral-8x22b": (141.0, 39.0),
    "deepseek-v2-lite": (15.7, None),
    "deepseek-v2": (236.0, 21.0),
    "deepseek-v3": (671.0, 37.0),
    "kimi-k2": (1040.0, 32.6),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-235b-a22b": (235.0, 22.0),
    "grok-1": (314.0, None),
    "gpt-oss-20b": (20.9, None),
    "gpt-oss-120b": (116.8, None),
}

ROPE = {"hidden_act": "silu", "rope_theta": 10000.0, "rms_norm_eps": 1e-06, "max_position_embeddings": 32768}

CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "deepseek-v2": {
        "model_type": "deepseek_v2",
        "attention_bias": False,
        "first_k_dense_replace": 1,
        "hidden_size": 5120,
        "intermediate_size": 12288,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 1536,
        "moe_layer_freq": 1,
        "n_routed_experts": 160,
        "n_shared_experts": 2,
        "num_attention_heads": 128,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 60,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 102400,
        "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "attention_bias": False,
        "first_k_dense_replace": 3,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 129280,
        "num_nextn_predict_layers": 1,
        "tie_word_embeddings": False,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "max_window_layers": 48,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "sliding_window": None,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "grok-1": {
        "model_type": "grok-1",
        "hidden_size": 6144,
        "intermediate_size": 32768,
        "num_attention_heads": 48,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "vocab_size": 131072,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "attention_bias": True,
        "head_dim": 64,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "sliding_window": 128,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "vocab_size": 201088,
    },
    "mistral-7b": {
        "model_type": "mistral",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "vocab_size": 32000,
    },
    "nemotron4-15b": {
        "model_type": "nemotron",
        "hidden_act": "relu2",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "num_attention_heads": 48,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "vocab_size": 256000,
    },
}


def _imported(folder: Path, config: dict[str, Any]) -> Model:
    path = folder / "config.json"
    path.write_text(json.dumps({**ROPE, **config}), encoding="utf-8")
    return import_model(path)


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name: str) -> None:
    total, active = PUBLISHED[name]
    model = get_model(name)
    counted = parameters(model)
    served = counted.total - counted.prediction
    assert served / BILLION == pytest.approx(total, rel=0.015)
    if active:
        assert model.moe
        idle = counted.experts * (1 - model.moe.topk / model.moe.num_experts)
        assert (served - idle) / BILLION == pytest.approx(active, rel=0.025)


def test_every_model_with_experts_is_held_against_its_source() -> None:
    assert {name for name in model_names() if get_model(name).moe} == set(PUBLISHED)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_the_model_of_the_catalogue(name: str, tmp_path: Path) -> None:
    mine, known = (
        m.model_dump(exclude={"name"}) for m in (_imported(tmp_path, CONFIGS[name]), get_model(name))
    )
    if known["moe"]:
        del mine["moe"]["node_limit"], known["moe"]["node_limit"]  # a matter of the router, not of shapes
    assert mine == known


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("nemotron4-15b", "sliding_window", 4096),
        ("nemotron4-15b", "attention_bias", True),
        ("mistral-7b", "num_local_experts", 8),
        ("mistral-7b", "n_routed_experts", 8),
        ("mistral-7b", "layer_types", ["full_attention", "sliding_attention"]),
        ("mixtral-8x7b", "n_shared_experts", 1),
        ("mixtral-8x7b", "attention_bias", True),
        ("qwen3-30b-a3b", "decoder_sparse_step", 49),
        ("deepseek-v3", "attention_bias", True),
        ("gpt-oss-20b", "layer_types", ["full_attention"] + ["sliding_attention"] * 23),
        ("grok-1", "moe_intermediate_size", 1024),
    ],
)
def test_a_field_that_shapes_layers_is_honoured_or_refused(
    name: str, field: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=field):
        _imported(tmp_path, {**CONFIGS[name], field: value})


def test_windows_leave_the_scores_that_they_show() -> None:
    model = get_model("gpt-oss-20b")
    length = 4096
    windowed, full = (
        layer_attention_flops(model, length, length, causal=True, layer=layer) for layer in (0, 1)
    )
    seen = sum(min(position + 1, 128) for position in range(length))
    assert windowed / full == pytest.approx(seen / sum(range(1, length + 1)), rel=2e-2)


def test_experts_that_no_token_visits_cost_nothing() -> None:
    model = get_model("qwen3-30b-a3b")
    assert model.moe
    fewer = model.model_copy(update={"moe": model.moe.model_copy(update={"num_experts": 64})})
    router = 3 * 2 * 64 * model.hidden_size * model.num_layers * 4096
    assert model_flops(model, 1, 4096) - model_flops(fewer, 1, 4096) == pytest.approx(router)


def test_queries_without_a_low_rank_are_one_matrix_of_the_model() -> None:
    """DeepSeek-V2-Lite by its configuration: every matrix and norm counted by hand."""
    h, heads, rank, rope, layers, vocabulary = 2048, 16, 512, 64, 27, 102_400
    queries, compressed = h * heads * (128 + rope), h * (rank + rope) + rank + rank * heads * (128 + 128)
    attention = queries + compressed + heads * 128 * h + 2 * h
    experts, dense = 3 * h * (64 * 1408 + 2 * 1408) + 64 * h, 3 * h * 10_944
    total = layers * attention + dense + (layers - 1) * experts + 2 * vocabulary * h + h
    assert parameters(get_model("deepseek-v2-lite")).total == total == 15_706_484_224


@pytest.mark.parametrize("told", ["none", 0, None])
def test_a_low_rank_of_queries_may_be_none(told: object) -> None:
    lite = get_model("deepseek-v2-lite")
    document = lite.model_dump() | {"mla": lite.model_dump()["mla"] | {"q_lora_rank": told}}
    assert Model.model_validate(document) == lite


def test_a_wrong_low_rank_of_queries_is_refused() -> None:
    lite = get_model("deepseek-v2-lite").model_dump()
    for wrong in (False, -1, "low"):
        with pytest.raises(ValueError, match="q_lora_rank"):
            Model.model_validate(lite | {"mla": lite["mla"] | {"q_lora_rank": wrong}})
