"""Model shapes: published sizes, Megatron's formulas, defaults, Hugging Face import."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from imported_models import import_model
from pydantic import ValidationError

from stepsim.hardware.catalogue import UnknownName
from stepsim.sim.lowering.recomputed_flops import recomputed_layer_flops
from stepsim.sim.lowering.sizes import model_flops, parameters
from stepsim.sim.scenario.model.catalogue import get_model, model_names
from stepsim.sim.scenario.model.model import Model

# Billions of parameters, with the digits that the publication prints, and the rows of its position table.
PUBLISHED = {
    "gpt3-175b": ("174.6", 2048),
    "gpt-1t": ("1008.0", 2048),
    "gpt-145b": ("145.6", 2048),
    "gpt-76b": ("76.1", 2048),
    "gpt-18b": ("18.4", 2048),
    "gpt-7.5b": ("7.5", 2048),
    "gpt-1.7b": ("1.7", 2048),
    "gpt-22b": ("22", 2048),
    "mt-nlg-530b": ("529.6", 2048),
    "gpt2-1.5b": ("1.558", 1024),
    "llama-7b": ("6.7", 0),
    "llama-13b": ("13.0", 0),
    "llama-30b": ("32.5", 0),
    "llama-65b": ("65.29", 0),
    "llama2-7b": ("6.74", 0),
    "llama2-13b": ("13.02", 0),
    "llama2-70b": ("68.98", 0),
    "llama3-8b": ("8.03", 0),
    "llama3-70b": ("70.55", 0),
    "llama3.1-405b": ("405.85", 0),
    "mistral-7b": ("7.24", 0),
    "nemotron4-15b": ("15.6", 0),
    "nemotron4-340b": ("341", 0),
}

gpt_shapes = st.builds(
    lambda heads, head_dim, layers, vocab: Model.model_validate(
        {
            "num_layers": layers,
            "hidden_size": heads * head_dim,
            "num_attention_heads": heads,
            "ffn_hidden_size": 4 * heads * head_dim,
            "vocab_size": vocab,
            "mlp": "gelu",
            "tied_embeddings": True,
        }
    ),
    heads=st.integers(1, 128),
    head_dim=st.sampled_from([64, 96, 128]),
    layers=st.integers(1, 128),
    vocab=st.integers(2, 256_000),
)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_parameter_counts(name: str) -> None:
    count, positions = PUBLISHED[name]
    digits = len(count.partition(".")[2])
    assert f"{parameters(get_model(name), positions=positions).total / 1e9:.{digits}f}" == count


def test_llama_counts_to_the_last_parameter() -> None:
    # meta-llama/Meta-Llama-3-8B and Llama-3.1-405B, safetensors index (total parameters)
    assert parameters(get_model("llama3-8b")).total == 8_030_261_248
    assert parameters(get_model("llama3.1-405b")).total == 405_853_388_800


def test_every_catalogue_entry_is_sound_and_cited() -> None:
    entries = yaml.safe_load(
        (files("stepsim.sim.scenario.model") / "catalogue.yaml").read_text(encoding="utf-8")
    )
    assert len(model_names()) >= 12
    for name in model_names():
        assert get_model(name).name == name
        assert len(entries[name]["source"]) > 20


@given(model=gpt_shapes, batch=st.integers(1, 4096), seq=st.sampled_from([512, 2048, 8192]))
def test_flops_are_megatrons_formula(model: Model, batch: int, seq: int) -> None:
    h, layers, vocab = model.hidden_size, model.num_layers, model.embedding_rows
    # Narayanan et al. 2021 equation 3 (full recomputation) and Korthikanti et al. 2022 equation 7 (none).
    hardware = 96 * batch * seq * layers * h**2 * (1 + seq / (6 * h) + vocab / (16 * layers * h))
    needed = 72 * batch * seq * layers * h**2 * (1 + seq / (6 * h) + vocab / (12 * layers * h))
    again = layers * recomputed_layer_flops(model, batch * seq, seq, 0, modules={"full"})
    assert model_flops(model, batch, seq) == pytest.approx(needed, rel=1e-12)
    assert model_flops(model, batch, seq) + again == pytest.approx(hardware, rel=1e-12)


@given(model=gpt_shapes, seq=st.sampled_from([512, 2048, 8192]))
def test_causal_attention_halves_the_scores_only(model: Model, seq: int) -> None:
    core, layers = {"core_attn"}, model.num_layers
    scores = layers * recomputed_layer_flops(model, seq, seq, 0, modules=core)
    half = layers * recomputed_layer_flops(model, seq, seq, 0, modules=core, causal=True)
    assert half == scores / 2
    saved = model_flops(model, 1, seq) - model_flops(model, 1, seq, causal=True)
    assert saved == pytest.approx(3 * half, rel=1e-9)


@given(model=gpt_shapes, divisor=st.sampled_from([1, 64, 128]), tp=st.sampled_from([1, 2, 4, 8]))
def test_padding_is_the_next_multiple_and_happens_once(model: Model, divisor: int, tp: int) -> None:
    model = model.model_copy(update={"make_vocab_size_divisible_by": divisor})
    padded = model.padded_for(tp)
    assert padded.embedding_rows % (divisor * tp) == 0
    assert 0 <= padded.embedding_rows - model.vocab_size < divisor * tp
    assert padded.padded_for(tp) == padded


def test_gpt2_vocabulary_is_padded_as_megatron_does() -> None:
    model = get_model("gpt2-1.5b").model_copy(update={"make_vocab_size_divisible_by": 128})
    assert model.padded_for(1).embedding_rows == 50304
    assert model.padded_for(8).embedding_rows == 51200


def test_the_mlp_implies_the_rest_of_the_family() -> None:
    gpt, llama, nemotron = get_model("gpt3-175b"), get_model("llama3-8b"), get_model("nemotron4-15b")
    assert (gpt.norm, gpt.position, gpt.biases, gpt.dropout) == ("layernorm", "learned", True, 0.1)
    assert (llama.norm, llama.position, llama.biases, llama.dropout) == ("rmsnorm", "rope", False, 0.0)
    assert (nemotron.norm, nemotron.position, nemotron.biases) == ("layernorm", "rope", False)
    assert (gpt.attention, llama.attention) == ("mha", "gqa")
    assert (gpt.kv_channels, llama.kv_channels) == (128, 128)


def test_contradictory_shapes_are_refused() -> None:
    shape = get_model("llama3-8b").model_dump()
    for change, words in (
        ({"num_query_groups": 7}, "must divide num_attention_heads"),
        ({"attention": "mha"}, "is mha"),
        ({"attention": "mla"}, "mla"),
        ({"num_layers": True}, "whole number"),
        ({"num_layers": "32"}, "whole number"),
    ):
        with pytest.raises(ValidationError, match=words):
            Model(**{**shape, **change})


@pytest.mark.parametrize("field", ["vocab_size", "padded_vocab_size", "hidden_size"])
def test_sizes_of_which_one_is_nothing(field: str) -> None:
    """One token leaves nothing to predict, and a norm over one value is a constant."""
    with pytest.raises(ValidationError) as refusal:
        Model(**{**get_model("llama3-8b").model_dump(), field: 1})
    assert [(error["loc"], error["ctx"]) for error in refusal.value.errors()] == [((field,), {"ge": 2})]


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownName) as refusal:
        get_model("llama-3.1-406b")
    assert refusal.value.nearest == "llama3.1-405b"


LLAMA3_8B = {
    "model_type": "llama", "hidden_act": "silu", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "tie_word_embeddings": False, "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip
GPT2_XL = {"model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "vocab_size": 50257}
PYTHIA_1B = {
    "model_type": "gpt_neox", "num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 8,
    "intermediate_size": 8192, "vocab_size": 50304, "hidden_act": "gelu",
}  # fmt: skip


def _config(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def test_hugging_face_configs_of_known_families(tmp_path: Path) -> None:
    llama = import_model(_config(tmp_path, LLAMA3_8B))
    assert llama.model_copy(update={"name": "llama3-8b"}) == get_model("llama3-8b")
    gpt2 = import_model(_config(tmp_path, GPT2_XL))
    assert parameters(gpt2, positions=1024).total == 1_557_611_200  # openai-community/gpt2-xl
    pythia = import_model(_config(tmp_path, PYTHIA_1B).parent)
    assert parameters(pythia).total == 1_011_781_632  # EleutherAI/pythia-1b


def test_hugging_face_configs_that_are_not_understood(tmp_path: Path) -> None:
    for config, words in (
        ({**LLAMA3_8B, "model_type": "mamba"}, "mamba.*Known: llama, mistral, mixtral"),
        ({**LLAMA3_8B, "hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"model_type": "gpt2"}, "'n_layer'"),
        ([], "Known: llama"),
    ):
        with pytest.raises(ValueError, match=words):
            import_model(_config(tmp_path, config))
    with pytest.raises(ValueError, match="no file"):
        import_model(tmp_path / "absent.json")
