"""DeepSpeed's JSON: batches, ZeRO, precision, offload, as fields of a scenario, by the defaults of its
versions.

Sources: deepspeedai/DeepSpeed deepspeed/runtime/config.py, runtime/zero/config.py (v0.9.5, v0.19.5),
zero/constants.py (v0.3.16), runtime/engine.py, runtime/bf16_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..model.catalogue import get_model, model_names
from .settings import Setting, Settings

DEFAULT = "default of DeepSpeed"

_REFUSED = {
    "zero_optimization.zero_quantized_weights": "gathers of quantised weights (ZeRO++) are not modelled",
    "zero_optimization.zero_quantized_gradients": "reductions of quantised gradients (ZeRO++) are not "
                                                  "modelled",
    "zero_optimization.zero_quantized_nontrainable_weights": "quantised weights (ZeRO++) are not modelled",
    "zero_optimization.offload_param.device": "parameters on the host are not modelled; optimizer state "
                                              "there is",
    "zero_optimization.zenflow": "ZenFlow's partial updates are not modelled",
    "zero_optimization.offload_optimizer.ratio": "a part of the optimizer's state on the host is not "
                                                 "modelled",
    "zero_optimization.super_offload": "SuperOffload is not modelled; ZeRO-Offload is",
    "zero_optimization.offload_optimizer.super_offload": "SuperOffload is not modelled; ZeRO-Offload is",
    "amp.enabled": "apex amp is not modelled; fp16 and bf16 are",
    "fp16.auto_cast": None,
    "compression_training": "compression is not modelled",
    "sparse_attention": "sparse attention is not modelled",
    "tensor_parallel.autotp_size": "AutoTP is not modelled",
    "moe.enabled": "experts of the JSON are not read",
    "activation_checkpointing.partition_activations": "activations that are partitioned over "
                                                      "tensor-parallel ranks are not modelled",
    "activation_checkpointing.cpu_checkpointing": "checkpoints on the host are not modelled",
    "hybrid_engine.enabled": "the hybrid engine (RLHF) is not modelled",
    "autotuning.enabled": "autotuning tries many runs; give the one that it finds",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The three numbers of DeepSpeed, each None where the file does not say it, or says auto."""

    whole: int | None
    micro: int | None
    accumulation: int | None


def is_auto(settings: Settings, name: str) -> bool:
    """Whether a setting is filled in at run time."""
    found = settings.setting(name)
    return found is not None and found.value == "auto"


def batches_of(settings: Settings) -> Batches:
    """The batch sizes that the JSON states."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    whole, micro, accumulation = (
        None if is_auto(settings, name) else settings.integer(name, least=1) for name in names
    )
    return Batches(whole=whole, micro=micro, accumulation=accumulation)


def batches_beside(settings: Settings, name: str) -> Batches:
    """The batch sizes of a trainer whose microbatch is called ``name``, with those of a JSON beside it, which
    must be the same or auto.

    Source: transformers integrations/deepspeed.py, HfTrainerDeepSpeedConfig.fill_match.
    """
    told, of_json = settings.integer(name, least=1), batches_of(settings)
    if told is not None and of_json.micro not in (None, told):
        settings.refuse(name, f"the DeepSpeed JSON says {of_json.micro}, the trainer's file {told}")
    return Batches(whole=of_json.whole, micro=told or of_json.micro, accumulation=of_json.accumulation)


def join_json(settings: Settings, config: Mapping[str, Setting]) -> None:
    """Put the settings of a JSON beside those of a trainer, whose own hold where the JSON says auto.

    Source: transformers integrations/deepspeed.py, HfTrainerDeepSpeedConfig.fill_match, which ends on sizes
    that are not the same.
    """
    for name, one in config.items():
        own = settings.found.get(name)
        if own is not None and one.value == "auto":
            continue
        settings.found[name] = one
        other = own is not None and str(own.value) not in (str(one.value), "auto")
        if own is not None and other and name == "gradient_accumulation_steps":
            settings.draft.refuse(name, f"the DeepSpeed JSON says {one.value}, the trainer {own.value}")


def put_batches(
    settings: Settings, batches: Batches, dp: int | None, name: str = "train_micro_batch_size_per_gpu"
) -> None:
    """Put microbatch and batch: two of three give the third; one gives accumulation 1.

    Source: runtime/config.py, _configure_train_batch_size.
    """
    draft = settings.draft
    whole, micro, steps = batches.whole, batches.micro, batches.accumulation
    if whole is None and micro is None:
        draft.ask(name, "the files say no batch size", "1")
        return
    if dp is None:
        return
    if micro is None and whole is not None:
        micro = whole // (dp * (steps or 1)) if whole % (dp * (steps or 1)) == 0 else 0
    if whole is None and micro is not None:
        whole = micro * (steps or 1) * dp
    if not micro or not whole or whole % (micro * dp) or (steps and whole != micro * steps * dp):
        draft.refuse(
            "train_batch_size",
            f"{whole} is not micro {micro} times accumulation {steps or 1} times {dp} ranks",
        )
        return
    names = (name, "train_micro_batch_size_per_gpu")
    settings.put("training.micro_batch", micro, *names, default="train_batch_size over the ranks")
    product = f"microbatch times accumulation times {dp} ranks"
    draft.put(
        "training.global_batch",
        whole,
        settings.origin("train_batch_size") if batches.whole else product,
    )


def put_zero(settings: Settings, *, pipeline: bool) -> int:
    """Put ``parallelism.zero`` and what belongs to it; the stage."""
    _refuse_blocks(settings)
    put_gradient_types(settings)
    _refuse_compilation(settings)
    stage = settings.integer("zero_optimization.stage", default=0) or 0
    if stage not in (0, 1, 2, 3):
        settings.refuse("zero_optimization.stage", "stages are 0 to 3")
    if pipeline and stage > 1:
        settings.refuse(
            "zero_optimization.stage",
            "DeepSpeed's pipeline asserts a stage below 2; --no-pipeline-parallel goes with 2 and 3",
        )
    settings.put("parallelism.zero", stage, "zero_optimization.stage", default=DEFAULT)
    overlap = stage == 3
    if not is_auto(settings, "zero_optimization.overlap_comm"):
        overlap = settings.flag("zero_optimization.overlap_comm", default=stage == 3)
    if stage:
        settings.put(
            "software.gradients.overlap_grad_reduce",
            overlap,
            "zero_optimization.overlap_comm",
            default=f"{DEFAULT}: on for stage 3 alone",
        )
    _put_buckets(settings, stage)
    _put_shards(settings)
    _put_offload(settings)
    return stage


def _refuse_blocks(settings: Settings) -> None:
    for name in ("zero_optimization.zenflow", "compression_training", "sparse_attention"):
        inside = [one for one in settings.found if one.startswith(f"{name}.")]
        if inside:
            settings.read.update(inside)
            settings.draft.refuse(name, str(_REFUSED[name]))
    for name, why in _REFUSED.items():
        if why and name.endswith("device"):
            settings.refuse_if(name, why, harmless=(None, "none", "", "auto"))
        elif why:
            settings.refuse_if(name, why, harmless=(None, False, "", "auto", {}, 1, 1.0))


_BUCKETS: tuple[tuple[str, str, float | None], ...] = (
    ("reduce_bucket_size", "bucket_elements", None),
    ("stage3_prefetch_bucket_size", "prefetch_elements", 5e7),
    ("stage3_max_live_parameters", "max_live_elements", 1e9),
    ("stage3_param_persistence_threshold", "persistent_elements", 1e5),
)
"""Sizes in elements, the fact of the software that each is, and DeepSpeed's default (zero/config.py)."""


def _put_buckets(settings: Settings, stage: int) -> None:
    draft = settings.draft
    for name, field, default in _BUCKETS:
        full = f"zero_optimization.{name}"
        if name.startswith("stage3") and stage != 3:
            settings.setting(full)
        elif not is_auto(settings, full):
            value = settings.number(full, default=default)
            draft.put_software(field, value, settings.origin(full, default=DEFAULT))
    if not is_auto(settings, "zero_optimization.allgather_bucket_size"):
        settings.number("zero_optimization.allgather_bucket_size")


_BY_WIDTH: Mapping[str, Callable[[int], int]] = {
    "reduce_bucket_size": lambda hidden: hidden * hidden,
    "stage3_prefetch_bucket_size": lambda hidden: int(0.9 * hidden * hidden),
    "stage3_param_persistence_threshold": lambda hidden: 10 * hidden,
}
"""What Hugging Face makes of sizes that are auto, by the hidden size.

Source: transformers integrations/deepspeed.py, trainer_config_finalize; accelerate accelerator.py,
_prepare_deepspeed.
"""


def fill_auto(settings: Settings) -> None:
    """Put the sizes of a Hugging Face run that are auto, once its model is put."""
    draft, model = settings.draft, settings.draft.get("model.preset")
    hidden = get_model(model).hidden_size if model in model_names() else draft.get("model.hidden_size")
    for name, field, _ in _BUCKETS:
        full = f"zero_optimization.{name}"
        third = name.startswith("stage3") and draft.get("parallelism.zero") != 3
        if hidden is None or name not in _BY_WIDTH or third or not is_auto(settings, full):
            continue
        origin = f"{settings.origin(full)}: by the hidden size {hidden}"
        draft.put_software(field, _BY_WIDTH[name](hidden), origin)


def _put_shards(settings: Settings) -> None:
    """Groups smaller than all ranks: MiCS shards in them, ZeRO++ keeps a second copy."""
    name = "zero_optimization.mics_shard_size"
    if (size := settings.integer(name)) is not None and size > 1:
        settings.put("parallelism.fsdp_shard_size", size, name)
    name = "zero_optimization.zero_hpz_partition_size"
    if (size := settings.integer(name)) is not None and size > 1:
        settings.refuse(name, "a second copy of the weights in each host (ZeRO++) is not modelled")


def _put_offload(settings: Settings) -> None:
    name = "zero_optimization.offload_optimizer.device"
    device = settings.text(name)
    if settings.flag("zero_optimization.cpu_offload") or device == "cpu":
        settings.put("training.cpu_offload", True, name, "zero_optimization.cpu_offload")
    elif device == "nvme":
        settings.put("training.cpu_offload", True, name)
        settings.put("training.nvme_offload", True, name)


_BYTES = {"fp32": 4, "float32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2}


def put_gradient_types(settings: Settings) -> None:
    """Put the bytes of accumulated gradients, and those of gradients on the wire, where the JSON says them.

    Source: runtime/config.py, get_data_types and get_communication_data_type.
    """
    for name, field in (
        ("data_types.grad_accum_dtype", "main_grad_bytes"),
        ("communication_data_type", "reduce_grad_bytes"),
    ):
        if is_auto(settings, name):
            continue
        width = settings.choice(name, among=_BYTES)
        if width is not None:
            settings.draft.put_software(field, width, settings.origin(name))


def _refuse_compilation(settings: Settings) -> None:
    """A section ``compile`` wraps the model into torch.compile unless it says disable."""
    inside = [name for name in settings.found if name.startswith("compile.")]
    off = settings.setting("compile.disable")
    settings.read.update(inside)
    if inside and (off is None or off.value is not True):
        settings.draft.refuse("compile", "compilation by DeepSpeed is not read", value=True)


def precision_of(settings: Settings) -> tuple[str, str] | None:
    """The precision of the JSON and its origin; None where it is auto."""
    for name, kind in (("bf16", "bf16"), ("bfloat16", "bf16"), ("fp16", "fp16")):
        full = f"{name}.enabled"
        if settings.has(full) and not is_auto(settings, full) and settings.flag(full):
            return kind, settings.origin(full)
    if any(is_auto(settings, f"{name}.enabled") for name in ("bf16", "fp16")):
        return None
    return "fp32", DEFAULT
