"""NeMo 1.x: its Hydra YAML with resolvers; and launchers of NeMo 2, whose layout stands in another table.

Sources: NVIDIA/NeMo v1.23.0 examples/nlp/language_modeling/conf/megatron_gpt_config.yaml,
nemo/collections/nlp/modules/common/megatron; NVIDIA/NeMo-Framework-Launcher launcher_scripts/conf/training;
NVIDIA/dgxc-benchmarking.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .cluster_facts import put_machine, world_size
from .draft import Draft, Imported
from .hydra import resolved
from .importer import Importer, ImportJob
from .launchers import launch_among
from .leftovers import settle
from .megatron_layout import put_layout
from .megatron_model import put_model
from .megatron_software import put_software
from .megatron_version import Megatron
from .recipes import read_recipe
from .settings import Given, Setting, Settings
from .sources import SourceFile

RENAMED = {
    "virtual_pipeline_model_parallel_size": "num_virtual_stages_per_pipeline_rank",
    "encoder_seq_length": "seq_length",
    "activations_checkpoint_granularity": "recompute_granularity",
    "activations_checkpoint_method": "recompute_method",
    "activations_checkpoint_num_layers": "recompute_num_layers", "num_moe_experts": "num_experts",
    "ub_tp_comm_overlap": "tp_comm_overlap",
    "ub_tp_comm_overlap_cfg": "tp_comm_overlap_cfg", "bias_dropout_add_fusion": "bias_dropout_fusion",
    "tokenizer.model": "tokenizer_model",
    "tokenizer.type": "tokenizer_type", "tokenizer.vocab_file": "vocab_file",
    "reduce_amax": "reduce_amax", "use_flash_attention": "use_flash_attn",
    "fp8_params": "fp8_param_gather", "nccl_communicator_config_path": "nccl_communicator_config_path",
    "enable_cuda_graph": "enable_cuda_graph",
    "optim.overlap_grad_sync": "overlap_grad_reduce", "optim.overlap_param_sync": "overlap_param_gather",
}  # fmt: skip
"""NeMo's names as Megatron's. Its virtual size counts chunks, where Megatron's option counts layers."""

_ACTIVATIONS = {
    "gelu": None, "swiglu": "swiglu", "fast-swiglu": "swiglu", "geglu": "swiglu", "fast-geglu": "swiglu",
    "squared-relu": "squared_relu",
    "reglu": "swiglu", "fast-reglu": "swiglu",
}  # fmt: skip

_PRECISIONS = {
    "bf16": "bf16", "bf16-mixed": "bf16", "fp16": "fp16", "16": "fp16", "16-mixed": "fp16",
    "fp32": None, "32": None,
}  # fmt: skip
_NORMS = {
    "layernorm": "layernorm", "layernorm1p": "layernorm", "low_precision_layernorm": "layernorm",
    "rmsnorm": "rmsnorm",
}  # fmt: skip


_SCRIPT = re.compile(r"performance/(?:\w+/)?pretrain_(\w+)\.py")
"""NeMo 2's scripts, which are called as their recipes are."""


def _recognises(file: SourceFile) -> bool:
    if file.is_command:
        text = file.command
        named = re.search(r"--model_recipe_name|\s-mr\s", text)
        return named is None and ("--compute_dtype" in text or _SCRIPT.search(text) is not None)
    return (
        file.kind == "yaml"
        and ("trainer" in file.keys or "training" in file.keys)
        and (
            file.at("model.micro_batch_size") is not None
            or file.at("training.model.micro_batch_size") is not None
        )
    )


def read_nemo(job: ImportJob) -> Imported:
    """The scenario of a NeMo run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="nemo", file=job.name, version=job.version or "1.x")
    if first.is_command:
        draft.version = job.version or "2"
        launch = launch_among(first, job.files, job.given, draft)
        if called := _SCRIPT.search(first.command):
            line = first.line_of(f"pretrain_{called[1]}.py")
            script = Setting(value=called[1], file=first.name, name=f"pretrain_{called[1]}.py", line=line)
            launch.options.setdefault("model_recipe_name", script)
        return read_recipe(launch, job, draft, preset="nemo-2025")
    given = Given(values={RENAMED.get(name, name): value for name, value in job.given.values.items()})
    top = "training" if first.at("training.model") is not None else ""
    whole = replace(first, document=resolved(first.at(top) if top else first.document, job.given.values))
    settings = Settings(found=_canonical(whole), given=given, draft=draft)
    _converted(settings)
    nodes, devices = (settings.found.pop(name, None) for name in ("trainer.num_nodes", "trainer.devices"))
    gpus = world_size(settings, nodes, devices)
    megatron = Megatron(version=(4, 9), shown=f"as in NeMo {draft.version}")
    put_model(settings)
    put_layout(settings, megatron, gpus)
    put_software(settings, megatron, {})
    _bucket(settings)
    put_machine(settings)
    settle(settings, "nemo", "megatron-lm")
    return draft.finished()


def _canonical(file: SourceFile) -> dict[str, Setting]:
    """The block ``model`` by Megatron's names, and of ``trainer`` what counts."""
    found = {}
    for name, one in file.settings("model").items():
        found[RENAMED.get(name, name)] = replace(one, name=f"model.{one.name}")
    for name in ("num_nodes", "devices", "accumulate_grad_batches", "precision"):
        value = file.at(f"trainer.{name}")
        if value is not None:
            found[f"trainer.{name}"] = Setting(
                value=value, file=file.name, name=f"trainer.{name}", line=file.lines.get(f"trainer.{name}", 0)
            )
    return found


def _converted(settings: Settings) -> None:
    """Settings whose values mean otherwise than Megatron's options do."""
    _converted_precision(settings)
    _converted_model(settings)
    _converted_kernels(settings)
    _converted_optimizer(settings)
    _refused(settings)


def _put(settings: Settings, name: str, value: object, like: str) -> None:
    """Set an option of Megatron's, from where the setting ``like`` stands."""
    source = settings.found.get(like) or Setting(value=value, file="NeMo's default", name=like)
    settings.found[name] = Setting(value=value, file=source.file, name=source.name, line=source.line)


def _converted_precision(settings: Settings) -> None:
    """``fp8`` switches; ``fp8_e4m3`` and ``fp8_hybrid`` say which format."""
    kind = settings.choice("trainer.precision", among=_PRECISIONS, default=None)
    if kind:
        _put(settings, kind, True, "trainer.precision")
    found = settings.found
    on = settings.flag("fp8")
    line = found.pop("fp8", None)
    for name in ("fp8_e4m3", "fp8_hybrid"):
        found.pop(name, None)
    if on and line is not None:
        found["fp8_format"] = replace(line, value="hybrid")


def _converted_model(settings: Settings) -> None:
    form = settings.choice("activation", among=_ACTIVATIONS, default=None)
    if form:
        _put(settings, form, True, "activation")
    norm = settings.choice("normalization", among=_NORMS, default="layernorm")
    _put(settings, "normalization", norm, "normalization")
    _put(settings, "disable_bias_linear", not settings.flag("bias", default=True), "bias")
    shared = "share_embeddings_and_output_weights"
    untied = not settings.flag(shared, default=True)
    _put(settings, "untie_embeddings_and_output_weights", untied, shared)
    if settings.has("num_query_groups"):
        _put(settings, "group_query_attention", True, "num_query_groups")
    if settings.text("position_embedding_type") is None:
        _put(settings, "position_embedding_type", "learned_absolute", "position_embedding_type")


def _converted_kernels(settings: Settings) -> None:
    engine = "transformer_engine" if settings.flag("transformer_engine") else "local"
    _put(settings, "transformer_impl", engine, "transformer_engine")
    for name in ("apply_rope_fusion", "gradient_accumulation_fusion"):
        _put(settings, name, settings.flag(name), name)
    fused = settings.flag("bias_activation_fusion", default=True)
    for name in ("bias_gelu_fusion", "bias_swiglu_fusion"):
        _put(settings, name, fused, "bias_activation_fusion")
    if not settings.flag("cpu_offloading"):
        settings.found.pop("cpu_offloading_num_layers", None)


def _converted_optimizer(settings: Settings) -> None:
    name = settings.text("optim.name", default="fused_adam") or ""
    sharded = name in ("distributed_fused_adam", "mcore_distributed_optim", "megatron_distributed_optim")
    _put(settings, "use_distributed_optimizer", sharded, "optim.name")
    overlapped = settings.flag("overlap_grad_reduce", default=name == "distributed_fused_adam")
    _put(settings, "overlap_grad_reduce", overlapped, "overlap_grad_reduce")
    gathered = settings.flag("overlap_param_gather") and sharded
    _put(settings, "overlap_param_gather", gathered, "overlap_param_gather")
    halved = settings.text("optim.grad_sync_dtype", default="fp32") in ("bf16", "bfloat16")
    _put(settings, "grad_reduce_in_bf16", halved, "optim.grad_sync_dtype")


def _refused(settings: Settings) -> None:
    if (settings.integer("trainer.accumulate_grad_batches", default=1) or 1) != 1:
        settings.refuse(
            "trainer.accumulate_grad_batches",
            "it has to be 1: microbatches come from model.global_batch_size",
        )
    if settings.flag("fsdp"):
        settings.refuse("fsdp", "FSDP of NeMo 1.x is not read; write parallelism.zero: 3 in a scenario")
    settings.refuse_if(
        "num_micro_batches_with_partial_activation_checkpoints",
        "recomputation in some microbatches alone is not modelled",
    )
    settings.refuse_if(
        "activations_checkpoint_layers_per_pipeline",
        "recomputation that changes over the stages is not modelled",
    )
    settings.refuse_if("fp32_residual_connection", "a residual stream in 32 bit is not modelled")


def _bucket(settings: Settings) -> None:
    """``bucket_cap_mb`` counts megabytes, of the gradients that are reduced."""
    size = settings.number("optim.bucket_cap_mb")
    if size:
        width = settings.draft.get("software.gradients.main_grad_bytes", 4)
        settings.put("software.gradients.bucket_elements", size * 2**20 / width, "optim.bucket_cap_mb")


IMPORTER = Importer(
    name="nemo",
    title="NeMo",
    source="NVIDIA/NeMo v1.23.0 conf/megatron_gpt_config.yaml; NVIDIA/NeMo-Framework-Launcher conf/training",
    recognises=_recognises,
    read=read_nemo,
    order=22,
)
