"""axolotl: its YAML. Adapters are refused; full training by FSDP or DeepSpeed is read.

Source: axolotl-ai-cloud/axolotl src/axolotl/utils/schemas (067b021c).
"""

from __future__ import annotations

from pathlib import PurePosixPath

from .accelerate import put_fsdp
from .cluster_facts import put_machine, world_size
from .deepspeed_json import batches_beside, fill_auto, join_json, put_batches, put_zero
from .draft import PACKED, UNPACKED, Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .settings import Setting, Settings
from .sources import SourceFile
from .trainer import FUSED, REPLICAS, put_trainer, put_update


def _recognises(file: SourceFile) -> bool:
    return (
        file.kind == "yaml"
        and "base_model" in file.keys
        and bool(file.keys & {"micro_batch_size", "sequence_len", "datasets", "adapter"})
    )


def read_axolotl(job: ImportJob) -> Imported:
    """The scenario of an axolotl run.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="axolotl", file=job.name, version=job.version or "067b021c")
    settings = Settings(found=first.settings(), given=job.given, draft=draft)
    ranks = _sharding(settings, job, world_size(settings, None, None))
    _plugins(settings)
    put_batches(settings, batches_beside(settings, "micro_batch_size"), ranks, "micro_batch_size")
    _sixteen_bits(settings, first)
    put_trainer(settings, job.files, None)
    fill_auto(settings)
    if settings.flag("activation_offloading"):
        settings.put("training.activation_offload", True, "activation_offloading")
    _note_packs(settings)
    optimizer = settings.text("optimizer", default=FUSED)
    put_update(settings, optimizer, settings.origin("optimizer", default="default of axolotl"))
    if optimizer not in ("adamw_torch", FUSED, "adamw_hf"):
        settings.refuse(
            "optimizer",
            f"{optimizer}: adamw_torch and adamw_torch_fused are modelled; 8-bit and paged ones are not",
        )
    put_machine(settings)
    settle(settings, "axolotl", "trainer", "deepspeed-json")
    return draft.finished()


def _note_packs(settings: Settings) -> None:
    """What is taken of lengths, which stand in the data alone."""
    if not settings.flag("sample_packing"):
        settings.draft.note(UNPACKED)
    else:  # position_ids start anew with each sample (monkeypatch/utils.py, get_cu_seqlens_from_pos_ids)
        settings.draft.note(PACKED)


_AXES = {
    "dp_replicate_size": "dp_replicate",
    "tensor_parallel_size": "tp",
    "context_parallel_size": "cp",
    "sequence_parallel_degree": "cp",
}
"""Degrees besides FSDP's, as the axes of accelerate that axolotl makes of them.

Source: axolotl 0.19 utils/trainer.py, setup_parallelism_envs; utils/schemas/config.py, ring_attn_func.
"""


_SILENT_PLUGINS = {
    "CutCrossEntropyPlugin": "computes the loss without logits unless cut_cross_entropy is false",
    "SpectrumPlugin": "trains some of the layers alone",
}
"""Plugins that change the step with no setting of their own besides.

Source: axolotl src/axolotl/integrations: cut_cross_entropy/args.py (``cut_cross_entropy`` is true unless
said otherwise), spectrum/args.py (half of the layers are trained). Liger's and the teacher's act by their own
settings, which are refused.
"""


def _plugins(settings: Settings) -> None:
    """Refuse plugins that change the step by being there."""
    told = settings.setting("plugins")
    names = told.value if told is not None and isinstance(told.value, list) else [told and told.value]
    for name in names:
        plugin = str(name).rpartition(".")[2]
        off = plugin == "CutCrossEntropyPlugin" and not settings.flag("cut_cross_entropy", default=True)
        if plugin in _SILENT_PLUGINS and not off:
            settings.refuse("plugins", f"{plugin} {_SILENT_PLUGINS[plugin]}, which is not modelled")


def _sharding(settings: Settings, job: ImportJob, gpus: int | None) -> int | None:
    """Put who shards the states; the data-parallel ranks."""
    draft = settings.draft
    if stage := settings.text("deepspeed"):
        _refuse_axes(settings)
        _read_deepspeed(settings, job, stage)
        return gpus
    if settings.has("fsdp") or any(name.startswith("fsdp_config.") for name in settings.found):
        return _read_fsdp(settings, gpus)
    _refuse_axes(settings)
    draft.put("software.preset", "torchtitan-2024", "plain torch")
    draft.put("software.name", REPLICAS, "DistributedDataParallel of torch")
    draft.put("parallelism.zero", 0, "neither fsdp nor deepspeed")
    return gpus


def _refuse_axes(settings: Settings) -> None:
    for name in _AXES:
        settings.refuse_if(name, "of axolotl it is read beside FSDP alone", harmless=(None, 1, 0))


def _read_fsdp(settings: Settings, gpus: int | None) -> int | None:
    """``fsdp_config`` with the degrees beside it; the data-parallel ranks."""
    draft = settings.draft
    for name in list(settings.found):
        if name.startswith("fsdp_config.fsdp_"):
            settings.found[name.replace("fsdp_config.fsdp_", "fsdp_config.")] = settings.found[name]
    product = settings.integer("dp_shard_size", default=0) or 0
    for name, axis in _AXES.items():
        degree, told = settings.integer(name, default=1) or 1, settings.setting(name)
        product *= degree
        if degree > 1 and told is not None:
            settings.found[f"parallelism_config.parallelism_config_{axis}_size"] = told
    if product and gpus and product != gpus:
        settings.refuse("dp_shard_size", f"the degrees are {product} GPUs, and the job has {gpus}")
    ranks = put_fsdp(settings, gpus, "fsdp_config.")
    ring = "varlen_llama3" if settings.flag("sample_packing") else "batch_ring"
    ring = settings.text("ring_attn_func", default=ring) or ring
    if draft.get("parallelism.cp", 1) > 1:  # the first gathers keys and values, all others pass them on
        gathers = ring == "varlen_llama3"
        origin = settings.origin("ring_attn_func", default=f"default of axolotl: ring_attn_func {ring}")
        draft.put("software.exchange.cp_comm", "all_gather" if gathers else "p2p", origin)
    return ranks


def _read_deepspeed(settings: Settings, job: ImportJob, stage: str) -> None:
    """The JSON that ``deepspeed`` names, which has to be among the files."""
    draft = settings.draft
    config = next((one for one in job.files if one.kind == "json" and "zero_optimization" in one.keys), None)
    if config is None:
        draft.refuse(
            "deepspeed",
            f"{stage}: give this file, too (another FILE, or --with {PurePosixPath(stage).name})",
        )
    else:
        join_json(settings, config.settings())
    draft.put("software.preset", "deepspeed-zero3-2021", "DeepSpeed")
    draft.put("software.name", "huggingface-deepspeed", "its model is transformers', not Megatron's")
    put_zero(settings, pipeline=False)


def _sixteen_bits(settings: Settings, first: SourceFile) -> None:
    """``bf16: true`` trains in it and loads weights in it.

    Source: axolotl utils/config/__init__.py, normalize_config.
    """
    told = settings.setting("bf16")
    if told is not None and told.value in (True, "auto", "full"):
        line = first.lines.get("bf16", 0)
        settings.found["bf16"] = Setting(value=True, file=first.name, name="bf16", line=line)
        settings.found["torch_dtype"] = Setting(value="bfloat16", file=first.name, name="bf16", line=line)


IMPORTER = Importer(
    name="axolotl",
    title="axolotl",
    source="axolotl-ai-cloud/axolotl src/axolotl/utils/schemas (067b021c)",
    recognises=_recognises,
    read=read_axolotl,
    order=36,
)
