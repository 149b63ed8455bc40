"""Every field of a config.json is of its type, or the message names the file, the field and the type."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from imported_models import import_model

from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.model.catalogue import get_model
from stepsim.sim.scenario.model.config_types import TYPES
from stepsim.sim.scenario.model.huggingface import _FAMILIES, config_fields
from stepsim.sim.scenario.model.model import Model

COMMON = {
    "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 1024,
    "vocab_size": 1000, "num_key_value_heads": 4, "head_dim": 64,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
LATENT = {
    "kv_lora_rank": 64, "q_lora_rank": 96, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
    "n_group": 4, "topk_group": 2,
}  # fmt: skip
LOCAL = {"num_local_experts": 8, "num_experts_per_tok": 2}
WHOLE: dict[str, dict[str, Any]] = {
    "gpt2": {
        "n_layer": 4, "n_embd": 512, "n_head": 8, "vocab_size": 50257, "activation_function": "gelu_new",
    },
    "mixtral": {**COMMON, **LOCAL},
    "gpt_oss": {
        **COMMON, **LOCAL, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "qwen3_moe": {**COMMON, **EXPERTS, "decoder_sparse_step": 2, "mlp_only_layers": [0]},
    "deepseek_v2": {**COMMON, **LATENT}, "deepseek_v3": {**COMMON, **LATENT},
    "kimi_k2": {**COMMON, **LATENT}, "grok-1": {**COMMON, "num_experts": 8, "num_experts_per_tok": 2},
    "gpt_neox": {key: COMMON[key] for key in COMMON if key not in ("num_key_value_heads", "head_dim")},
}  # fmt: skip
WRONG: dict[str, tuple[Any, ...]] = {
    "whole": ("1024", True, -5, 3.5, 1e300, [], {}, 10**13),
    "true or": ("true", 1, 0.0, []),
    "a number": ("0.1", True, -0.1, 1, float("nan"), []),
    "text": (5, True, [], {}),
    "a list": ("none", 5, [None], [[]], {"0": 1}, [True]),
}


def base(family: str) -> dict[str, Any]:
    return {"model_type": family, **WHOLE.get(family, COMMON)}


def written(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def read_by(family: str) -> set[str]:
    """Fields that the family asks for, found by reading its base without each of them."""
    from stepsim.sim.scenario.model.config_types import Config

    config = Config(base(family))
    _FAMILIES[family](config)
    return config.read


@pytest.mark.parametrize("family", _FAMILIES)
def test_every_field_that_is_read_has_a_type(family: str, tmp_path: Path) -> None:
    assert isinstance(import_model(written(tmp_path, base(family))), Model)
    assert read_by(family) <= set(TYPES)


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in _FAMILIES for name in sorted(read_by(family))]
)
def test_another_type_is_refused_by_file_and_field(family: str, name: str, tmp_path: Path) -> None:
    what = TYPES[name][0]
    probes = next(values for start, values in WRONG.items() if what.removeprefix("a ").startswith(start)
                  or what.startswith(start))  # fmt: skip
    for probe in probes:
        path = written(tmp_path, {**base(family), name: probe})
        number = not isinstance(probe, float) or math.isfinite(probe)  # nan and inf are not JSON at all
        with pytest.raises(ValueError, match=name if number and name != "model_type" else None) as refusal:
            config_fields(path)
        assert str(path) in str(refusal.value)
        assert len(str(refusal.value)) < 1000


@pytest.mark.parametrize("family", [["llama"], 5, None, True, {"llama": 1}])
def test_a_family_is_text(family: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json:.*model_type"):
        config_fields(written(tmp_path, {**COMMON, "model_type": family}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(family=st.sampled_from(sorted(_FAMILIES)), name=st.sampled_from(sorted(TYPES)), value=JSON)
def test_any_value_of_any_field_is_a_model_or_a_message(
    family: str, name: str, value: Any, tmp_path: Path
) -> None:
    with suppress(ValueError):
        import_model(written(tmp_path, {**base(family), name: value}))


def test_null_counts_as_left_out(tmp_path: Path) -> None:
    gpt2 = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257}
    model = import_model(written(tmp_path, {**gpt2, "resid_pdrop": None, "n_inner": None}))
    assert model.model_copy(update={"name": "gpt2-1.5b"}) == get_model("gpt2-1.5b")


def test_a_gpt2_file_runs_under_tensor_parallelism(tmp_path: Path) -> None:
    config = written(tmp_path, base("gpt2"))
    scenario = load_scenario("llama3-8b-h100", {"model": str(config), "parallelism.tp": 4})
    assert (scenario.model.vocab_size, scenario.model.embedding_rows) == (50257, 50688)


def test_every_second_layer_of_gpt_oss_has_a_window_also_where_layer_types_are_left_out(
    tmp_path: Path,
) -> None:
    """transformers' GptOssConfig makes them so."""
    told = config_fields(written(tmp_path, base("gpt_oss")))
    untold = config_fields(
        written(tmp_path, {key: value for key, value in base("gpt_oss").items() if key != "layer_types"})
    )
    assert untold == told
    assert (told["sliding_window"], told["full_attention_every"]) == (128, 2)


@pytest.mark.parametrize(("family", "width"), [("qwen3", 128), ("gpt_oss", 64), ("qwen3_moe", 32)])
def test_heads_without_a_dimension_have_that_of_transformers(family: str, width: int, tmp_path: Path) -> None:
    """The classes of Qwen3 and GPT-OSS have a default; Qwen3's experts divide the hidden size."""
    config = {key: value for key, value in base(family).items() if key != "head_dim"}
    fields = config_fields(written(tmp_path, {**config, "num_attention_heads": 16}))
    assert fields["kv_channels"] == width


def test_experts_of_qwen3_are_counted_by_either_name(tmp_path: Path) -> None:
    """transformers 5 writes num_local_experts."""
    config = base("qwen3_moe")
    told = config_fields(written(tmp_path, config))
    config["num_local_experts"] = config.pop("num_experts")
    assert config_fields(written(tmp_path, config)) == told


def test_layer_types_name_every_layer(tmp_path: Path) -> None:
    config = {**base("gpt_oss"), "layer_types": ["sliding_attention"] * 3}
    with pytest.raises(ValueError, match="layer_types names 3 layers, but num_hidden_layers is 4"):
        config_fields(written(tmp_path, config))
