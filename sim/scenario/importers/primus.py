"""Primus: its experiment YAML over Megatron-LM, torchtitan or MaxText, with presets by name.

The model and the defaults stand in presets of Primus. Given as other files they are read; without them a
model that the catalogue has is taken from there.

Source: AMD-AGI/Primus docs/02-user-guide/configuration-system.md,
primus/configs/modules/megatron/trainer_base.yaml, primus/configs/models (fd1eeabb).
"""

from __future__ import annotations

import re
from typing import Any

from ..model.catalogue import model_called, model_names
from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .leftovers import settle
from .maxtext import maxtext_scenario
from .megatron_layout import put_layout
from .megatron_model import put_model
from .megatron_software import put_software
from .megatron_version import Megatron
from .model_facts import put_catalogue_model, put_named_model
from .plain_names import plain_name
from .settings import CLOSE, OPEN, Setting, Settings
from .sources import SourceFile
from .torchtitan import torchtitan_scenario

DEFAULTS = {
    "micro_batch_size": 2,
    "global_batch_size": 16,
    "seq_length": 1024,
    "use_distributed_optimizer": True,
}
"""pre_trainer.yaml over trainer_base.yaml (128 sequences a step and no distributed optimizer there)."""

_SCHEDULES = (
    "patch_primus_pipeline",
    "patch_zero_bubble",
    "enable_zero_bubble",
    "zero_bubble_v_schedule",
    "enable_1f1b_v",
    "pp_algorithm",
    "decoder_pipeline_manual_split_list",
)
_REFUSED = {
    "recompute_layer_ids": "layers to recompute by number are not modelled; the first n of a stage, or "
                           "every n-th, are",
    "use_turbo_mega_moe": "experts in one kernel with their exchange are not modelled",
    "offload_chunk_num": "activations of some chunks on the host are not modelled",
    "optimizer_memory_host_offload": "optimizer state on the host between steps is not modelled",
    "num_seq_splits": "sequences that are split over pipeline microbatches are not modelled",
    "use_sink_attention": None,
}  # fmt: skip


_NO_AMAX = "te_patches/delayed_scaling_patches.py of Primus"
"""It takes ``reduce_amax`` from the recipe of delayed scaling, before every Megatron run."""


def _recognises(file: SourceFile) -> bool:
    if file.is_command:
        return "use_turbo_" in file.text or "PRIMUS" in file.text
    return file.at("modules.pre_trainer.framework") is not None


def _open(value: Any, job: ImportJob) -> Any:
    """``${VAR:default}`` by what is given, else its default; ``${VAR}`` stays open."""
    if not isinstance(value, str) or "${" not in value:
        return value
    found = re.fullmatch(r"\$\{(\w+)(?::(.*))?\}", value.strip())
    if found is None:  # a part of a longer text
        part = re.compile(r"\$\{(\w+)(?::([^{}]*))?\}")
        return part.sub(lambda one: job.given.get(one[1]) or one[2] or one[0], value)
    told = job.given.get(found[1])
    if told is None and found[2] is None:
        return f"{OPEN}{found[1]}{CLOSE}"
    text = told if told is not None else found[2].strip().strip("\"'")
    return {"null": None, "None": None, "": None, "true": True, "false": False}.get(text, text)


def read_primus(job: ImportJob) -> Imported:
    """The scenario of a Primus run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="primus", file=job.name, version=job.version or "fd1eeabb")
    settings = Settings(found={}, given=job.given, draft=draft)
    if first.is_command:
        launch = launch_among(first, job.files, job.given, draft)
        settings.found |= launch.options
        return _megatron(settings, None, job)
    top = "modules.pre_trainer"
    for name, one in first.settings(f"{top}.overrides").items():
        settings.found[name] = Setting(
            value=_open(one.value, job), file=one.file, name=one.name, line=one.line
        )
    model, framework = _open(first.at(f"{top}.model"), job), first.at(f"{top}.framework")
    if framework == "megatron":
        return _megatron(settings, model, job)
    known = _known(model)
    if framework == "torchtitan":
        if "fp8" in str(model).lower() and not settings.has("model.converters"):
            settings.found["model.converters"] = Setting(
                value=["quantize.linear.float8"], file=first.name, name=f"model: {model}"
            )
        if known and job.given.get("model") is None:
            draft.put("model.preset", known, f"{first.name} model: {model}")
        return torchtitan_scenario(settings, job.version, world_size(settings, None, None))
    if framework == "maxtext":
        return maxtext_scenario(
            settings, known, f"{first.name} model: {model}", world_size(settings, None, None)
        )
    draft.refuse(
        f"{top}.framework", f"{framework!s:.60}: megatron, torchtitan and maxtext are read", value=framework
    )
    return draft.finished()


def _known(model: Any) -> str | None:
    name = str(model or "").removesuffix(".yaml").lower()
    for ending in ("-fp8", "-bf16", "-fp16"):
        name = name.removesuffix(ending)
    return model_called(name)


def _presets(job: ImportJob, name: str, depth: int = 0) -> dict[str, Setting]:
    """The settings of a preset that is among the files, over those that it extends."""
    file = next((one for one in job.files if one.name == name), None)
    if file is None or depth > 8:
        return {}
    found: dict[str, Setting] = {}
    extends = file.at("extends")
    for base in extends if isinstance(extends, list) else [extends] if extends else []:
        found |= _presets(job, str(base), depth + 1)
    return found | file.settings()


def _megatron(settings: Settings, model: Any, job: ImportJob) -> Imported:
    """A run of Primus on Megatron-LM, by the preset ``model`` and what the files say beside it."""
    draft = settings.draft
    presets = _presets(job, str(model)) if model else {}
    for name, one in presets.items():
        settings.found.setdefault(name, one)
    for name, value in DEFAULTS.items():
        settings.found.setdefault(name, Setting(value=value, file="pre_trainer.yaml of Primus", name=name))
    _refuse_settings(settings)
    megatron = Megatron(version=(4, 14), shown="as in Primus")
    gpus = world_size(settings, None, None)
    if "num_layers" in settings.found:
        put_model(settings)
    else:
        _put_preset(settings, model, job)
    _windows(settings)
    _put_defaults(settings)
    put_layout(settings, megatron, gpus)
    put_software(settings, megatron, {})
    if settings.flag("use_turbo_attention") or settings.flag("use_turbo_gemm"):
        draft.note("kernels of Primus-Turbo are not modelled; the preset's stand for them")
    put_machine(settings)
    settle(settings, "primus", "megatron-lm")
    return draft.finished()


def _refuse_settings(settings: Settings) -> None:
    for name, why in _REFUSED.items():
        if why:
            settings.refuse_if(name, why, harmless=(None, False, "", 0, "0"))
    pp = settings.integer("pipeline_model_parallel_size", default=1) or 1
    for name in _SCHEDULES:
        if pp > 1:
            settings.refuse_if(
                name, "schedules of Primus are not read; write them in a scenario, as in schedule: zb-v"
            )
        settings.setting(name)


def _put_preset(settings: Settings, model: Any, job: ImportJob) -> None:
    """A model whose sizes no file holds: the catalogue's, or the one that is given."""
    draft, told = settings.draft, job.given.get("model")
    if told is None and (known := _known(model)):
        put_catalogue_model(settings, known, f"model: {model}")
        draft.note(f"the preset {model} is not among the files; the catalogue's {known} is taken")
        settings.read.update(_MODEL_NAMES)
    elif told in model_names():
        put_catalogue_model(settings, told, f"--given model={told}")
        settings.read.update(_MODEL_NAMES)
    elif told is not None:
        put_named_model(settings, None, "", job.files)
    else:
        draft.ask(
            "model",
            f"the preset {model} of Primus is not among the files (give it, and what it extends)"
            if model
            else "the files name no model of Primus",
            "llama3-8b",
        )


def _put_defaults(settings: Settings) -> None:
    """What Primus's own base files say where no file here does, as Megatron's options."""
    found = settings.found

    def put(name: str, value: object, file: str, like: str | None = None) -> None:
        found[name] = Setting(value=value, file=file, name=like or name)

    if settings.flag("use_turbo_deepep"):
        put("moe_token_dispatcher_type", "flex", "Primus", "use_turbo_deepep")
        put(
            "enable_experimental", True, "Primus", "use_turbo_deepep"
        )  # PrimusDeepepManager asks for no such flag
    elif "moe_token_dispatcher_type" not in found:
        put("moe_token_dispatcher_type", "alltoall", "language_model.yaml of Primus")
    if settings.flag("use_turbo_grouped_gemm") or "moe_grouped_gemm" not in found:
        put("moe_grouped_gemm", True, "language_model.yaml of Primus")
    if "bf16" not in found and "fp16" not in found:
        put("bf16", True, "trainer_base.yaml of Primus")
    put("reduce_amax", False, _NO_AMAX)


def _windows(settings: Settings) -> None:
    """Attention's window by Primus's own names, which hold beside those of the model."""
    draft, told = settings.draft, settings.integer("sink_sliding_window")
    settings.flag("sink_window_even_layers_only")
    if told == 0:
        for name in ("model.sliding_window", "model.full_attention_every"):
            draft.drop(name)
    elif told is not None:
        settings.put("model.sliding_window", told, "sink_sliding_window")


_MODEL_NAMES = tuple(
    map(
        plain_name,
        (
            "multi_latent_attention",
            "mtp_num_layers",
            "moe_ffn_hidden_size",
            "num_experts",
            "group_query_attention",
            "num_query_groups",
            "kv_channels",
            "q_lora_rank",
            "kv_lora_rank",
            "qk_head_dim",
            "qk_pos_emb_head_dim",
            "v_head_dim",
            "moe_layer_freq",
            "moe_router_topk",
            "ffn_hidden_size",
            "hidden_size",
            "num_attention_heads",
            "moe_shared_expert_intermediate_size",
            "moe_router_num_groups",
            "moe_router_group_topk",
        ),
    )
)
"""Settings of the model that stand beside a preset which the catalogue knows as a whole."""


IMPORTER = Importer(
    name="primus",
    title="Primus",
    source="AMD-AGI/Primus primus/configs, docs/02-user-guide/configuration-system.md (fd1eeabb)",
    recognises=_recognises,
    read=read_primus,
    versioned=True,
    order=10,
)
