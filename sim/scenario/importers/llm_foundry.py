"""llm-foundry (Composer): its YAML of all versions, and the mcli file around it. FSDP alone; DP is the world.

Sources: mosaicml/llm-foundry llmfoundry/utils/config_utils.py, models/mpt/configuration_mpt.py,
scripts/train/benchmarking/submit_benchmarks.py (8c8dd48); mosaicml/composer trainer/mosaic_fsdp_utils.py.
"""

from __future__ import annotations

import re
from typing import Any

from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .layer_checkpoints import put_layer_checkpoints
from .leftovers import settle
from .model_facts import put_named_model
from .mpt_sizes import put_mpt_sizes
from .settings import Setting, Settings
from .sources import SourceFile

DEFAULT = "default of llm-foundry"


def _recognises(file: SourceFile) -> bool:
    top = "parameters." if file.at("parameters.model") is not None else ""
    if file.kind != "yaml":
        return False
    signs = ("device_train_microbatch_size", "device_train_grad_accum", "global_train_batch_size")
    return (
        any(file.at(f"{top}{one}") is not None for one in signs) and file.at(f"{top}model.name") is not None
    )


def _resolved(settings: dict[str, Setting]) -> dict[str, Setting]:
    """The settings with ``${variables.x}``, and in old files ``${x}``, replaced by their values."""
    found = {}
    for name, one in settings.items():
        value: Any = one.value
        for _ in range(3):
            match = re.fullmatch(r"\$\{([\w.]+)\}", value) if isinstance(value, str) else None
            if match is None:
                break
            source = settings.get(match[1].lower())
            if source is None:
                break
            value = source.value
        found[name] = Setting(value=value, file=one.file, name=one.name, line=one.line)
    return found


def read_foundry(job: ImportJob) -> Imported:
    """The scenario of an llm-foundry run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    top = "parameters" if first.at("parameters.model") is not None else ""
    draft = Draft(framework="llm-foundry", file=job.name, version=job.version or "")
    found = first.settings(top)
    if top and first.at("compute.gpus") is not None:
        gpus = Setting(
            value=first.at("compute.gpus"),
            file=first.name,
            name="compute.gpus",
            line=first.lines.get("compute.gpus", 0),
        )
    else:
        gpus = None
    settings = Settings(found=_resolved(found), given=job.given, draft=draft)
    draft.put("software.preset", "llm-foundry-2023", "llm-foundry")
    world = world_size(settings, None, None, gpus)
    _model(settings, job)
    _batches(settings, world)
    _sharding(settings, world)
    put_machine(settings)
    settle(settings, "llm-foundry")
    return draft.finished()


def _model(settings: Settings, job: ImportJob) -> None:
    if not settings.flag("model.use_train_metrics", default=True):
        settings.put("software.kernels.logged_losses", 0, "model.use_train_metrics")
    name = settings.text("model.name")
    if name == "mpt_causal_lm":
        put_mpt_sizes(settings)
        _mpt_layer(settings)
        _mpt_attention(settings)
        return
    told = settings.text("model.pretrained_model_name_or_path")
    settings.flag("model.use_flash_attention_2")
    if name == "hf_t5" or (told and "t5" in told):
        settings.refuse("model.name", "encoder-decoder models are not modelled")
        return
    put_named_model(settings, told, settings.origin("model.pretrained_model_name_or_path"), job.files)


def _mpt_layer(settings: Settings) -> None:
    draft = settings.draft
    hidden = draft.get("model.hidden_size")
    ratio = settings.number("model.expansion_ratio", default=4) or 4
    wide = settings.integer("model.ffn_config.ffn_hidden_size")
    kind = settings.text("model.ffn_config.ffn_type", default="mptmlp")
    if kind not in ("mptmlp", "mptglu", "mptgeglu"):
        settings.refuse("model.ffn_config.ffn_type", "mptmlp and mptglu are modelled")
    settings.put(
        "model.mlp", "gelu" if kind == "mptmlp" else "swiglu", "model.ffn_config.ffn_type", default=DEFAULT
    )
    settings.put(
        "model.ffn_hidden_size",
        wide or int(ratio * hidden),
        "model.ffn_config.ffn_hidden_size",
        "model.expansion_ratio",
        default=f"{DEFAULT}: 4",
    )
    tied = settings.flag("model.tie_word_embeddings", default=True)
    settings.put("model.tied_embeddings", tied, "model.tie_word_embeddings", default=DEFAULT)
    settings.put(
        "model.dropout",
        settings.number("model.resid_pdrop", default=0.0),
        "model.resid_pdrop",
        default=DEFAULT,
    )
    settings.put("model.biases", not settings.flag("model.no_bias"), "model.no_bias", default=DEFAULT)


def _mpt_attention(settings: Settings) -> None:
    groups = settings.integer("model.attn_config.kv_n_heads")
    if settings.text("model.attn_config.attn_type") == "multiquery_attention":
        groups = 1
    settings.put(
        "model.num_query_groups", groups, "model.attn_config.kv_n_heads", "model.attn_config.attn_type"
    )
    rope, alibi = settings.flag("model.attn_config.rope"), settings.flag("model.attn_config.alibi")
    settings.put(
        "model.position",
        "rope" if rope else "none" if alibi else "learned",
        "model.attn_config.rope",
        "model.attn_config.alibi",
        default=DEFAULT,
    )
    if settings.flag("model.attn_config.qk_gn"):
        settings.put("model.qk_norm", True, "model.attn_config.qk_gn")
    kernel = settings.choice(
        "model.attn_config.attn_impl",
        among={"flash": "fa2", "triton": "fa1", "torch": "unfused", "flex": None},
        default="fa2",
    )
    if kernel is None:
        settings.refuse("model.attn_config.attn_impl", "flex attention is not modelled")
    settings.put("software.kernels.attention", kernel, "model.attn_config.attn_impl", default=DEFAULT)
    window = settings.integer("model.attn_config.sliding_window_size", default=-1, least=-1)
    if window and window > 0:
        settings.put("model.sliding_window", window, "model.attn_config.sliding_window_size")


def _batches(settings: Settings, world: int | None) -> None:
    draft = settings.draft
    length = settings.integer("max_seq_len", "model.max_seq_len")
    if length is None and not settings.has("max_seq_len", "model.max_seq_len"):
        draft.ask("max_seq_len", "the file does not say it", "2048")
    settings.put("training.seq_length", length, "max_seq_len", "model.max_seq_len")
    whole = settings.integer("global_train_batch_size")
    if whole is None and not settings.has("global_train_batch_size"):
        draft.ask("global_train_batch_size", "the file does not say it", "1024")
    found = settings.setting("device_train_microbatch_size")
    if found is not None and found.value == "auto":
        draft.ask("device_train_microbatch_size", "auto is searched for at run time, until it fits", "4")
        return
    micro = settings.integer("device_train_microbatch_size")
    if micro is None and (steps := settings.integer("device_train_grad_accum")) and whole and world:
        micro = max(1, whole // world // steps)
    if not (micro and whole and world):
        if micro is None and found is None:
            draft.ask("device_train_microbatch_size", "the file does not say it", "4")
        return
    if whole % world:
        settings.refuse(
            "global_train_batch_size", f"{whole} sequences are no whole number on each of {world} GPUs"
        )
        return
    device = whole // world
    micro = min(micro, device)
    if device % micro:
        settings.refuse(
            "device_train_microbatch_size",
            f"{device} sequences of a GPU in parts of {micro} leave a smaller one, which is not modelled",
        )
        return
    settings.put("training.micro_batch", micro, "device_train_microbatch_size", "device_train_grad_accum")
    settings.put("training.global_batch", whole, "global_train_batch_size")


def _recompute(settings: Settings) -> None:
    """Checkpoints of whole layers; llm-foundry's train.py takes them as reentrant unless told."""
    put_layer_checkpoints(
        settings,
        ("fsdp_config.activation_checkpointing",),
        reentrant="fsdp_config.activation_checkpointing_reentrant",
        unless_told=True,
        default=DEFAULT,
    )


_STRATEGIES = {
    "full_shard": 3,
    "shard_grad_op": 2,
    "no_shard": 0,
    "hybrid_shard": 3,
    "_hybrid_shard_zero2": 2,
}


def _sharding(settings: Settings, world: int | None) -> None:
    draft = settings.draft
    settings.refuse_if("tp_config", "tensor parallelism of llm-foundry is not read", harmless=(None, {}))
    strategy = settings.choice("fsdp_config.sharding_strategy", among=_STRATEGIES, default=None)
    inside = any(name.startswith("fsdp_config") for name in settings.found)
    origin = settings.origin(
        "fsdp_config.sharding_strategy",
        default=f"{DEFAULT}: FULL_SHARD" if inside else "there is no fsdp_config",
    )
    zero = strategy if strategy is not None else 3 if inside else 0
    draft.put("parallelism.zero", zero if (world or 2) > 1 else 0, origin)
    told = settings.text("fsdp_config.sharding_strategy") or ""
    if "HYBRID" in told.upper() and world and world > 8:
        draft.put("parallelism.fsdp_shard_size", 8, f"{origin}: the GPUs of a host")
    _reduction(settings, sharded=bool(zero))
    _recompute(settings)
    if settings.flag("fsdp_config.activation_cpu_offload"):
        settings.put("training.activation_offload", True, "fsdp_config.activation_cpu_offload")
    _precision(settings)
    settings.refuse_if("compile_config", "compilation of llm-foundry is not read", harmless=(None, {}))


def _reduction(settings: Settings, *, sharded: bool) -> None:
    """DEFAULT: parameters in 16 bit, gradients are reduced in 32.

    Source: mosaic_fsdp_utils.py, get_mixed_precision.
    """
    name = "fsdp_config.mixed_precision"
    mixed = settings.choice(name, among={"pure": 2, "default": 4, "full": None}, default=4)
    if mixed is None:
        settings.refuse(name, "FULL (all in 32 bit) is not modelled with 16-bit GEMMs")
    if mixed == 4 and sharded:
        origin = settings.origin(name, default=f"{DEFAULT}: DEFAULT")
        settings.draft.put("software.gradients.reduce_grad_bytes", 4, origin)


def _precision(settings: Settings) -> None:
    kind = settings.choice(
        "precision",
        among={"amp_bf16": "bf16", "bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32", "amp_fp8": "fp8"},
        default="bf16",
    )
    settings.put("training.precision", kind, "precision", default=DEFAULT)
    name = settings.choice(
        "optimizer.name",
        among={"decoupled_adamw": None, "adamw": None, "decoupled_lionw": "lion", "adam": None},
        default=None,
    )
    settings.put("training.optimizer.name", name, "optimizer.name")


IMPORTER = Importer(
    name="llm-foundry",
    title="llm-foundry (Composer)",
    source="mosaicml/llm-foundry llmfoundry/utils/config_utils.py, models/mpt/configuration_mpt.py (v0.1.0 "
    "to 8c8dd48)",
    recognises=_recognises,
    read=read_foundry,
    order=32,
)
