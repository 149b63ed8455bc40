"""nanotron: its YAML, and picotron's JSON. They state all sizes: dp, accumulation and microbatch.

Source: huggingface/nanotron src/nanotron/config/config.py, config/parallelism_config.py, parallel/context.py,
helpers.py at 2411b022; huggingface/picotron template/base_config.json.
"""

from __future__ import annotations

from math import prod

from .cluster_facts import put_machine
from .draft import PACKED, Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .model_facts import put_family
from .settings import Settings
from .sources import SourceFile

DEFAULT = "default of nanotron"


def _recognises(file: SourceFile) -> bool:
    return file.at("parallelism.pp_engine") is not None or (
        {"parallelism", "tokens"} <= file.keys or {"distributed", "training", "model"} <= file.keys
    )


def read_nanotron(job: ImportJob) -> Imported:
    """The scenario of a nanotron run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="nanotron", file=job.name, version=job.version or "2411b022")
    settings = Settings(found=first.settings(), given=job.given, draft=draft)
    if "distributed" in first.keys and "parallelism" not in first.keys:
        return _picotron(settings)
    draft.put("software.preset", "nanotron-2025" if job.version == "2025" else "nanotron-2024", "nanotron")
    _model(settings, first)
    _layout(settings)
    _training(settings)
    put_machine(settings)
    settle(settings, "nanotron")
    return draft.finished()


def _model(settings: Settings, file: SourceFile) -> None:
    config = file.at("model.model_config")
    if not isinstance(config, dict):
        settings.draft.ask("model_config", "the file has no model.model_config", "...")
        return
    origin = f"{file.name} model.model_config"
    kinds = [name for name in config if name.startswith("is_") and name.endswith("_config") and config[name]]
    if strange := [one for one in kinds if one not in ("is_llama_config", "is_qwen2_config")]:
        settings.integer("model.make_vocab_size_divisible_by")
        settings.draft.refuse(
            f"model.model_config.{strange[0]}",
            "this model is not modelled; llama and qwen2 configurations are",
        )
        return
    for name in ("moe_config", "no_rope_layer"):
        if config.get(name) and name == "moe_config":
            settings.draft.refuse("model.model_config.moe_config", "experts of nanotron are not read")
    if config.get("_use_doc_masking"):
        settings.draft.note(PACKED)
    if config.get("sliding_window_size"):
        settings.draft.refuse(
            "model.model_config.sliding_window_size", "windows of nanotron's models are not read"
        )
    if config.get("z_loss_enabled"):
        settings.draft.put("software.kernels.z_loss", "within", f"{origin}.z_loss_enabled")
    if config.get("_attn_implementation") == "llama3_ring_attention":
        settings.draft.put("software.exchange.cp_comm", "all_gather", f"{origin}._attn_implementation")
    plain = {
        key: value
        for key, value in config.items()
        if not key.startswith("_") and key not in ("moe_config", "sliding_window_size")
    }
    put_family(
        settings,
        "llama",
        {"tie_word_embeddings": False, **plain, "mlp_bias": config.get("attention_bias", False)},
        origin,
    )
    settings.put(
        "model.make_vocab_size_divisible_by",
        settings.integer("model.make_vocab_size_divisible_by", default=1),
        "model.make_vocab_size_divisible_by",
        default=DEFAULT,
    )


def _layout(settings: Settings) -> None:
    draft = settings.draft
    sizes = _sizes(settings)
    for axis in ("tp", "pp", "cp"):
        name = "context_parallel_size" if axis == "cp" else axis
        settings.put(f"parallelism.{axis}", sizes[axis], f"parallelism.{name}", default=DEFAULT)
    _tensor_parallelism(settings, sizes["tp"])
    engine = settings.choice(
        "parallelism.pp_engine", among={"1f1b": "1f1b", "afab": "gpipe", "onef1b": "1f1b"}, default="gpipe"
    )
    if sizes["pp"] > 1:
        settings.put(
            "schedule",
            engine,
            "parallelism.pp_engine",
            default=f"{DEFAULT}: all forwards before all backwards",
        )
        draft.put(
            "parallelism.stage_split", "flops_balanced", "nanotron fills stages by the cost of their blocks"
        )
    zero = settings.integer("optimizer.zero_stage", default=0)
    if zero not in (0, 1):
        settings.refuse("optimizer.zero_stage", "nanotron has stages 0 and 1")
    settings.put("parallelism.zero", zero, "optimizer.zero_stage", default=DEFAULT)
    _batches(settings, sizes["dp"])


def _sizes(settings: Settings) -> dict[str, int]:
    """Put the number of GPUs; the size of each axis, whose product it is."""
    draft = settings.draft
    sizes: dict[str, int] = {}
    for axis in ("dp", "tp", "pp"):
        value = settings.integer(f"parallelism.{axis}")
        if value is None and not settings.has(f"parallelism.{axis}"):
            draft.ask(f"parallelism.{axis}", "nanotron wants it in the file", "1")
        sizes[axis] = max(1, value or 1)
    sizes["cp"] = max(1, settings.integer("parallelism.context_parallel_size", default=1) or 1)
    if (settings.integer("parallelism.expert_parallel_size", default=1) or 1) > 1:
        settings.refuse(
            "parallelism.expert_parallel_size",
            "nanotron asserts that the world is tp cp pp dp, which leaves no room for it",
        )
    gpus = prod(sizes.values())
    given = settings.integer("gpus") if settings.given.get("gpus") is not None else None
    if given is not None and given != gpus:
        rest = gpus // sizes["dp"]
        if settings.given.get("dp") is None and given % rest == 0:
            sizes["dp"], gpus = given // rest, given
            draft.note(f"dp is {sizes['dp']}, for the {given} GPUs that are given")
        else:
            draft.refuse("gpus", f"dp tp pp cp = {gpus} is what nanotron asserts, and {given} GPUs are given")
    settings.put("cluster.gpus", gpus, "gpus", default="dp tp pp cp, as nanotron asserts")
    return sizes


def _tensor_parallelism(settings: Settings, tp: int) -> None:
    mode = settings.choice(
        "parallelism.tp_mode",
        among={"all_reduce": False, "reduce_scatter": True, "1": False, "2": True},
        default=False,
    )
    overlap = settings.flag("parallelism.tp_linear_async_communication")
    if tp == 1:
        return
    settings.put(
        "parallelism.sequence_parallel", mode, "parallelism.tp_mode", default=f"{DEFAULT}: ALL_REDUCE"
    )
    if not settings.flag("parallelism.tp_recompute_allgather", default=True):
        settings.put("software.exchange.sp_regathers_input", False, "parallelism.tp_recompute_allgather")
    settings.put(
        "software.exchange.tp_comm_overlap",
        overlap and mode,
        "parallelism.tp_linear_async_communication",
        default=f"{DEFAULT}: off",
    )


def _batches(settings: Settings, dp: int) -> None:
    draft = settings.draft
    names = {"micro_batch": "tokens.micro_batch_size", "seq_length": "tokens.sequence_length"}
    for field, name in names.items():
        value = settings.integer(name)
        if value is None and not settings.has(name):
            draft.ask(name, "nanotron wants it in the file", "1")
        settings.put(f"training.{field}", value, name)
    count = settings.integer("tokens.batch_accumulation_per_replica", default=1) or 1
    micro = draft.get("training.micro_batch")
    if micro:
        draft.put(
            "training.global_batch",
            micro * count * dp,
            f"{settings.origin('tokens.batch_accumulation_per_replica')}, times microbatch and dp",
        )
    stages = settings.setting("data_stages")
    if stages is not None and isinstance(stages.value, list) and len(stages.value) > 1:
        draft.note(
            f"the run has {len(stages.value)} data stages; a stage that changes the sequence length is "
            f"another scenario"
        )


def _training(settings: Settings) -> None:
    kind = settings.choice(
        "model.dtype",
        among={"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "double": None},
        default="bf16",
    )
    settings.put("training.precision", kind, "model.dtype", default=DEFAULT)
    again = settings.flag("parallelism.recompute_layer")
    settings.put(
        "training.recompute",
        "full" if again else "none",
        "parallelism.recompute_layer",
        default=f"{DEFAULT}: off",
    )
    wide = settings.flag("optimizer.accumulate_grad_in_fp32", default=True)
    if not wide and kind != "fp32":
        settings.put("software.gradients.main_grad_bytes", 2, "optimizer.accumulate_grad_in_fp32")
        settings.put("software.gradients.separate_grad_copy", False, "optimizer.accumulate_grad_in_fp32")
    told = ("optimizer.optimizer_factory.torch_adam_is_fused", "optimizer.torch_adam_is_fused")
    if settings.has(*told) and not settings.flag(*told):  # helpers.py: torch.optim.AdamW(fused=...)
        settings.put("software.kernels.optimizer_implementation", "foreach", *told)
    name = settings.choice("optimizer.optimizer_factory.name", among={"adamw": None, "sgd": "sgd"})
    settings.put("training.optimizer.name", name, "optimizer.optimizer_factory.name")
    size = settings.number("model.ddp_bucket_cap_mb", default=25.0)
    if size and size != 25.0:
        settings.put("software.gradients.bucket_elements", size * 2**20 / 2, "model.ddp_bucket_cap_mb")


def _picotron(settings: Settings) -> Imported:
    """picotron's JSON: ``distributed``, ``model``, ``training``."""
    draft = settings.draft
    draft.framework = "picotron"
    draft.refuse(
        "distributed",
        "picotron names its model on huggingface.co and has kernels of its own, which no software preset has",
    )
    settings.read.update(settings.found)
    return draft.finished()


IMPORTER = Importer(
    name="nanotron",
    title="nanotron",
    source="huggingface/nanotron src/nanotron/config (2411b022)",
    recognises=_recognises,
    read=read_nanotron,
    versioned=True,
    order=31,
)
