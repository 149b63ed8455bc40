"""What starts transformers' Trainer, as one set of settings: accelerate's own file, options of its launcher,
a YAML of arguments (TRL, LLaMA-Factory) and a script's arguments, each over what stands before it.

Sources: huggingface/accelerate src/accelerate/commands/launch.py, utils/launch.py (options over the file);
huggingface/transformers training_args.py (``fsdp`` and ``fsdp_config`` of its arguments);
hiyouga/LLaMA-Factory src/llamafactory/hparams, model/model_utils/checkpointing.py (0.9.5: it checkpoints
unless told not to).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .arguments import Launch
from .draft import PACKED, UNPACKED, Draft
from .importer import ImportJob
from .launchers import launch_among
from .settings import Setting, Settings
from .sources import SourceFile

_OWN = "distributed_type"
"""The key that every file of ``accelerate config`` has."""


def is_accelerates(file: SourceFile) -> bool:
    """Whether a file is one that ``accelerate config`` writes."""
    return file.kind == "yaml" and _OWN in file.keys


def has_arguments(file: SourceFile) -> bool:
    """Whether a YAML or JSON holds arguments of the Trainer."""
    arguments = {"per_device_train_batch_size", "model_name_or_path"}
    others = {_OWN, "zero_optimization", "base_model"}
    return file.kind in ("yaml", "json") and bool(file.keys & arguments) and not file.keys & others


def starts_trainer(file: SourceFile) -> bool:
    """Whether a script gives a Trainer its arguments; one with a DeepSpeed JSON is DeepSpeed's to read."""
    text = file.command
    return (
        file.is_command
        and all(f"--{name}" in text for name in ("model_name_or_path", "per_device_train_batch_size"))
        and re.search(r"--(num-layers|deepspeed[ =]\S+\.json)", text) is None
    )


def settings_of(job: ImportJob, draft: Draft) -> tuple[Settings, Launch | None]:
    """All settings of one run by name, and the command that a script among its files starts (None without
    one). Files are read first, then the command: what it says counts where both say something."""
    settings = Settings(found={}, given=job.given, draft=draft)
    for file in (*filter(is_accelerates, job.files), *filter(has_arguments, job.files)):
        settings.found |= file.settings()
    script = job.script
    launch = launch_among(script, job.files, job.given, draft) if script else None
    if launch:
        settings.found |= _of_launcher(launch.header) | launch.options
    _join_fsdp(settings)
    _join_llama_factory(settings)
    return settings, launch


_DISTRIBUTION = {"use_deepspeed": "DEEPSPEED", "use_fsdp": "FSDP", "multi_gpu": "MULTI_GPU"}
_DEEPSPEED = re.compile(r"zero_stage|deepspeed_\w+|offload_\w+|zero3_\w+|gradient_accumulation_steps")


def _of_launcher(header: Mapping[str, Setting]) -> dict[str, Setting]:
    """Options of ``accelerate launch`` under the names that they have in accelerate's own file."""
    found: dict[str, Setting] = {}
    for name, one in header.items():
        if name in _DISTRIBUTION:
            value = _DISTRIBUTION[name]
            found[_OWN] = Setting(value=value, file=one.file, name=one.name, line=one.line)
        elif name.startswith("fsdp_"):
            found[f"fsdp_config.{name}"] = one
        elif _DEEPSPEED.fullmatch(name):
            found[f"deepspeed_config.{name}"] = one
        elif name in ("mixed_precision", "dynamo_backend", "num_processes"):
            found[name] = one
    return found


_MEANT = {
    "full_shard": ("sharding_strategy", "FULL_SHARD"),
    "shard_grad_op": ("sharding_strategy", "SHARD_GRAD_OP"),
    "no_shard": ("sharding_strategy", "NO_SHARD"),
    "hybrid_shard": ("sharding_strategy", "HYBRID_SHARD"),
    "hybrid_shard_zero2": ("sharding_strategy", "HYBRID_SHARD_ZERO2"),
    "auto_wrap": ("auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
    "offload": ("offload_params", "true"),
}
"""Words of the Trainer's ``fsdp`` as settings of accelerate's file."""


def _join_fsdp(settings: Settings) -> None:
    """Put ``fsdp`` and ``fsdp_config`` of the Trainer's arguments over the settings of accelerate's file,
    under its names: the Trainer sets accelerate's environment by them."""
    told = settings.setting("fsdp")
    value = told.value if told else ""
    listed = value if isinstance(value, list) else str(value).split()
    words = [str(word) for word in listed if str(word).lower() not in ("", "false")]
    if told is None or not words:
        return
    settings.read.update(("fsdp_transformer_layer_cls_to_wrap", "fsdp_min_num_params"))
    for name in list(settings.found):
        if re.fullmatch(r"fsdp_config\.(?!fsdp_)\w+", name):
            settings.found[name.replace(".", ".fsdp_", 1)] = settings.found.pop(name)
    for word in words:
        if word not in _MEANT:
            settings.refuse("fsdp", f"{word} is none of {', '.join(_MEANT)}")
            continue
        name, value = _MEANT[word]
        one = Setting(value=value, file=told.file, name=told.name, line=told.line)
        settings.found[f"fsdp_config.fsdp_{name}"] = one
    settings.found[_OWN] = Setting(value="FSDP", file=told.file, name=told.name, line=told.line)
    if not settings.has("fsdp_config.fsdp_backward_prefetch", "fsdp_config.fsdp_version"):
        settings.draft.note(
            "fsdp_config says no backward_prefetch, and the Trainer's default has none: gathers of the"
            " backward wait for compute, which is not counted"
        )


_OF_TRL = (
    "packing",
    "packing_strategy",
    "padding_free",
    "assistant_only_loss",
    "completion_only_loss",
    "dataset_text_field",
)
"""Arguments that TRL's SFTConfig has, and the Trainer has not."""


def _join_trl(settings: Settings) -> None:
    """Put TRL's defaults where an argument is its own: checkpoints of layers, sequences of 1,024 tokens. And
    note what is taken of lengths: packs by best fit, its default, are told apart by positions.

    Source: TRL 1.16 trainer/base_config.py, sft_config.py, sft_trainer.py.
    """
    if not settings.has(*_OF_TRL):
        return
    if not settings.has("gradient_checkpointing"):
        settings.draft.note("TRL 1.16 checkpoints layers unless told otherwise; its first versions did not")
        default = Setting(value=True, file="TRL", name="its gradient_checkpointing")
        settings.found["gradient_checkpointing"] = default
    if not settings.has("max_length", "max_seq_length"):
        settings.found["max_length"] = Setting(value=1024, file="TRL", name="its max_length")
    if not settings.flag("packing"):
        settings.draft.note(UNPACKED)
    elif settings.text("packing_strategy", default="bfd") != "wrapped":
        settings.draft.note(PACKED)


_KERNELS = {
    "fa2": "flash_attention_2",
    "fa3": "flash_attention_3",
    "sdpa": "sdpa",
    "disabled": "eager",
    "auto": None,
}
"""LLaMA-Factory's ``flash_attn`` as transformers' ``attn_implementation``."""


def _join_llama_factory(settings: Settings) -> None:
    """LLaMA-Factory's own names and defaults: it checkpoints layers and cuts at 2,048 tokens unless told."""
    if not settings.has("finetuning_type", "template", "stage"):
        _join_trl(settings)
        return
    if settings.text("finetuning_type", default="lora") != "full":
        settings.refuse(
            "finetuning_type", "adapters (its default) and frozen layers are not modelled; full training is"
        )
    if settings.text("stage", default="sft") not in ("sft", "pt"):
        settings.refuse("stage", "only next-token losses of one model are modelled: sft and pt")
    for name, shown, value in (
        ("gradient_checkpointing", "recomputation", not settings.flag("disable_gradient_checkpointing")),
        (
            "gradient_checkpointing_kwargs.use_reentrant",
            "use_reentrant_gc",
            settings.flag("use_reentrant_gc", default=True),
        ),
        ("cutoff_len", "cutoff_len", 2048),
        ("attn_implementation", "flash_attn", settings.choice("flash_attn", among=_KERNELS)),
    ):
        default = Setting(value=value, file="LLaMA-Factory", name=f"its {shown}")
        settings.found.setdefault(name, default)
    if settings.flag("neat_packing"):
        settings.draft.note(PACKED)
    elif not settings.flag("packing", default=settings.text("stage") == "pt"):
        settings.draft.note(UNPACKED)
