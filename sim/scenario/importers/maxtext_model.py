"""The model of a MaxText run: by its name, or by the sizes of its own file.

Source: AI-Hypercomputer/maxtext src/maxtext/configs/base.yml, configs/models/*.yml (e591f30c).
"""

from __future__ import annotations

from ..model.catalogue import model_called
from .settings import Settings

DEFAULT = "default of MaxText"


def put_model(settings: Settings, model: str | None, origin: str) -> None:
    """Put the model: one of the catalogue, or its own sizes; otherwise it is asked for."""
    draft = settings.draft
    given = settings.given.get("model")
    if given or model:
        draft.put("model.preset", given or model, f"--given model={given}" if given else origin)
    elif settings.has("base_emb_dim"):
        _sizes(settings)
    elif (known := model_called(settings.text("model_name") or "")) is not None:
        draft.put("model.preset", known, origin)
    else:
        draft.ask(
            "model",
            f"the model {settings.text('model_name')} is in a file of MaxText's that was not given",
            "llama3-8b",
        )


_SIZES = {
    "num_layers": "base_num_decoder_layers",
    "hidden_size": "base_emb_dim",
    "num_attention_heads": "base_num_query_heads",
    "num_query_groups": "base_num_kv_heads",
    "ffn_hidden_size": "base_mlp_dim",
    "vocab_size": "vocab_size",
    "kv_channels": "head_dim",
}
_MLA = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def _sizes(settings: Settings) -> None:
    draft = settings.draft
    scale = settings.integer("global_parameter_scale", default=1) or 1
    if scale != 1:
        settings.refuse("global_parameter_scale", "scaled models are not read; give the sizes")
    for field, name in _SIZES.items():
        value = settings.integer(name)
        if value is None and field not in ("num_query_groups", "kv_channels"):
            draft.ask(name, "the file does not say it, and base.yml's is another model's", "4096")
        settings.put(f"model.{field}", value, name)
    settings.put("model.mlp", "swiglu", "mlp_activations", default=DEFAULT)
    settings.put(
        "model.tied_embeddings",
        settings.flag("logits_via_embedding"),
        "logits_via_embedding",
        default=DEFAULT,
    )
    if (experts := settings.integer("num_experts", default=1) or 1) > 1:
        _expert_sizes(settings, experts)
    if settings.text("attention_type") == "mla":
        _latent_sizes(settings)


def put_head_norms(settings: Settings) -> None:
    """Norms of each head's queries and keys before their positions; Llama 4's come behind, without weights.

    Source: layers/attentions.py, Attention: query_norm and key_norm (RMSNorm of head_dim) but for LLAMA4.
    """
    if not settings.flag("use_qk_norm"):
        return
    if settings.text("attention_type") == "mla":
        return  # it is their latents that are normed (layers/attention_mla.py)
    if settings.text("decoder_block") == "llama4":
        settings.draft.note("use_qk_norm: norms of queries and keys behind their positions are not counted")
        return
    settings.put("model.qk_norm", True, "use_qk_norm")


def _expert_sizes(settings: Settings, experts: int) -> None:
    draft = settings.draft
    settings.put("model.moe.num_experts", experts, "num_experts")
    settings.put(
        "model.moe.topk",
        settings.integer("num_experts_per_tok", default=1),
        "num_experts_per_tok",
        default=DEFAULT,
    )
    wide = settings.integer("base_moe_mlp_dim") or draft.get("model.ffn_hidden_size")
    settings.put("model.moe.expert_ffn_hidden_size", wide, "base_moe_mlp_dim", "base_mlp_dim")
    shared = settings.integer("shared_experts", default=0) or 0
    if shared:
        settings.put("model.moe.num_shared_experts", shared, "shared_experts")
        settings.put("model.moe.shared_expert_ffn_hidden_size", shared * wide, "shared_experts")
    settings.put(
        "model.moe.num_dense_layers",
        settings.integer("first_num_dense_layers", default=0),
        "first_num_dense_layers",
        default=DEFAULT,
    )


def _latent_sizes(settings: Settings) -> None:
    draft = settings.draft
    settings.put("model.attention", "mla", "attention_type")
    for name in _MLA:
        settings.put(f"model.mla.{name}", settings.integer(name), name)
    settings.put("model.kv_channels", settings.integer("v_head_dim"), "v_head_dim")
    draft.put(
        "model.num_query_groups", draft.get("model.num_attention_heads"), "latent attention has no groups"
    )
