"""ms-swift: scripts of ``swift pt`` and ``swift sft``, which start transformers' Trainer, and of ``megatron``
with the same words, which start Megatron core.

Knows ms-swift's own names and defaults, and puts them as the Trainer's or as Megatron-LM's.

Sources: modelscope/ms-swift swift/cli/main.py (01a14c18: who starts torchrun); swift/arguments/sft_args.py
(00e9ca86), base_args/model_args.py (06505dd4), base_args/template_args.py (0a4216ba), trainers/arguments.py
(0037257c) and config/*.json of version 4, llm/ds_config/*.json (35992c1c) of version 3;
swift/megatron/arguments/megatron_args.py (006938be) of version 4, megatron/argument/megatron_args.py
(00840e65) of version 3; docs/decisions/0242.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from ....hardware.files import FileError, load_json
from .accelerate import trainer_scenario
from .arguments import Launch
from .cluster_facts import world_size
from .draft import PACKED, UNPACKED, Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .ms_swift_megatron import megatron_scenario, own_default
from .plain_names import plain_name
from .settings import GIVEN, Setting, Settings
from .sources import SourceFile

_STARTS = re.compile(
    r"(?:^|[\s;&/])(?P<who>swift|megatron)\s+(?P<task>pt|sft|rlhf)\b(?!\.)"
    r"|swift/cli/(?P<core>_megatron/)?(?P<file>pt|sft|rlhf)\.py",
    re.MULTILINE,
)
"""``swift sft``, ``megatron pt``, or the module of either that a launcher starts."""

_FULL = ("tuner_type", "train_type", "sft_type")
"""What is trained, by version: 4, 3, 2."""

OTHER_TASKS = {
    "rlhf_type": "preferences and rewards need further models and answers, which are not modelled",
    "adapters": "adapters are not modelled; full training is",
    "freeze_llm": "a model that is not trained is not modelled",
    "freeze_parameters_ratio": "parameters that are not trained are not modelled",
    "freeze_parameters": "parameters that are not trained are not modelled",
    "freeze_parameters_regex": "parameters that are not trained are not modelled",
    "trainable_parameters": "parameters that are not trained are not modelled",
    "trainable_parameters_regex": "parameters that are not trained are not modelled",
    "quant_bits": "quantised weights are not modelled",
    "quant_method": "quantised weights are not modelled",
    "config": "arguments in a file of their own are not read; write them in the script",
}
"""Settings of either kind that make another job of it."""


def _start(file: SourceFile) -> re.Match[str] | None:
    code = re.sub(r"^\s*#.*$", "", file.command, flags=re.MULTILINE)
    return _STARTS.search(code)


def _recognises(file: SourceFile) -> bool:
    return file.is_command and _start(file) is not None


def era_of(settings: Settings, told: str | None) -> int:
    """The version of ms-swift, 3 or 4: as stated, else by the names of its arguments, else the newest.

    Raises:
        ValueError: no such version is read.
    """
    if told is not None:
        found = re.fullmatch(r"v?([34])(?:\.\d+)*", told.strip().lower())
        if found is None and told.strip().lower() not in ("main", "head", "latest"):
            raise ValueError(f"version {told}: of ms-swift 3 and 4 are read; write 3.8 or 4.0")
        return int(found[1]) if found else 4
    return 3 if settings.found.keys() & _OF_THREE else 4


_OF_THREE = {
    "train_type", "max_epochs", "load_safetensors", "save", "load", "no_initialization",
    "no_masked_softmax_fusion", "no_bias_swiglu_fusion", "no_rope_fusion",
    "num_layers_per_virtual_pipeline_stage", "num_virtual_stages_per_pipeline_rank",
}  # fmt: skip
"""Arguments that version 4 has no more."""


def read_swift(job: ImportJob) -> Imported:
    """The scenario of a run that ms-swift starts.

    Raises:
        ScenarioError: what is asked or refused.
        ValueError: the script cannot be read, or a version of ms-swift that is not.
    """
    first = job.first(_recognises)
    draft = Draft(framework="ms-swift", file=job.name)
    launch = launch_among(first, job.files, job.given, draft)
    found = {name: _switched(one) for name, one in launch.options.items()}
    settings = Settings(found=found, given=job.given, draft=draft)
    start = _start(first)
    era = era_of(settings, job.version)
    draft.version = job.version or str(era)
    if job.version is None:
        draft.note(f"the version of ms-swift is not stated; its arguments suggest {era}")
    core = start is not None and (start["who"] == "megatron" or start["core"] is not None)
    _refuse_other_tasks(settings, start, core=core)
    open_documents(settings)
    gpus = _gpus(settings, launch, first, core=core)
    if core:
        return megatron_scenario(settings, job, launch, gpus, era)
    _put_trainers_names(settings, gpus, era)
    return trainer_scenario(settings, job, gpus, "ms-swift")


def _switched(one: Setting) -> Setting:
    """A switch as one: ms-swift's are all written out, ``--packing true``."""
    value = {"true": True, "false": False}.get(str(one.value).lower(), one.value)
    return replace(one, value=value)


def _refuse_other_tasks(settings: Settings, start: re.Match[str] | None, *, core: bool) -> None:
    """Refuse adapters, which are the default of ``swift`` and not of ``megatron``, and other tasks."""
    draft = settings.draft
    if start is not None and "rlhf" in (start["task"], start["file"]):
        draft.refuse("rlhf", OTHER_TASKS["rlhf_type"])
    if settings.has("sft_type", "model_id_or_path"):
        settings.refuse("sft_type", "arguments of ms-swift 2 are not read; those of 3 and 4 are")
    elif settings.text(*_FULL, default="full" if core else "lora") != "full":
        name = next((one for one in _FULL if settings.has(one)), "tuner_type")
        settings.refuse(name, "adapters (the default of swift) are not modelled; full training is")
    for name, why in OTHER_TASKS.items():
        settings.refuse_if(name, why, harmless=(None, False, "", 0, [], "[]"))
    if settings.text("task_type", default="causal_lm") != "causal_lm":
        settings.refuse("task_type", "other heads and losses than those of next tokens are not modelled")
    if settings.flag("packing"):
        draft.note(PACKED)
    elif not settings.flag("streaming") or start is None or start["task"] != "pt":
        draft.note(UNPACKED)


def open_documents(settings: Settings) -> None:
    """Put what ``megatron_extra_kwargs`` holds as JSON as Megatron's own arguments, which they are."""
    told = settings.setting("megatron_extra_kwargs")
    if told is None or not isinstance(told.value, str):
        return
    try:
        inside = load_json(told.value, told.file)
    except FileError:
        told.refuse(settings.draft, "this is no JSON")
        return
    for name, value in (inside if isinstance(inside, dict) else {}).items():
        one = Setting(value=value, file=told.file, name=f"{told.name} {name}", line=told.line)
        settings.found[plain_name(name)] = one


def _gpus(settings: Settings, launch: Launch, file: SourceFile, *, core: bool) -> int | None:
    """GPUs of the job: a torchrun's own options, or the variables that ms-swift makes them of."""
    told = launch.environment | _given(settings)
    nodes, each = launch.nodes or told.get("NNODES"), launch.per_node or told.get("NPROC_PER_NODE")
    if each is None and nodes is None and not launch.launcher and not _sets(file, "NPROC_PER_NODE", "NNODES"):
        return _one_process(settings, told.get("CUDA_VISIBLE_DEVICES"), core=core)
    if nodes is None and each is not None and not _sets(file, "NNODES"):
        nodes = Setting(value="1", file="ms-swift", name="its NNODES")
    return world_size(settings, nodes, each, launch.world)


def _given(settings: Settings) -> dict[str, Setting]:
    """Variables of the environment that are given beside the script."""
    values = {name: settings.given.get(name) for name in ("NNODES", "NPROC_PER_NODE")}
    told = {name: value for name, value in values.items() if value is not None}
    return {name: Setting(value=value, file=GIVEN, name=name) for name, value in told.items()}


def _sets(file: SourceFile, *names: str) -> bool:
    """Whether a script sets one of these variables, to whatever it may be."""
    return any(re.search(rf"\b{name}=", file.command) for name in names)


def _one_process(settings: Settings, devices: Setting | None, *, core: bool) -> int | None:
    """The GPU of a job without torchrun. Several that one process sees are dealt the layers in turn."""
    listed = str(devices.value).split(",") if devices else []
    one = None
    if devices is not None and len(listed) == 1:
        one = Setting(value="1", file=devices.file, name=devices.name, line=devices.line)
    gpus = world_size(settings, None, None, one)
    if not core and (len(listed) > 1 or (gpus or 1) > 1):
        settings.draft.refuse(
            "NPROC_PER_NODE",
            "without it one process deals the layers over its GPUs in turn (device_map), which is not"
            " modelled; where the environment has it, give it, as in --given NPROC_PER_NODE=8",
        )
    return gpus


_ATTENTION = {
    "flash_attn": "flash_attention_2", "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3", "sdpa": "sdpa", "eager": "eager",
}  # fmt: skip
"""``attn_impl`` as transformers' ``attn_implementation``."""

_SAME = {"model": "model_name_or_path", "experts_impl": "experts_implementation"}

_NOT_READ = {
    "sequence_parallel_size": "Ulysses and rings of ms-swift's Trainer are not read",
    "context_parallel_size": "context parallelism of ms-swift's Trainer is not read",
    "cp_size": "context parallelism of ms-swift's Trainer is not read",
    "expert_parallel_size": "expert parallelism of ms-swift's Trainer is not read",
    "ep_size": "expert parallelism of ms-swift's Trainer is not read",
    "deepspeed_autotp_size": "AutoTP is not modelled",
    "zero_hpz_partition_size": "a second copy of the weights in each host (ZeRO++) is not modelled",
    "use_galore": "GaLore is not modelled",
    "optimizer": "optimizers of plugins are not read; those of optim are",
    "tuner_backend": None,
}


def _put_trainers_names(settings: Settings, gpus: int | None, era: int) -> None:
    """Put ms-swift's arguments and defaults under the names that the Trainer has for them."""
    found = settings.found
    for name, why in _NOT_READ.items():
        if why:
            settings.refuse_if(name, why, harmless=(None, False, "", 0, 1))
    found.pop("model_name", None)  # whom the model is told to be
    settings.setting("model_type")
    for name, trainers in _SAME.items():
        if name in found:
            found[trainers] = found.pop(name)
    settings.read.update((*_SAME, "model_type"))
    told = settings.setting("attn_impl")
    if told is not None:
        kind = settings.choice("attn_impl", among=_ATTENTION)
        found["attn_implementation"] = Setting(value=kind, file=told.file, name=told.name, line=told.line)
    dtype = settings.text("torch_dtype", default="bfloat16")
    half = dtype in ("float16", "float32")
    micro = settings.integer("per_device_train_batch_size", default=1, least=1) or 1
    defaults: dict[str, tuple[str, object]] = {
        "per_device_train_batch_size": ("per_device_train_batch_size", 1),
        "gradient_checkpointing": ("gradient_checkpointing", True),
        "torch_dtype": ("torch_dtype, that of the model", dtype),
    }
    if not settings.has("bf16", "fp16"):
        defaults["fp16" if half else "bf16"] = ("precision, by torch_dtype", True)
    if gpus is not None:
        steps = max(1, ceil(16 / micro / gpus))
        defaults["gradient_accumulation_steps"] = (f"16 samples over {gpus} ranks", steps)
    for name, (shown, value) in defaults.items():
        found.setdefault(name, own_default(shown, value))
    _put_sharding(settings, era)


_STAGES = {
    "zero0": 0, "zero1": 1, "zero2": 2, "zero3": 3, "zero2_offload": 2, "zero3_offload": 3,
    "default-zero2": 2, "default-zero3": 3,
}  # fmt: skip
"""JSONs of DeepSpeed that ship with ms-swift, by name: the stage of ZeRO."""


def _put_sharding(settings: Settings, era: int) -> None:
    """Put who shards: a JSON of DeepSpeed or of FSDP that ms-swift has by that name, or nobody."""
    found, draft = settings.found, settings.draft
    told, fsdp = settings.text("deepspeed"), settings.text("fsdp")
    if told in _STAGES:
        stage, one = _STAGES[told], found.pop("deepspeed")
        facts = _zero(stage, offload=told.endswith("offload"), overlap=era == 3)
        for name, value in facts.items():
            shown = f"{one.name} {told}"
            found[f"deepspeed.{name}"] = Setting(value=value, file=one.file, name=shown, line=one.line)
        if stage:
            draft.note(
                f"{told}.json of ms-swift {era} has overlap_comm {str(era == 3).lower()}: it was true in"
                " version 3, and is false in 4"
            )
    elif told and not told.endswith(".json"):
        settings.refuse("deepspeed", f"ms-swift has {', '.join(_STAGES)}; another is a JSON among the files")
    elif fsdp == "fsdp2":
        one = found.pop("fsdp")
        for name, value in _FSDP2.items():
            found[name] = Setting(value=value, file=one.file, name=f"{one.name} fsdp2", line=one.line)
    elif fsdp:
        settings.refuse("fsdp", "of FSDP's configurations fsdp2 is read, which ms-swift has by that name")
    elif not told:
        found["distributed_type"] = own_default("distribution without deepspeed and fsdp", "MULTI_GPU")


_FSDP2: Mapping[str, object] = {
    "distributed_type": "FSDP",
    "fsdp_config.fsdp_version": 2,
    "fsdp_config.fsdp_reshard_after_forward": True,
    "fsdp_config.fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_config.fsdp_activation_checkpointing": True,
}
"""config/fsdp2.json as accelerate's file has it."""


def _zero(stage: int, *, offload: bool, overlap: bool) -> dict[str, object]:
    """What ms-swift's JSON for a stage of ZeRO says, by dotted names; the rest are DeepSpeed's defaults."""
    inside: dict[str, object] = {"stage": stage, "overlap_comm": overlap}
    if stage == 3:
        auto = ("reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold")
        inside |= dict.fromkeys(auto, "auto")
        inside["stage3_max_live_parameters"] = 1e9
    else:
        inside["reduce_bucket_size"] = 2e8
    if offload:
        inside["offload_optimizer.device"] = "cpu"
    if offload and stage == 3:
        inside["offload_param.device"] = "cpu"
    return {f"zero_optimization.{name}": value for name, value in inside.items()}


IMPORTER = Importer(
    name="ms-swift",
    title="ms-swift, with the Trainer or with Megatron",
    source="modelscope/ms-swift swift/arguments, swift/megatron/arguments (006938be), swift/config",
    recognises=_recognises,
    read=read_swift,
    versioned=True,
    order=12,
)
