"""OLMo: its YAML of official configurations. OLMo-core's configurations are Python; their dump in JSON is
read.

Source: allenai/OLMo olmo/config.py, configs/official-*; allenai/OLMo-core src/olmo_core/config.py.
"""

from __future__ import annotations

from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .mpt_sizes import put_mpt_sizes
from .settings import Settings
from .sources import SourceFile

DEFAULT = "default of OLMo"


def _recognises(file: SourceFile) -> bool:
    return file.at("model.d_model") is not None and (
        file.at("global_train_batch_size") is not None or file.at("data_loader.global_batch_size") is not None
    )


def read_olmo(job: ImportJob) -> Imported:
    """The scenario of an OLMo run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="olmo", file=job.name, version=job.version or "")
    settings = Settings(found=first.settings(), given=job.given, draft=draft)
    gpus = world_size(settings, None, None)
    draft.put(
        "software.preset",
        "llm-foundry-2023" if "fsdp" in first.keys else "torchtitan-2025",
        "FSDP of plain torch",
    )
    draft.put("software.name", "olmo", "its layers are its own")
    draft.put("software.kernels.logged_losses", 0, "olmo/train.py: its metrics are the loss itself")
    core = first.at("data_loader.global_batch_size") is not None
    if core:
        draft.refuse(
            "model",
            "a dump of OLMo-core is known, but its model is nested objects that are not read; give model "
            "fields in a scenario",
        )
        settings.read.update(settings.found)
        return draft.finished()
    _model(settings)
    _training(settings, gpus)
    put_machine(settings)
    settle(settings, "olmo")
    return draft.finished()


def _model(settings: Settings) -> None:
    put_mpt_sizes(settings)
    padded = settings.integer("model.embedding_size")
    settings.put("model.padded_vocab_size", padded, "model.embedding_size")
    groups = 1 if settings.flag("model.multi_query_attention") else settings.integer("model.n_kv_heads")
    settings.put("model.num_query_groups", groups, "model.n_kv_heads", "model.multi_query_attention")
    _mlp(settings)
    settings.put(
        "model.tied_embeddings",
        settings.flag("model.weight_tying", default=True),
        "model.weight_tying",
        default=DEFAULT,
    )
    settings.put(
        "model.biases",
        settings.flag("model.include_bias", default=True),
        "model.include_bias",
        default=DEFAULT,
    )
    settings.put(
        "model.position", "rope" if settings.flag("model.rope") else "learned", "model.rope", default=DEFAULT
    )
    settings.put(
        "software.kernels.attention",
        "fa2" if settings.flag("model.flash_attention") else "unfused",
        "model.flash_attention",
        default=DEFAULT,
    )
    _loss(settings)


def _loss(settings: Settings) -> None:
    """The loss and its z-loss: torch's operators, or flash-attention's kernel, which has both
    (olmo/train.py, cross_entropy_loss and fused_loss_fn)."""
    fused = settings.flag("fused_loss")
    settings.put(
        "software.kernels.cross_entropy", "fused" if fused else "eager", "fused_loss", default=DEFAULT
    )
    if not fused:
        settings.put("software.kernels.logits_fp32", True, "fused_loss", default=DEFAULT)
    if settings.flag("softmax_auxiliary_loss"):
        settings.put("software.kernels.z_loss", "within" if fused else "apart", "softmax_auxiliary_loss")


def _mlp(settings: Settings) -> None:
    gated = settings.choice(
        "model.activation_type", among={"swiglu": True, "gelu": False, "relu": False}, default=True
    )
    hidden = settings.draft.get("model.hidden_size")
    wide = settings.integer("model.mlp_hidden_size") or int(
        (settings.number("model.mlp_ratio", default=4) or 4) * hidden
    )
    settings.put("model.mlp", "swiglu" if gated else "gelu", "model.activation_type", default=DEFAULT)
    # mlp_hidden_size counts both branches (olmo/model.py: ff_out is hidden_size * output_multiplier, 0.5
    # for SwiGLU).
    settings.put(
        "model.ffn_hidden_size",
        wide // 2 if gated else wide,
        "model.mlp_hidden_size",
        "model.mlp_ratio",
        default=DEFAULT,
    )


_CHECKPOINTING = {
    "whole_layer": "full",
    "one_in_two": 2,
    "one_in_three": 3,
    "one_in_four": 4,
    "fine_grained": None,
    "none": "none",
}
_STRATEGIES = {"full_shard": 3, "shard_grad_op": 2, "hybrid_shard": 3, "no_shard": 0}


def _training(settings: Settings, gpus: int | None) -> None:
    settings.put(
        "training.seq_length",
        settings.integer("model.max_sequence_length", default=1024),
        "model.max_sequence_length",
        default=DEFAULT,
    )
    whole = settings.integer("global_train_batch_size")
    micro = settings.integer("device_train_microbatch_size", default=16)
    settings.put("training.global_batch", whole, "global_train_batch_size")
    settings.put("training.micro_batch", micro, "device_train_microbatch_size", default=DEFAULT)
    kind = settings.choice(
        "precision", among={"amp_bf16": "bf16", "amp_fp16": "fp16", "fp32": "fp32"}, default="fp32"
    )
    settings.put("training.precision", kind, "precision", default=DEFAULT)
    again = settings.choice("activation_checkpointing", among=_CHECKPOINTING, default="none")
    if again is None:
        settings.refuse("activation_checkpointing", "fine_grained recomputation of OLMo is not modelled")
    settings.put(
        "training.recompute",
        again if isinstance(again, str) else {"kind": "full", "every": again} if again else None,
        "activation_checkpointing",
        default=f"{DEFAULT}: off",
    )
    if settings.text("distributed_strategy", default="fsdp") == "ddp":
        settings.put("parallelism.zero", 0, "distributed_strategy")
    else:
        _fsdp(settings, gpus)


def _fsdp(settings: Settings, gpus: int | None) -> None:
    draft, name = settings.draft, "fsdp.sharding_strategy"
    strategy = settings.choice(name, among=_STRATEGIES, default=3)
    settings.put(
        "parallelism.zero", strategy if (gpus or 2) > 1 else 0, name, default=f"{DEFAULT}: FULL_SHARD"
    )
    if str(settings.text(name)).upper() == "HYBRID_SHARD" and gpus and gpus > 8:
        draft.put("parallelism.fsdp_shard_size", 8, f"{settings.origin(name)}: the GPUs of a host")
    if settings.choice("fsdp.precision", among={"pure": 2, "mixed": 4}, default=2) == 4:
        settings.put("software.gradients.reduce_grad_bytes", 4, "fsdp.precision")


IMPORTER = Importer(
    name="olmo",
    title="OLMo",
    source="allenai/OLMo olmo/config.py, configs/official-*",
    recognises=_recognises,
    read=read_olmo,
    order=37,
)
