"""torchtune: its OmegaConf YAML, whose components name the model.

Source: meta-pytorch/torchtune recipes/full_finetune_distributed.py, recipes/configs (bd2a0fc7).
"""

from __future__ import annotations

from .cluster_facts import put_machine, world_size
from .draft import PACKED, UNPACKED, Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .model_facts import put_named_model
from .settings import Settings
from .sources import SourceFile

DEFAULT = "default of torchtune"

_OPTIMIZERS = {"torch.optim.adamw": "adamw", "torch.optim.adam": "adamw", "torch.optim.sgd": "sgd"}


def _recognises(file: SourceFile) -> bool:
    return file.kind == "yaml" and "torchtune" in str(file.at("model._component_") or "")


def read_torchtune(job: ImportJob) -> Imported:
    """The scenario of a torchtune run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="torchtune", file=job.name, version=job.version or "bd2a0fc7")
    settings = Settings(found=first.settings(), given=job.given, draft=draft)
    component = (settings.text("model._component_") or "").rpartition(".")[2]
    if component.startswith(("lora_", "qlora_", "dora_")):
        settings.refuse(
            "model._component_",
            "adapters (LoRA) change memory and work completely, which is not modelled; full training is",
        )
    else:
        put_named_model(settings, component, settings.origin("model._component_"), job.files)
    gpus = world_size(settings, None, None)
    draft.put("software.preset", "torchtitan-2024", "FSDP2 of plain torch")
    draft.put("software.name", "torchtune", "its layers are its own")
    _layout(settings, gpus)
    _training(settings)
    put_machine(settings)
    settle(settings, "torchtune")
    return draft.finished()


def _layout(settings: Settings, gpus: int | None) -> None:
    draft = settings.draft
    tp = max(1, settings.integer("tensor_parallel_dim", default=1) or 1)
    cp = max(1, settings.integer("context_parallel_dim", default=1) or 1)
    settings.put("parallelism.tp", tp, "tensor_parallel_dim", default=DEFAULT)
    settings.put("parallelism.cp", cp, "context_parallel_dim", default=DEFAULT)
    if tp > 1:
        draft.put("parallelism.sequence_parallel", True, "torch's tensor-parallel plan shards the sequence")
    copies = max(1, settings.integer("data_parallel_replicate_dim", default=1) or 1)
    shard = settings.integer("data_parallel_shard_dim", default=-1, least=-1) or -1
    micro = settings.integer("batch_size")
    steps = settings.integer("gradient_accumulation_steps", default=1) or 1
    if gpus is None:
        return
    rest = gpus // (tp * cp)
    shard = shard if shard > 0 else max(1, rest // copies)
    if gpus % (tp * cp) or copies * shard != rest:
        draft.refuse("data_parallel_shard_dim", f"{gpus} GPUs are not the product of the degrees")
        return
    again = settings.flag("fsdp_reshard_after_forward", default=True)
    settings.put(
        "parallelism.zero",
        (3 if again else 2) if shard * cp > 1 else 0,
        "fsdp_reshard_after_forward",
        "data_parallel_shard_dim",
        default=f"{DEFAULT}: FSDP over all GPUs",
    )
    if copies > 1 and shard > 1:
        settings.put(
            "parallelism.fsdp_shard_size",
            shard * cp,
            "data_parallel_shard_dim",
            default="the GPUs of a replica",
        )
    if micro is None:
        draft.ask("batch_size", "the file does not say it", "2")
        return
    settings.put("training.micro_batch", micro, "batch_size")
    draft.put(
        "training.global_batch",
        micro * steps * rest,
        f"{settings.origin('batch_size')} on each of {rest} ranks, times gradient_accumulation_steps",
    )


def _training(settings: Settings) -> None:
    draft = settings.draft
    length = settings.integer("tokenizer.max_seq_len")
    if settings.given.get("seq_length") is not None:
        length = settings.integer("seq_length")
    if length is None:
        draft.ask("seq_length", "tokenizer.max_seq_len is null: sequences are as long as the data's", "4096")
    settings.put("training.seq_length", length, "seq_length", "tokenizer.max_seq_len")
    # data/_collate.py, padded_collate_packed: masks of packs are of their samples
    draft.note(PACKED if settings.flag("dataset.packed") else UNPACKED)
    kind = settings.choice("dtype", among={"bf16": "bf16", "fp32": "fp32"}, default="bf16")
    settings.put("training.precision", kind, "dtype", default=DEFAULT)
    if kind == "bf16":  # the model is made in it (training.set_default_dtype), and torch.optim follows
        origin = settings.origin("dtype", default=DEFAULT)
        draft.put("software.gradients.master_weights", False, f"{origin}: torchtune has no FP32 weights")
    again = settings.flag("enable_activation_checkpointing")
    settings.put(
        "training.recompute",
        "full" if again else "none",
        "enable_activation_checkpointing",
        default=f"{DEFAULT}: off",
    )
    if settings.text("ac_mode") == "selective":
        settings.refuse("ac_mode", "selective recomputation of torchtune is not read")
    if settings.flag("enable_activation_offloading"):
        settings.put("training.activation_offload", True, "enable_activation_offloading")
    settings.refuse_if("optimizer_in_bwd", "updates inside the backward are not modelled")
    settings.refuse_if("fsdp_cpu_offload", "parameters and gradients on the host are not modelled")
    component = (settings.text("optimizer._component_") or "torch.optim.AdamW").lower()
    if component not in _OPTIMIZERS:
        settings.refuse(
            "optimizer._component_", "8-bit and paged optimizers are not modelled; torch.optim.AdamW is"
        )
    how = "fused" if settings.flag("optimizer.fused") else "foreach"  # torch's default
    origin = settings.origin("optimizer.fused", default=f"{DEFAULT}: off")
    draft.put("software.kernels.optimizer_implementation", how, origin)
    compiled = settings.flag("compile")
    settings.put("software.kernels.torch_compile", compiled, "compile", default=f"{DEFAULT}: off")
    settings.refuse_if("enable_fp8_training", "float8 of torchtune is not read")


IMPORTER = Importer(
    name="torchtune",
    title="torchtune",
    source="meta-pytorch/torchtune recipes/full_finetune_distributed.py (bd2a0fc7)",
    recognises=_recognises,
    read=read_torchtune,
    order=35,
)
