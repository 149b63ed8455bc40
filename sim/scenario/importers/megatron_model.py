"""The model of a Megatron-LM run: its options as fields of ``model``, with the defaults of its arguments.

Sources: Megatron-LM megatron/training/arguments.py (validate_args, _add_network_size_args, _add_moe_args,
_add_mla_args); core/transformer/transformer_config.py; core/tokenizers (padding of the vocabulary).
"""

from __future__ import annotations

import re
from typing import Any

from .settings import Settings
from .vocabulary import vocabulary_of

DEFAULT = "default of Megatron-LM"
NULL_TOKENIZERS = ("nulltokenizer", "nullmultimodaltokenizer")
MOST_LAYERS = 100_000


def put_model(settings: Settings) -> None:
    """Put the block ``model``."""
    draft = settings.draft
    _refuse_other_models(settings)
    _shape(settings)
    _mlp(settings)
    _attention(settings)
    _vocabulary(settings)
    untied = settings.flag("untie_embeddings_and_output_weights")
    settings.put("model.tied_embeddings", not untied, "untie_embeddings_and_output_weights", default=DEFAULT)
    biases = not settings.flag("disable_bias_linear") and settings.flag("add_bias_linear", default=True)
    settings.put("model.biases", biases, "disable_bias_linear", "add_bias_linear", default=DEFAULT)
    settings.put("model.qkv_biases", True if settings.flag("add_qkv_bias") else None, "add_qkv_bias")
    if settings.flag("qk_layernorm") and not settings.flag("multi_latent_attention"):
        settings.put("model.qk_norm", True, "qk_layernorm")  # with latents it is their norms
    norm = settings.choice(
        "normalization", among={"layernorm": "layernorm", "rmsnorm": "rmsnorm"}, default="layernorm"
    )
    settings.put("model.norm", norm, "normalization", default=DEFAULT)
    _position(settings)
    dropout = settings.number("hidden_dropout", default=0.1)
    settings.put("model.dropout", dropout, "hidden_dropout", default=DEFAULT)
    if settings.number("attention_dropout", default=0.1) != dropout:
        draft.note(
            "attention_dropout differs from hidden_dropout; one dropout is modelled, that of the hidden "
            "states"
        )
    _experts(settings)
    if (predicted := settings.integer("mtp_num_layers")) is not None:
        settings.put("model.mtp_layers", predicted, "mtp_num_layers")


_OTHER_MODELS = {
    "hybrid_layer_pattern": "hybrid models with Mamba layers are not modelled",
    "hybrid_override_pattern": "hybrid models with Mamba layers are not modelled",
    "hybrid_attention_ratio": "hybrid models with Mamba layers are not modelled",
    "hybrid_mlp_ratio": "hybrid models with Mamba layers are not modelled",
    "is_hybrid_model": "hybrid models with Mamba layers are not modelled",
    "mamba_num_heads": "Mamba layers are not modelled",
    "encoder_num_layers": "encoder-decoder models are not modelled, decoder-only ones are",
    "decoder_seq_length": "encoder-decoder models are not modelled, decoder-only ones are",
    "encoder_seq_length": "encoder-decoder models are not modelled; a decoder-only one has --seq-length",
    "bert_no_binary_head": "encoders are not modelled, decoder-only models are",
    "retro_add_retriever": "retrieval layers (RETRO) are not modelled",
    "retro_project_dir": "retrieval layers (RETRO) are not modelled",
    "retro_workdir": "retrieval layers (RETRO) are not modelled",
    "img_h": "vision models are not modelled",
    "moe_latent_size": "experts in a latent space are not modelled",
    "use_retro": "retrieval layers (RETRO) are not modelled",
    "num_layers_teacher": "distillation runs a second model, which is not modelled",
    "load_teacher": "distillation runs a second model, which is not modelled",
    "kd_teacher_load": "distillation runs a second model, which is not modelled",
    "heterogeneous_layers_config_path": "layers of unequal kinds are not modelled",
    "experimental_attention_variant": "attention of this kind is not modelled",
    "moe_extended_tp": "experts split over ep times tp ranks together are not modelled; ep and etp are",
    "mos": "distillation runs a second model, which is not modelled",
}


def _refuse_other_models(settings: Settings) -> None:
    for name, why in _OTHER_MODELS.items():
        settings.refuse_if(name, why)
    spec = settings.text("spec") or ""
    if "mamba" in spec or "hybrid" in spec:
        settings.refuse("spec", "Mamba layers are not modelled")


def _shape(settings: Settings) -> None:
    """Layers, width, heads. What is asked for is 1 until then, so that all else is read and asked, too."""
    draft = settings.draft
    for name, example in (("num_layers", "32"), ("hidden_size", "4096"), ("num_attention_heads", "32")):
        value = settings.integer(name)
        if value is None and not settings.has(name):
            draft.ask(name, f"nothing says --{name.replace('_', '-')}", example)
        elif value is not None and value < 1:
            settings.refuse(name, "it has to be 1 or more")
        settings.put(f"model.{name}", max(1, value or 1), name)


def _mlp(settings: Settings) -> None:
    draft = settings.draft
    gated = [name for name in ("swiglu", "geglu", "quick_geglu") if settings.flag(name)]
    relu = settings.flag("squared_relu")
    kind = "swiglu" if gated else "relu2" if relu else "gelu"
    settings.put("model.mlp", kind, *(gated or ["squared_relu"]), default=DEFAULT)
    clamp = settings.number("activation_func_clamp_value")
    settings.put(
        "model.clamped_gate", True if gated and clamp is not None else None, "activation_func_clamp_value"
    )
    width, hidden = settings.integer("ffn_hidden_size"), draft.get("model.hidden_size")
    origin = settings.origin("ffn_hidden_size")
    if width is None:
        width = int(8 * hidden / 3 / 64) * 64 if gated else 4 * hidden
        origin = f"{DEFAULT}: {'8/3 of the hidden size in whole 64' if gated else '4 times the hidden size'}"
    draft.put("model.ffn_hidden_size", width, origin)


def _attention(settings: Settings) -> None:
    draft, heads = settings.draft, settings.draft.get("model.num_attention_heads")
    groups = settings.integer("num_query_groups", "n_head_kv", "num_key_value_heads")
    fork = settings.choice(
        "attention_head_type", among={"multihead": None, "multiquery": 1}
    )  # bigcode-project
    if fork is not None:
        groups = fork
    grouped = (
        settings.flag("group_query_attention") or "num_key_value_heads" in settings.found or fork is not None
    )
    if groups is not None and not grouped:
        draft.note(
            "num_query_groups counts only with group_query_attention, which is not set: every head has its "
            "own"
        )
        groups = None
    if grouped and groups is None:
        groups = 1  # the default of --num-query-groups
    settings.put(
        "model.num_query_groups", groups or heads, "num_query_groups", "num_key_value_heads", default=DEFAULT
    )
    if settings.flag("multi_latent_attention"):
        _latent(settings)
        return
    width = settings.integer("kv_channels")
    hidden = draft.get("model.hidden_size")
    settings.put(
        "model.kv_channels",
        width or hidden // heads,
        "kv_channels",
        default=f"{DEFAULT}: hidden size / heads",
    )
    _window(settings)


def _latent(settings: Settings) -> None:
    draft = settings.draft
    settings.put("model.attention", "mla", "multi_latent_attention")
    defaults = {
        "q_lora_rank": ("q_lora_rank", None), "kv_lora_rank": ("kv_lora_rank", 32),
        "qk_head_dim": ("qk_nope_head_dim", 128),
        "qk_pos_emb_head_dim": ("qk_rope_head_dim", 64), "v_head_dim": ("v_head_dim", 128),
    }  # fmt: skip
    for name, (field, default) in defaults.items():
        settings.put(f"model.mla.{field}", settings.integer(name, default=default), name, default=DEFAULT)
    settings.integer("kv_channels")
    draft.put("model.kv_channels", draft.get("model.mla.v_head_dim"), "as v_head_dim")
    draft.put(
        "model.num_query_groups", draft.get("model.num_attention_heads"), "latent attention has no groups"
    )


def _window(settings: Settings) -> None:
    """``--window-size left,right`` keys; every ``--window-attn-skip-freq``-th layer sees all."""
    text = settings.text("window_size")
    if text is None:
        return
    sizes = re.findall(r"-?\d+", text)
    if len(sizes) != 2 or len(sizes[0]) > 9 or int(sizes[1]) != 0 or int(sizes[0]) < 0:
        settings.refuse(
            "window_size", f"{text}: a window of so many keys to the left and 0 to the right is modelled"
        )
        return
    settings.put("model.sliding_window", int(sizes[0]) + 1, "window_size")
    if (every := settings.text("window_attn_skip_freq")) is not None:
        if not re.fullmatch(r"\d{1,4}", every):
            settings.refuse(
                "window_attn_skip_freq", f"{every}: full attention in each n-th layer is modelled"
            )
        elif int(every):
            settings.put("model.full_attention_every", int(every), "window_attn_skip_freq")


def _position(settings: Settings) -> None:
    names = (
        "position_embedding_type",
        "use_rotary_position_embeddings",
        "use_llama2_rotary_position_embeddings",
    )
    kinds = {"learned_absolute": "learned", "rope": "rope", "none": "none", "mrope": "rope",
    "yarn": "rope", "rotary": "rope",
             "alibi": "none", "absolute": "learned"}  # fmt: skip
    kind = settings.choice("position_embedding_type", among=kinds)
    if settings.flag(names[1]) or settings.flag(names[2]):
        kind = "rope"
    if settings.flag("no_position_embedding") and kind is None:
        kind = "none"
    settings.flag("no_position_embedding")
    settings.put("model.position", kind or "learned", *names, default=DEFAULT)


def _vocabulary(settings: Settings) -> None:
    """Rows of the embedding: what is padded already wins over a size that is padded, over the tokenizer's."""
    draft = settings.draft
    padded = settings.integer("padded_vocab_size", "pad_vocab_size_to")
    multiple = settings.integer("make_vocab_size_divisible_by", default=128)
    size, origin = settings.integer("vocab_size"), settings.origin("vocab_size")
    tokenizer = (settings.text("tokenizer_type") or "").lower()
    if size is not None and tokenizer in NULL_TOKENIZERS and not settings.given.get("vocab_size"):
        size, origin = size + 1, f"{origin}, and the end of a document (NullTokenizer)"
    if extra := settings.integer("extra_vocab_size"):
        draft.note(f"extra_vocab_size {extra} is added to the size of a tokenizer that is known")
    if size is None:
        size, origin = _of_tokenizer(settings)
    if padded is not None:
        draft.put(
            "model.vocab_size",
            size or padded,
            origin or settings.origin("padded_vocab_size", "pad_vocab_size_to"),
        )
        settings.put("model.padded_vocab_size", padded, "padded_vocab_size", "pad_vocab_size_to")
        return
    if size is None:
        draft.ask(
            "vocab_size",
            "the vocabulary is that of a tokenizer, which the files name but do not hold",
            "128256",
        )
        return
    draft.put("model.vocab_size", size, origin)
    settings.put(
        "model.make_vocab_size_divisible_by", multiple, "make_vocab_size_divisible_by", default=DEFAULT
    )


def _of_tokenizer(settings: Settings) -> tuple[int | None, str]:
    for name in (
        "tokenizer_model",
        "tokenizer_name_or_path",
        "vocab_file",
        "tokenizer_file",
        "patch_tokenizer_type",
        "tokenizer_type",
    ):
        found = settings.setting(name)
        known = vocabulary_of(str(found.value)) if found else None
        if found and known:
            extra = settings.integer("extra_vocab_size", default=0) or 0
            return known[0] + extra, f"{found.origin} ({known[1]})"
    return None, ""


def _experts(settings: Settings) -> None:
    draft = settings.draft
    count = settings.integer("num_experts")
    if not count or (count == 1 and not settings.has("moe_router_topk")):
        return
    settings.put("model.moe.num_experts", count, "num_experts")
    settings.put(
        "model.moe.topk", settings.integer("moe_router_topk", default=2), "moe_router_topk", default=DEFAULT
    )
    width = settings.integer("moe_ffn_hidden_size")
    settings.put(
        "model.moe.expert_ffn_hidden_size",
        width or draft.get("model.ffn_hidden_size"),
        "moe_ffn_hidden_size",
        default="as ffn_hidden_size",
    )
    shared = settings.integer("moe_shared_expert_intermediate_size")
    if shared:
        each = draft.get("model.moe.expert_ffn_hidden_size")
        settings.put("model.moe.shared_expert_ffn_hidden_size", shared, "moe_shared_expert_intermediate_size")
        settings.put(
            "model.moe.num_shared_experts",
            max(1, shared // (each or shared)),
            "moe_shared_expert_intermediate_size",
        )
    _moe_layers(settings)
    put_capacity(settings)
    groups, chosen = settings.integer("moe_router_num_groups"), settings.integer("moe_router_group_topk")
    if groups and chosen and chosen < groups:
        settings.put("model.moe.node_limit", chosen, "moe_router_group_topk")


def put_capacity(settings: Settings) -> None:
    """Put how many tokens an expert takes at most, over an even share, where that is said."""
    draft = settings.draft
    capacity = settings.number("moe_expert_capacity_factor")
    if capacity is not None and capacity > 0:
        settings.put("model.moe.capacity_factor", capacity, "moe_expert_capacity_factor")
        if not settings.flag("moe_pad_expert_input_to_capacity"):
            draft.note(
                "experts are padded to their capacity here, as with --moe-pad-expert-input-to-capacity"
            )


def _moe_layers(settings: Settings) -> None:
    """``--moe-layer-freq``: each so-manieth layer, or a list written as an expression."""
    found = settings.setting("moe_layer_freq")
    if found is None:
        return
    value = found.value
    layers = settings.draft.get("model.num_layers")
    pattern = layer_pattern(value) if isinstance(value, str | list) else value
    if isinstance(pattern, list) and all(one in (0, 1) for one in pattern):
        if len(pattern) != layers:
            settings.refuse("moe_layer_freq", f"it names {len(pattern)} layers, and num_layers is {layers}")
        elif not any(pattern):
            settings.refuse("moe_layer_freq", "it leaves no layer with experts; leave num_experts out")
        elif not all(pattern):
            settings.draft.put("model.moe.layer_freq", pattern, found.origin)
    elif isinstance(pattern, int) and not isinstance(pattern, bool) and 1 <= pattern <= layers:
        if pattern > 1:
            settings.draft.put("model.moe.layer_freq", pattern, found.origin)
    elif not settings.asks(found):
        settings.refuse(
            "moe_layer_freq",
            f"{value!s:.60}: a number, or a list of 0 and 1 such as ([0]*3+[1]*58), is needed",
        )


def layer_pattern(text: Any) -> Any:
    """The value of a Python expression of lists, numbers, + and *; None for anything else.

    >>> layer_pattern("([0]*3+[1]*2)")
    [0, 0, 0, 1, 1]
    """
    import ast

    if isinstance(text, list):
        return [int(one) if re.fullmatch(r"[01]", str(one)) else one for one in text]

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) <= MOST_LAYERS:
            return node.value
        if isinstance(node, ast.List):
            return [value(one) for one in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Mult) and isinstance(left, list) != isinstance(right, list):
                many, times = (left, right) if isinstance(left, list) else (right, left)
                if 0 <= times * len(many) <= MOST_LAYERS:
                    return many * times
            if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
                return left + right
        raise ValueError

    try:
        return value(ast.parse(text.strip().strip("\"'")[:2000], mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
