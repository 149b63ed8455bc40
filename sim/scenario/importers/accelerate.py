"""Hugging Face accelerate: its configuration, with the Trainer's arguments and a config.json beside it.

Sources: huggingface/accelerate src/accelerate/utils/dataclasses.py, parallelism_config.py (16cb6eb8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from .cluster_facts import put_machine, world_size
from .deepspeed_json import batches_beside, fill_auto, join_json, precision_of, put_batches, put_zero
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .settings import Settings
from .sources import SourceFile
from .trainer import FUSED, REPLICAS, put_trainer
from .trainer_run import has_arguments, is_accelerates, settings_of, starts_trainer

DEFAULT = "default of accelerate"
DEEPSPEED = "huggingface-deepspeed"
"""What scenarios of transformers' models under DeepSpeed call their software."""

STRATEGIES = {
    "full_shard": 3,
    "shard_grad_op": 2,
    "no_shard": 0,
    "hybrid_shard": 3,
    "hybrid_shard_zero2": 2,
    "1": 3,
    "2": 2,
    "3": 0,
    "4": 3,
    "5": 2,
}
"""``fsdp_sharding_strategy``, which old files have as a number."""


def _recognises(file: SourceFile) -> bool:
    return is_accelerates(file) or has_arguments(file) or starts_trainer(file)


def read_accelerate(job: ImportJob) -> Imported:
    """The scenario of a run that accelerate launches, or that a script starts with the Trainer's arguments.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="accelerate", file=job.name, version=job.version or "16cb6eb8")
    settings, launch = settings_of(job, draft)
    _refuse_strangers(settings)
    world = settings.setting("num_processes") or (launch.world if launch else None)
    if world is None and launch:
        gpus = world_size(settings, launch.nodes, launch.per_node)
    else:
        gpus = world_size(settings, None, None, world)
    return trainer_scenario(settings, job, gpus)


def trainer_scenario(settings: Settings, job: ImportJob, gpus: int | None, *lists: str) -> Imported:
    """The scenario of a Trainer's arguments, by its own names; ``lists`` are further ones of ignored.yaml.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = settings.draft
    ranks = _put_distribution(settings, job, gpus)
    micro = "per_device_train_batch_size"
    put_batches(settings, batches_beside(settings, micro), ranks, micro)
    if settings.text("dynamo_config.dynamo_backend", "dynamo_backend", default="NO") not in ("NO", "no"):
        settings.put("software.kernels.torch_compile", True, "dynamo_config.dynamo_backend", "dynamo_backend")
    put_trainer(settings, job.files, _precision(settings, any(map(is_accelerates, job.files))))
    fill_auto(settings)
    if not settings.has("optim") and draft.get("software.name") != DEEPSPEED:
        # transformers training_args.py: default_optim
        draft.note(
            f"optim is not said: an update is torch's foreach; from torch 2.8 on {FUSED} is the default"
        )
    if settings.flag("fsdp_config.fsdp_activation_checkpointing"):
        settings.put("training.recompute", "full", "fsdp_config.fsdp_activation_checkpointing")
    put_machine(settings)
    settle(settings, "accelerate", "trainer", "deepspeed-json", *lists)
    return draft.finished()


def _precision(settings: Settings, launched: bool) -> tuple[str, str] | None:
    """The precision and where it stands: a DeepSpeed JSON's, else what the Trainer's arguments turn on, else
    that of accelerate's file or options, whose default is 32 bit; None leaves it to the arguments.

    Source: transformers training_args.py, ACCELERATE_MIXED_PRECISION.
    """
    if found := _precision_of_json(settings):
        return found
    kind = settings.choice(
        "mixed_precision", among={"no": "fp32", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}, default="fp32"
    )
    for name in ("bf16", "fp16"):
        if settings.has(name) and settings.flag(name):
            return name, settings.origin(name)
    told = launched or settings.has("mixed_precision")
    return (kind, settings.origin("mixed_precision", default=DEFAULT)) if told else None


def _precision_of_json(settings: Settings) -> tuple[str, str] | None:
    """What a DeepSpeed JSON turns on, which holds over ``mixed_precision``; None where it leaves it open.

    Source: accelerate state.py, AcceleratorState.mixed_precision.
    """
    found = precision_of(settings)
    return found if found and found[0] != "fp32" else None


def _refuse_strangers(settings: Settings) -> None:
    if strange := [name for name in settings.found if "invalid" in name]:
        settings.draft.refuse(strange[0], "accelerate ends on keys that it does not know")
    if settings.flag("use_cpu") or settings.text("distributed_type") in ("XLA", "TPU", "MULTI_CPU"):
        settings.refuse("distributed_type", "CPUs and TPUs are not modelled")


def _put_distribution(settings: Settings, job: ImportJob, gpus: int | None) -> int | None:
    """Put in what ``distributed_type`` means: FSDP, DeepSpeed or plain replicas. Returns the number of ranks
    that read data of their own, None where it is not known."""
    draft, how = settings.draft, settings.text("distributed_type", default="NO")
    if settings.text("deepspeed") or any(name.startswith("deepspeed.") for name in settings.found):
        how = "DEEPSPEED"
    if how == "FSDP" or settings.flag("fsdp_config.use_fsdp"):
        return put_fsdp(settings, gpus)
    if how == "DEEPSPEED":
        _deepspeed(settings, job)
    elif how == "MEGATRON_LM":
        settings.refuse(
            "distributed_type", "Megatron-LM below accelerate is not read; give Megatron's own arguments"
        )
    else:
        draft.put("software.preset", "torchtitan-2024", "plain torch")
        draft.put("software.name", REPLICAS, "DistributedDataParallel of torch")
        settings.put("parallelism.zero", 0, "distributed_type", default="nothing shards")
        if not settings.has("distributed_type"):
            draft.note(
                "nothing says who shards the states, so replicas of DistributedDataParallel are taken; give"
                " accelerate's file or the DeepSpeed JSON, too, where the run has one"
            )
    return gpus


def put_fsdp(settings: Settings, gpus: int | None, prefix: str = "fsdp_config.fsdp_") -> int | None:
    """Put FSDP's sharding; the data-parallel ranks."""
    draft = settings.draft
    version = settings.integer(f"{prefix}version", "fsdp_version", default=1) or 1
    _fsdp_software(settings, version, prefix)
    sharding = _first_fsdp(settings, prefix) if version == 1 else _second_fsdp(settings, prefix)
    sizes = {
        axis: settings.integer(f"parallelism_config.parallelism_config_{axis}_size", default=1) or 1
        for axis in ("dp_replicate", "dp_shard", "tp", "cp", "sp")
    }
    _other_axes(settings, sizes)
    replica = sizes["tp"] * sizes["cp"] * sizes["sp"]
    if gpus is not None and gpus % replica:
        draft.refuse("num_processes", f"{gpus} GPUs are no multiple of tp and cp {replica}")
        return None
    draft.put("parallelism.zero", sharding.stage if (gpus or 2) > 1 else 0, sharding.origin)
    if sharding.hybrid and gpus and gpus > 8:
        draft.put("parallelism.fsdp_shard_size", 8, f"{sharding.origin}: the GPUs of a host")
    elif sizes["dp_replicate"] > 1 and gpus:
        settings.put(
            "parallelism.fsdp_shard_size",
            gpus // sizes["dp_replicate"] // sizes["tp"],
            "parallelism_config.parallelism_config_dp_replicate_size",
        )
    settings.refuse_if(f"{prefix}offload_params", "parameters on the host are not modelled")
    wrapped = settings.text(f"{prefix}transformer_layer_cls_to_wrap")
    if wrapped and re.search(r"moe|mlp|expert|attention", wrapped, re.IGNORECASE):
        draft.note(f"{wrapped} is a unit of FSDP by itself; units are taken as whole layers here")
    return gpus // replica if gpus else None


def _fsdp_software(settings: Settings, version: int, prefix: str) -> None:
    draft = settings.draft
    draft.put("software.preset", "torchtitan-2024", "FSDP of plain torch")
    draft.put("software.name", "huggingface-fsdp", "its model is transformers', not torchtitan's")
    settings.put(
        "software.sharding.implementation",
        f"fsdp{min(2, max(1, version))}",
        f"{prefix}version",
        "fsdp_version",
        default=f"{DEFAULT}: 1",
    )
    each = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch"
    settings.put(
        "software.sharding.reduce",
        "each" if settings.flag(each) else "last",
        each,
        default=f"{DEFAULT}: accumulation is no_sync but for the last microbatch",
    )


@dataclass(frozen=True, kw_only=True)
class _Sharding:
    """The ZeRO stage that a strategy is; ``hybrid``: within each host."""

    stage: int
    origin: str
    hybrid: bool = False


def _first_fsdp(settings: Settings, prefix: str) -> _Sharding:
    name = f"{prefix}sharding_strategy"
    wrap = settings.choice(
        f"{prefix}auto_wrap_policy",
        among={"transformer_based_wrap": 1, "size_based_wrap": 1, "no_wrap": 0},
        default=0,
    )
    if wrap == 0:
        settings.refuse(
            f"{prefix}auto_wrap_policy",
            "NO_WRAP, which is the default, makes the model one unit that gathers at once, which is "
            "not modelled",
        )
    return _Sharding(
        stage=settings.choice(name, among=STRATEGIES, default=3),
        origin=settings.origin(name, default=f"{DEFAULT}: FULL_SHARD"),
        hybrid=str(settings.text(name)).lower() in ("hybrid_shard", "hybrid_shard_zero2", "4", "5"),
    )


def _second_fsdp(settings: Settings, prefix: str) -> _Sharding:
    settings.setting(f"{prefix}sharding_strategy")  # of version 1
    name = f"{prefix}reshard_after_forward"
    after = settings.flag(name, default=True)
    return _Sharding(stage=3 if after else 2, origin=settings.origin(name, default=f"{DEFAULT}: true"))


def _other_axes(settings: Settings, sizes: Mapping[str, int]) -> None:
    draft = settings.draft
    table = "parallelism_config.parallelism_config"
    settings.put("parallelism.tp", sizes["tp"], f"{table}_tp_size", default=DEFAULT)
    if sizes["tp"] > 1:
        settings.refuse(
            f"{table}_tp_size",
            "tensor parallelism of transformers, which shards no sequence, is not read",
        )
    cp = sizes["cp"] * sizes["sp"]
    settings.put("parallelism.cp", cp, f"{table}_cp_size", f"{table}_sp_size", default=DEFAULT)
    if cp > 1:
        draft.put(
            "software.exchange.cp_comm", "a2a" if sizes["sp"] > 1 else "all_gather", f"{DEFAULT}: allgather"
        )


def _deepspeed(settings: Settings, job: ImportJob) -> None:
    """``deepspeed_config`` of accelerate, or ``deepspeed`` of the Trainer: inline, or a JSON among the
    files."""
    draft = settings.draft
    names = ("deepspeed", "deepspeed_config.deepspeed_config_file")
    file = settings.text(*names)
    config = next((one for one in job.files if one.kind == "json" and "zero_optimization" in one.keys), None)
    if file and config is None:
        name = next(one for one in names if settings.has(one))
        draft.refuse(name, f"{file}: give it, too (another FILE, or --with {PurePosixPath(file).name})")
    inline = {
        name.removeprefix("deepspeed."): one
        for name, one in settings.found.items()
        if name.startswith("deepspeed.")
    }
    settings.read.update(f"deepspeed.{name}" for name in inline)
    join_json(settings, config.settings() if config else inline)
    renamed = {
        "zero_stage": "stage",
        "offload_optimizer_device": "offload_optimizer.device",
        "offload_param_device": "offload_param.device",
    }
    for name, long in renamed.items():
        found = settings.setting(f"deepspeed_config.{name}")
        if found is not None and f"zero_optimization.{long}" not in settings.found:
            settings.found[f"zero_optimization.{long}"] = found
    steps = settings.setting("deepspeed_config.gradient_accumulation_steps")
    if steps is not None and "gradient_accumulation_steps" not in settings.found:
        settings.found["gradient_accumulation_steps"] = steps
    draft.put("software.preset", "deepspeed-zero3-2021", "DeepSpeed")
    draft.put("software.name", DEEPSPEED, "its model is transformers', not Megatron's")
    put_zero(settings, pipeline=False)


IMPORTER = Importer(
    name="accelerate",
    title="Hugging Face accelerate and Trainer",
    source="huggingface/accelerate src/accelerate/utils/dataclasses.py (16cb6eb8)",
    recognises=_recognises,
    read=read_accelerate,
    order=34,
)
