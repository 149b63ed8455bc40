"""DeepSpeed: its JSON with the launch script of Megatron-DeepSpeed, or with a Hugging Face Trainer's
arguments.

Sources: deepspeedai/Megatron-DeepSpeed megatron/arguments.py (4efb479);
bigscience-workshop/Megatron-DeepSpeed and bigscience train/tr11-176B-ml; deepspeed_json.py for the JSON.
"""

from __future__ import annotations

import re
from pathlib import Path

from .arguments import Launch, doubtful
from .cluster_facts import put_machine, world_size
from .deepspeed_json import (
    batches_beside,
    batches_of,
    fill_auto,
    join_json,
    precision_of,
    put_batches,
    put_zero,
)
from .draft import Draft, Imported
from .importer import Importer, ImportJob
from .launchers import launch_among
from .leftovers import settle
from .megatron_layout import put_layout
from .megatron_lm import SEVERAL
from .megatron_model import DEFAULT, put_model
from .megatron_software import put_environment, put_software
from .megatron_version import Megatron, refuse_strangers
from .settings import Setting, Settings
from .sources import SourceFile, source_of
from .trainer import put_trainer

_SIGNS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")

_REFUSED = {
    "mos": "distillation runs a second model, which is not modelled",
    "mlp_type": "residual experts (PR-MoE) are not modelled",
    "ds_sequence_parallel_fpdt": "FPDT's chunks of the sequence on the host are not modelled",
    "memory_centric_tiled_linear": "tiled linear layers are not modelled",
    "use_bnb_optimizer": "8-bit optimizer state is not modelled",
    "checkpoint_in_cpu": "checkpoints on the host are not modelled",
    "partition_activations": "activations that are partitioned over tensor-parallel ranks are not modelled",
    "create_moe_param_group": None,
    "enable_zbh1_pipeline": "this schedule of the fork is not read; write schedule: zb-h1 in a scenario",
    "num_layers_per_virtual_pipeline_stage": "DeepSpeed's pipeline has one chunk a stage",
    "random_ltd": "layers that drop tokens are not modelled",
}


def _is_megatron(file: SourceFile) -> bool:
    text = file.command
    return (
        file.is_command
        and "--num-layers" in text
        and (
            re.search(r"--(deepspeed\b|zero-stage|deepspeed_config|ds-sequence-parallel-size)", text)
            is not None
        )
    )


def _is_trainer(file: SourceFile) -> bool:
    """A script that starts a Hugging Face Trainer with a DeepSpeed JSON."""
    return (
        file.kind == "shell"
        and re.search(r"--deepspeed[ =]\S+\.json", file.text) is not None
        and "--model_name_or_path" in file.text
    )


def _recognises(file: SourceFile) -> bool:
    if file.is_command:
        return _is_megatron(file) or _is_trainer(file)
    return file.kind == "json" and bool(file.keys & set(_SIGNS)) and "pipe_parallel_size" not in file.keys


def read_deepspeed(job: ImportJob) -> Imported:
    """The scenario of a DeepSpeed run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = Draft(framework="deepspeed", file=job.name, version=job.version or "")
    script = job.script
    launch = launch_among(script, job.files, job.given, draft) if script else None
    config = next((one for one in job.files if one.kind == "json" and one.keys & set(_SIGNS)), None)
    if config is None and launch:
        config = _written(launch)
    settings = Settings(found=dict(launch.options) if launch else {}, given=job.given, draft=draft)
    join_json(settings, config.settings() if config else {})
    if launch and ("num_layers" in launch.options or (script and _is_megatron(script))):
        if script and script.kind == "arguments":
            for one in doubtful(launch):
                draft.refuse(one.name, SEVERAL, value=one.value)
        return _megatron(settings, launch, config)
    return _huggingface(settings, launch, job)


def _written(launch: Launch) -> SourceFile | None:
    """The JSON that the script writes before it starts."""
    for name, text in launch.documents.items():
        if "zero_optimization" in text or "train_micro_batch" in text:
            try:
                return source_of(text, Path(name if name.endswith(".json") else f"{name}.json"))
            except ValueError:
                return None
    return None


def _megatron(settings: Settings, launch: Launch, config: SourceFile | None) -> Imported:
    draft = settings.draft
    draft.version = draft.version or "2022"
    for name, why in _REFUSED.items():
        if why and not (name == "mlp_type" and settings.text("mlp_type") == "standard"):
            settings.refuse_if(name, why)
        settings.setting(name)
    _one_expert_count(settings)
    gpus = world_size(settings, launch.nodes, launch.per_node, launch.world)
    megatron = Megatron(version=(2, 5), shown="as in Megatron-DeepSpeed")
    refuse_strangers(settings, megatron)
    put_model(settings)
    put_layout(settings, megatron, gpus)
    put_software(settings, megatron, launch.environment)
    blocking = launch.environment.get("CUDA_LAUNCH_BLOCKING")
    jean_zay = blocking is not None and blocking.value == "1"
    draft.put(
        "software.preset",
        "bigscience-2022" if jean_zay else "megatron-deepspeed-2022",
        "CUDA_LAUNCH_BLOCKING=1, as BigScience ran it" if jean_zay else "Megatron-DeepSpeed",
    )
    for field in ("host.launch_blocking", "gradients.overlap_grad_reduce", "gradients.main_grad_bytes"):
        draft.drop(f"software.{field}")  # DeepSpeed's engine, not Megatron's, says these
    _ulysses(settings, gpus)
    _zero_of_megatron(settings, config)
    _stages(settings)
    put_machine(settings)
    settle(settings, "megatron-deepspeed", "megatron-lm", "deepspeed-json")
    return draft.finished()


def _one_expert_count(settings: Settings) -> None:
    """``--num-experts`` is a list there: one number, or the same for all layers."""
    settings.number("moe_train_capacity_factor")
    found = settings.found.get("num_experts")
    if found is None:
        return
    counts = found.value if isinstance(found.value, list) else [found.value]
    if len(set(counts)) > 1:
        settings.refuse("num_experts", "layers with different numbers of experts (PR-MoE) are not modelled")
    settings.found["num_experts"] = Setting(
        value=counts[0], file=found.file, name=found.name, line=found.line
    )
    if str(counts[0]) == "1":
        settings.found.pop("num_experts")
        settings.found.pop("moe_expert_parallel_size", None)
        return
    factor = settings.number("moe_train_capacity_factor", default=1.0)
    settings.found["moe_expert_capacity_factor"] = Setting(
        value=factor, file=found.file, name="--moe-train-capacity-factor"
    )
    settings.found["moe_pad_expert_input_to_capacity"] = Setting(
        value=True, file=found.file, name="as DeepSpeed's gate does"
    )
    settings.found["moe_router_topk"] = settings.setting("topk") or Setting(
        value=1, file=found.file, name="--topk 1"
    )
    settings.found["moe_token_dispatcher_type"] = Setting(
        value="alltoall", file=found.file, name="DeepSpeed's all-to-all"
    )
    every, layers = settings.integer("expert_interval", default=2) or 2, settings.integer("num_layers") or 0
    if every > 1 and 0 < layers < 10_000:
        pattern = [int((layer + 1) % every == 0) for layer in range(layers)]
        settings.found["moe_layer_freq"] = Setting(
            value=pattern, file=found.file, name=f"--expert-interval {every}"
        )
    settings.draft.refuse(
        "--num-experts", "DeepSpeed runs its experts one after the other, which is not modelled"
    )


def _ulysses(settings: Settings, gpus: int | None) -> None:
    """``--ds-sequence-parallel-size``: ranks that exchange heads for tokens."""
    size = settings.integer("ds_sequence_parallel_size", default=1) or 1
    (
        settings.integer("ds_sequence_parallel_fpdt_chunk_size"),
        settings.flag("ds_sequence_parallel_fpdt_offloading"),
    )
    if size > 1:
        draft = settings.draft
        settings.put("parallelism.cp", size, "ds_sequence_parallel_size")
        settings.put("software.exchange.cp_comm", "a2a", "ds_sequence_parallel_size")
        micro = draft.get("training.micro_batch")
        replica = draft.get("parallelism.tp", 1) * draft.get("parallelism.pp", 1) * size
        if gpus and micro and not settings.has("global_batch_size"):
            draft.put(
                "training.global_batch",
                micro * (gpus // replica),
                f"{DEFAULT}: one microbatch on each replica",
            )


def _zero_of_megatron(settings: Settings, config: SourceFile | None) -> None:
    """The stage: the JSON's, which has to be that of ``--zero-stage``, and what BF16_Optimizer makes of
    it."""
    draft, pp = settings.draft, settings.draft.get("parallelism.pp", 1)
    pipeline = not settings.flag("no_pipeline_parallel")
    _join_stages(settings, config)
    stage = put_zero(settings, pipeline=pipeline and pp > 1)
    _refuse_other_batches(settings)
    if config is not None:
        _refuse_other_precision(settings)
    if draft.get("training.precision") == "bf16" and pipeline and stage == 0:
        draft.put(
            "parallelism.zero", 1, "BF16_Optimizer shards the optimizer's state, whatever stage is named"
        )
    if settings.flag("cpu_optimizer"):
        settings.put("training.cpu_offload", True, "cpu_optimizer")
    if stage == 3:
        draft.put("software.preset", "deepspeed-zero3-2021", "ZeRO-3")


def _join_stages(settings: Settings, config: SourceFile | None) -> None:
    """Take ``--zero-stage`` where there is no JSON; where there is one, refuse another stage than its own."""
    told = (
        settings.integer("zero_stage")
        if settings.has("zero_stage") and settings.found["zero_stage"].value is not True
        else None
    )
    if config is None:
        if told is not None:
            settings.found["zero_optimization.stage"] = settings.found["zero_stage"]
        elif settings.has("deepspeed"):
            settings.found["zero_optimization.stage"] = Setting(
                value=1, file="Megatron-DeepSpeed", name="default of --zero-stage"
            )
        settings.draft.note(
            "the DeepSpeed JSON is not among the files; its defaults are taken (give it as another file)"
        )
    elif told is not None and settings.integer("zero_optimization.stage", default=0) != told:
        settings.refuse("zero_stage", "it has to be the stage of the JSON, and is another")


def _refuse_other_batches(settings: Settings) -> None:
    """Refuse batch sizes of the JSON that are not those of the arguments."""
    draft = settings.draft
    batches = batches_of(settings)
    for one, name in ((batches.micro, "micro_batch"), (batches.whole, "global_batch")):
        if one is not None and draft.get(f"training.{name}") not in (None, one):
            draft.refuse(
                "train_batch_size",
                f"the JSON has {name} {one}, the arguments {draft.get(f'training.{name}')}",
            )


def _refuse_other_precision(settings: Settings) -> None:
    """Refuse a 16-bit type of the JSON that is not that of the arguments."""
    draft, kind = settings.draft, precision_of(settings)
    if kind and kind[0] != "fp32" and kind[0] != draft.get("training.precision"):
        draft.refuse(
            "bf16.enabled", f"the JSON says {kind[0]}, the arguments {draft.get('training.precision')}"
        )


def _stages(settings: Settings) -> None:
    """``--pp-partition-method``: what counts as a layer where stages are cut."""
    method = settings.text("pp_partition_method")
    draft = settings.draft
    if settings.flag("no_pipeline_parallel") and draft.get("parallelism.pp", 1) > 1:
        settings.refuse("no_pipeline_parallel", "there are several pipeline stages")
    layers, pp = draft.get("model.num_layers"), draft.get("parallelism.pp", 1)
    if method and "embedding" in method and pp > 1:
        settings.put("parallelism.stage_split", "embedding_and_loss_as_layers", "pp_partition_method")
    elif method and method.lower() not in ("type:transformer", "uniform", "parameters") and method != "True":
        settings.refuse("pp_partition_method", "type:transformer and type:transformer|embedding are modelled")
    if draft.get("parallelism.stage_split") == "embedding_and_loss_as_layers":
        draft.problems = [
            one for one in draft.problems if one.path != "num_layers" or "evenly" not in one.message
        ]
    if layers and pp > 1 and method in (None, "True") and layers % pp and (layers + 2) % pp == 0:
        draft.problems = [
            one for one in draft.problems if one.path != "num_layers" or "evenly" not in one.message
        ]
        draft.ask(
            "pp_partition_method",
            f"{layers} layers do not fill {pp} stages, with embedding and head they do",
            "'type:transformer|embedding'",
        )


def _huggingface(settings: Settings, launch: Launch | None, job: ImportJob) -> Imported:
    """A JSON whose model and batches are the Hugging Face Trainer's."""
    draft = settings.draft
    gpus = world_size(
        settings,
        launch.nodes if launch else None,
        launch.per_node if launch else None,
        launch.world if launch else None,
    )
    if not any(name.startswith(("zero_optimization", "train_")) for name in settings.found):
        draft.ask(
            "zero_optimization.stage",
            "the DeepSpeed JSON is not among the files (give it as another file, or with --with)",
            "3",
        )
    draft.put("software.preset", "deepspeed-zero3-2021", "DeepSpeed")
    draft.put("software.name", "huggingface-deepspeed", "its model is transformers', not Megatron's")
    stage = put_zero(settings, pipeline=False)
    told = ("per_device_train_batch_size", "micro_batch_size", "batch_size")
    if name := next((one for one in told if settings.has(one)), None):
        put_batches(settings, batches_beside(settings, name), gpus, name)
    else:
        put_batches(settings, batches_of(settings), gpus)
    put_trainer(settings, job.files, precision_of(settings))
    fill_auto(settings)
    if stage == 0:
        draft.put("software.sharding.implementation", "distributed-optimizer", "plain data parallelism")
    if launch:
        put_environment(settings, launch.environment)
    put_machine(settings)
    settle(settings, "deepspeed-json", "trainer")
    return draft.finished()


IMPORTER = Importer(
    name="deepspeed",
    title="DeepSpeed, with Megatron-DeepSpeed or Hugging Face",
    source="deepspeedai/DeepSpeed runtime/config.py, runtime/zero/config.py; "
    "deepspeedai/Megatron-DeepSpeed megatron/arguments.py (4efb479)",
    recognises=_recognises,
    read=read_deepspeed,
    order=20,
)
