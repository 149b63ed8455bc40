"""Models from a local Hugging Face config.json.

Knows the field names of the dense families below. Any other architecture is refused: a guess about
its layers would be wrong silently. Nothing is downloaded.

References:
    huggingface/transformers, models/*/configuration_*.py (field names and their defaults).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...hardware.catalogue import unknown_name
from .model import Model

Fields = dict[str, Any]


def import_model(path: Path) -> Model:
    """The model of a config.json, or of the folder that holds one.

    Raises:
        ValueError: no such file, no JSON, a missing field, or an architecture that is not known.
    """
    return Model(**config_fields(path))


def config_fields(path: Path) -> Fields:
    """The fields of ``Model`` that a config.json gives. Errors as above."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no file {str(file)!r}") from None
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}") from None
    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in _FAMILIES:
        raise unknown_name("supported Hugging Face model_type", str(family), _FAMILIES)
    try:
        fields = _FAMILIES[family](config)
    except KeyError as error:
        raise ValueError(f"{file} lacks the field {error.args[0]!r}, which {family} models need") from None
    return {"name": file.resolve().parent.name, **fields}


def _llama(config: Fields) -> Fields:
    """Llama, Mistral and their kin: RMSNorm, rotary positions, gated SiLU."""
    _require(config, "hidden_act", "silu")
    return {
        **_shape(config),
        "num_query_groups": config.get("num_key_value_heads") or config["num_attention_heads"],
        "kv_channels": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "swiglu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "biases": config.get("attention_bias", False) and config.get("mlp_bias", False),
        "dropout": float(config.get("attention_dropout", 0.0)),
    }


def _gpt2(config: Fields) -> Fields:
    return {
        "num_layers": config["n_layer"],
        "hidden_size": config["n_embd"],
        "num_attention_heads": config["n_head"],
        "ffn_hidden_size": config.get("n_inner") or 4 * config["n_embd"],
        "vocab_size": config["vocab_size"],
        "mlp": "gelu",
        "tied_embeddings": config.get("tie_word_embeddings", True),
        "dropout": float(config.get("resid_pdrop", 0.1)),
    }


def _gpt_neox(config: Fields) -> Fields:
    """GPT-NeoX and Pythia: GPT-like with rotary positions and no tying."""
    return {
        **_shape(config),
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "gelu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "position": "rope",
        "dropout": float(config.get("hidden_dropout", 0.0)),
    }


def _nemotron(config: Fields) -> Fields:
    """Nemotron-4: squared ReLU, LayerNorm, rotary positions."""
    _require(config, "hidden_act", "relu2")
    return {
        **_shape(config),
        "num_query_groups": config.get("num_key_value_heads") or config["num_attention_heads"],
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "relu2",
        "tied_embeddings": config.get("tie_word_embeddings", False),
    }


_FAMILIES: dict[str, Callable[[Fields], Fields]] = {
    "llama": _llama,
    "mistral": _llama,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "nemotron": _nemotron,
}


def _shape(config: Fields) -> Fields:
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "vocab_size": config["vocab_size"],
    }


def _require(config: Fields, field: str, value: str) -> None:
    if config.get(field, value) != value:
        raise ValueError(
            f"{field} {config[field]!r} is not modelled for {config['model_type']}; it must be {value!r}"
        )
