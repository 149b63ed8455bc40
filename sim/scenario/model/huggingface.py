"""Models from a local Hugging Face config.json.

Knows the field names of the families below. Any other architecture is refused: a guess about its layers
would be wrong silently. So is a field that shapes layers (``_SHAPING``), is set, and is none that its
family reads. Nothing is downloaded.

References:
    huggingface/transformers, models/*/configuration_*.py (field names and their defaults);
    modeling_deepseek.py, configuration_grok1.py beside the weights of those models.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....hardware.catalogue import unknown_name
from ....hardware.files import JsonLimits, load_json, read_bytes
from .config_types import Config

_LIMITS = JsonLimits(bytes=4 * 2**20, entries=100_000, unique_keys=False)  # others write these files

Fields = dict[str, Any]

_SHAPING: dict[str, tuple[Any, ...]] = {
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_bias": (None, False),
    "qkv_bias": (None, False),
    "sliding_window": (None,),
    "use_sliding_window": (None, False, True),
    "layer_types": (None,),
    "num_key_value_heads": (None,),
    "head_dim": (None,),
    "num_local_experts": (None, 0, 1),
    "num_experts": (None, 0, 1),
    "n_routed_experts": (None, 0),
    "num_experts_per_tok": (None,),
    "num_experts_per_token": (None,),
    "moe_intermediate_size": (None,),
    "shared_expert_intermediate_size": (None, 0),
    "n_shared_experts": (None, 0),
    "first_k_dense_replace": (None, 0),
    "decoder_sparse_step": (None, 1),
    "mlp_only_layers": (None, []),
    "moe_layer_freq": (None, 1),
    "q_lora_rank": (None,),
    "kv_lora_rank": (None,),
    "num_nextn_predict_layers": (None, 0),
    "n_inner": (None,),
    "parallel_attn": (None, False),
    "hybrid_override_pattern": (None,),
    "attn_layer_period": (None,),
    "attn_layer_offset": (None,),
    "linear_num_value_heads": (None,),
    "full_attention_interval": (None,),
    "cross_attention_layers": (None, []),
    "num_memory_blocks": (None, 0),
}
"""Fields that change layers, each with the values that change nothing where a family does not read it."""


def _refuse_unread(config: Config) -> None:
    """Raise ValueError for a field that shapes layers and that nobody has read."""
    for name, harmless in _SHAPING.items():
        value = config.fields.get(name)
        if name not in config.read and value not in harmless:
            raise ValueError(
                f"{name} {value!r:.60} is not modelled for {config['model_type']}; "
                "describe the model by its own fields in the scenario"
            )


def config_fields(path: Path) -> Fields:
    """The fields of ``Model`` that a config.json, or the folder that holds one, gives.

    Raises:
        ValueError: no such file, no JSON, a missing field, an architecture that is not known, or a field
            that shapes layers in a way that is not modelled.
    """
    file = path / "config.json" if path.is_dir() else path
    config = load_json(read_bytes(file, limit=_LIMITS.bytes), file, _LIMITS)
    family = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(family, str) or family not in _FAMILIES:
        known = unknown_name("supported Hugging Face model_type", f"{family!s:.60}", _FAMILIES)
        raise ValueError(f"{file}: {known}")
    try:
        fields = family_fields(family, config)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    return {"name": file.resolve().parent.name, **fields}


def family_fields(family: str, config: Fields) -> Fields:
    """The fields of ``Model`` that a configuration of that ``model_type`` gives, which may say no type
    itself.

    Raises:
        ValueError: a missing field, or one that shapes layers in a way that is not modelled.
    """
    reader = Config({"model_type": family, **config})
    try:
        fields = _FAMILIES[family](reader)
        _refuse_unread(reader)
    except KeyError as error:
        raise ValueError(f"the field {error.args[0]!r} is missing, which {family} models need") from None
    return fields


def _llama(config: Config) -> Fields:
    """Llama, Mistral and their kin: RMSNorm, rotary positions, gated SiLU."""
    _require(config, "hidden_act", "silu")
    attention, mlp = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    if attention != mlp:
        raise ValueError(
            f"attention_bias {attention} with mlp_bias {mlp} is not modelled: biases go together here"
        )
    return {
        **_grouped_heads(config),
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "swiglu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "biases": attention,
        "dropout": float(config.get("attention_dropout", 0.0)),
    }


def _mistral(config: Config) -> Fields:
    """Llama with a window in every layer."""
    return {**_llama(config), **_window(config)}


def _mixtral(config: Config) -> Fields:
    """Mistral with experts in every layer, each as wide as its MLP."""
    moe = {
        "num_experts": config["num_local_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn_hidden_size": config["intermediate_size"],
    }
    return {**_mistral(config), "moe": moe}


def _qwen2(config: Config) -> Fields:
    """Llama with biases of queries, keys and values alone, and at will a window."""
    window = _window(config) if config.get("use_sliding_window") else {}
    config.get("sliding_window"), config.get("max_window_layers"), config.get("layer_types")
    if window and config.get("max_window_layers", 0):
        raise ValueError("max_window_layers is not modelled: a window is in every layer, or in every second")
    return {**_llama(config), "qkv_biases": True, **window}


def _qwen3(config: Config) -> Fields:
    """Llama with head dimensions of its own, 128 where none is stated, and norms of queries and keys."""
    return {**_normed_heads(config), "kv_channels": config.get("head_dim", 128)}  # configuration_qwen3.py


def _normed_heads(config: Config) -> Fields:
    """Qwen2 with norms of queries and keys in place of biases."""
    return {**_qwen2(config), "qkv_biases": False, "qk_norm": True}


def _qwen3_moe(config: Config) -> Fields:
    """Qwen3 with experts in each ``decoder_sparse_step``-th layer that is not among ``mlp_only_layers``."""
    moe: Fields = {
        # transformers 5 writes the name that its attribute_map puts in place of the other
        "num_experts": config["num_local_experts" if "num_local_experts" in config else "num_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn_hidden_size": config["moe_intermediate_size"],
    }
    step, dense = config.get("decoder_sparse_step") or 1, config.get("mlp_only_layers") or []
    layers = [int((i + 1) % step == 0 and i not in dense) for i in range(config["num_hidden_layers"])]
    if not any(layers):
        raise ValueError(
            f"decoder_sparse_step {step} and mlp_only_layers {dense} leave no layer with experts"
        )
    if not all(layers):
        moe["layer_freq"] = layers
    return {**_normed_heads(config), "moe": moe}


def _deepseek(config: Config) -> Fields:
    """DeepSeek-V2 and V3, Kimi K2: latent attention, shared experts, dense layers first."""
    _require(config, "hidden_act", "silu")
    _require(config, "attention_bias", False)
    shared = config.get("n_shared_experts") or 0
    config.get("num_key_value_heads"), config.get("head_dim")  # latent attention has neither
    mla = {
        "kv_lora_rank": config["kv_lora_rank"],
        "qk_nope_head_dim": config["qk_nope_head_dim"],
        "qk_rope_head_dim": config["qk_rope_head_dim"],
        "v_head_dim": config["v_head_dim"],
    }
    if rank := config.get("q_lora_rank"):
        mla["q_lora_rank"] = rank
    fields = {
        **_shape(config),
        "kv_channels": config["v_head_dim"],
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "swiglu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "mla": mla,
        "mtp_layers": config.get("num_nextn_predict_layers") or 0,
    }
    if config.get("n_routed_experts"):
        width = config["moe_intermediate_size"]
        fields["moe"] = {
            "num_experts": config["n_routed_experts"],
            "topk": config["num_experts_per_tok"],
            "expert_ffn_hidden_size": width,
            "num_shared_experts": shared,
            "shared_expert_ffn_hidden_size": shared * width,
            "num_dense_layers": config.get("first_k_dense_replace") or 0,
            "layer_freq": config.get("moe_layer_freq") or 1,
        }
        groups, chosen = config.get("n_group") or 1, config.get("topk_group") or 1
        if chosen < groups:  # experts of a group are on one host (arXiv:2412.19437 section 2.1.2)
            fields["moe"]["node_limit"] = chosen
    return fields


def _gpt_oss(config: Config) -> Fields:
    """GPT-OSS: experts with biases, a window in every second layer, also where no ``layer_types`` say so."""
    moe = {
        "num_experts": config["num_local_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn_hidden_size": config["intermediate_size"],
    }
    return {
        **_grouped_heads(config),
        **({} if "head_dim" in config else {"kv_channels": 64}),  # configuration_gpt_oss.py
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "swiglu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "biases": bool(config.get("attention_bias", True)),
        "clamped_gate": True,  # transformers models/gpt_oss: swiglu_limit
        "moe": moe,
        **_window(config, every=2),  # transformers models/gpt_oss/configuration_gpt_oss.py, layer_types None
    }


def _grok(config: Config) -> Fields:
    """Grok-1: gated GELU, whose matrices are SwiGLU's, in every expert."""
    moe = {
        "num_experts": config["num_experts"],
        "topk": config["num_experts_per_tok"],
        "expert_ffn_hidden_size": config["intermediate_size"],
    }
    return {
        **_grouped_heads(config),
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "swiglu",
        "tied_embeddings": config.get("tie_word_embeddings", True),
        "moe": moe,
    }


def _gpt2(config: Config) -> Fields:
    """GPT-2. Its 50,257 rows divide by nothing but 29 and 1733; who pads them is the software's to say."""
    _gelu(config, "activation_function")
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


def _gpt_neox(config: Config) -> Fields:
    """GPT-NeoX and Pythia: GPT-like with rotary positions and no tying."""
    _gelu(config, "hidden_act")
    return {
        **_shape(config),
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "gelu",
        "tied_embeddings": config.get("tie_word_embeddings", False),
        "position": "rope",
        "dropout": float(config.get("hidden_dropout", 0.0)),
        "biases": bool(config.get("attention_bias", True)),
    }


def _nemotron(config: Config) -> Fields:
    """Nemotron-4: squared ReLU, LayerNorm, rotary positions."""
    _require(config, "hidden_act", "relu2")
    return {
        **_grouped_heads(config),
        "ffn_hidden_size": config["intermediate_size"],
        "mlp": "relu2",
        "tied_embeddings": config.get("tie_word_embeddings", False),
    }


_FAMILIES: dict[str, Callable[[Config], Fields]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "gpt_oss": _gpt_oss,
    "grok-1": _grok,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "nemotron": _nemotron,
}


def _shape(config: Config) -> Fields:
    return {
        "num_layers": config["num_hidden_layers"],
        "hidden_size": config["hidden_size"],
        "num_attention_heads": config["num_attention_heads"],
        "vocab_size": config["vocab_size"],
    }


def _grouped_heads(config: Config) -> Fields:
    """Layers, width, heads, and groups of them; the head dimension is its own or follows."""
    heads = config["num_attention_heads"]
    return {
        **_shape(config),
        "num_query_groups": config.get("num_key_value_heads") or heads,
        "kv_channels": config.get("head_dim") or config["hidden_size"] // heads,
    }


def _window(config: Config, every: int = 0) -> Fields:
    """A window in every layer, or where ``layer_types`` says so: in all but each n-th.

    ``every`` is that n of a config without ``layer_types``; 0: a window in every layer.
    """
    window, types = config.get("sliding_window"), config.get("layer_types")
    if not window or (types and "sliding_attention" not in types):
        return {}
    if types and len(types) != config["num_hidden_layers"]:
        raise ValueError(
            f"layer_types names {len(types)} layers, but num_hidden_layers is {config['num_hidden_layers']}"
        )
    if not types:
        return {"sliding_window": window, **({"full_attention_every": every} if every else {})}
    if "full_attention" not in types:
        return {"sliding_window": window}
    every = types.index("full_attention") + 1
    expected = ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in range(len(types))]
    if types != expected:
        raise ValueError(
            f"layer_types {types!s:.90} is not modelled: full attention must come in every n-th layer"
        )
    return {"sliding_window": window, "full_attention_every": every}


def _gelu(config: Config, field: str) -> None:
    """GELU in whichever of its forms: all are one kernel."""
    form = config.get(field, "gelu")
    if not form.startswith("gelu"):
        raise ValueError(f"{field} {form!r} is not modelled for {config['model_type']}; it must be gelu")


def _require(config: Config, field: str, value: str | int) -> None:
    if config.get(field, value) != value:
        raise ValueError(
            f"{field} {config[field]!r} is not modelled for {config['model_type']}; it must be {value!r}"
        )
