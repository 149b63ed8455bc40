"""MaxText on GPUs: its YAML over base.yml, with the model by name or by its own file.

Source: AI-Hypercomputer/maxtext src/maxtext/configs/base.yml, configs/types.py
(calculate_global_batch_sizes), configs/models/*.yml (e591f30c).
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..model.catalogue import get_model, model_called, model_names
from .cluster_facts import put_machine, world_size
from .draft import PACKED, UNPACKED, Draft, Imported
from .importer import Importer, ImportJob
from .leftovers import settle
from .maxtext_model import DEFAULT, put_head_norms, put_model
from .settings import Settings
from .sources import SourceFile

_AXES = (
    "data",
    "fsdp",
    "fsdp_transpose",
    "sequence",
    "context",
    "context_autoregressive",
    "tensor",
    "tensor_transpose",
    "tensor_sequence",
    "pipeline",
    "expert",
    "autoregressive",
)
_REMAT: dict[str, Any] = {
    "full": "full", "none": "none",
    "minimal": {"kind": "operators", "keep": ["mm"]},
    "minimal_with_context": {"kind": "operators", "keep": ["mm", "attention"]},
    "minimal_flash": {"kind": "operators", "keep": ["mm", "attention"]},
    "save_dot_with_context_except_mlp": {"kind": "operators", "keep": ["qkv", "proj", "attention"]},
    "save_dot_except_mlp": {"kind": "operators", "keep": ["qkv", "proj"]},
    "save_qkv_proj": {"kind": "operators", "keep": ["qkv"]},
    "save_out_proj": {"kind": "operators", "keep": ["proj"]},
}  # fmt: skip
"""``remat_policy``: the names whose values are kept (layers/decoders.py, get_remat_policy). The others keep
one of an MLP's GEMMs, or send what they keep to the host, neither of which is modelled."""


def _recognises(file: SourceFile) -> bool:
    return file.kind == "yaml" and (
        "base_config" in file.keys
        or "base_emb_dim" in file.keys
        or {"ici_fsdp_parallelism", "per_device_batch_size"} <= file.keys
    )


def read_maxtext(job: ImportJob) -> Imported:
    """The scenario of a MaxText run on GPUs.

    Raises:
        ScenarioError: what is asked or refused.
    """
    first = job.first(_recognises)
    draft = Draft(framework="maxtext", file=job.name, version=job.version or "e591f30c")
    settings = Settings(found={}, given=job.given, draft=draft)
    for file in reversed(job.files):
        settings.found |= file.settings()
    if not settings.found:
        draft.refuse(first.name, "no setting of MaxText is in it: give the YAML that the script names")
        return draft.finished()
    told = settings.text("model_name")
    named = model_called(told) if told else None
    if settings.has("base_emb_dim"):
        named = None
    return maxtext_scenario(settings, named, settings.origin("model_name"), world_size(settings, None, None))


def maxtext_scenario(settings: Settings, model: str | None, origin: str, gpus: int | None) -> Imported:
    """The scenario of MaxText's settings; ``model`` is one of the catalogue, None: by its own sizes.

    Raises:
        ScenarioError: what is asked or refused.
    """
    draft = settings.draft
    draft.put("software.preset", "maxtext-2025", "MaxText")
    if settings.text("hardware", default="gpu") not in ("gpu", "gpu_multiprocess"):
        settings.refuse("hardware", "TPUs are not modelled; GPUs are (hardware: gpu)")
    put_model(settings, model, origin)
    layers = settings.integer("base_num_decoder_layers", "num_decoder_layers")
    if draft.get("model.preset") and layers:
        settings.put("model.num_layers", layers, "base_num_decoder_layers", "num_decoder_layers")
    put_head_norms(settings)
    _mesh(settings, gpus)
    _training(settings)
    _experts(settings)
    _attention(settings)
    put_machine(settings)
    settle(settings, "maxtext")
    return draft.finished()


def _attention(settings: Settings) -> None:
    kernel = settings.choice(
        "attention",
        among={
            "cudnn_flash_te": "cudnn",
            "cudnn_flash_jax": "cudnn",
            "autoselected": "cudnn",
            "dot_product": "unfused",
            "flash": None,
        },
        default="cudnn",
    )
    if kernel is None:
        settings.refuse("attention", "the TPU's flash attention is not modelled; cudnn_flash_te is")
    settings.put("software.kernels.attention", kernel, "attention", default=DEFAULT)
    if settings.number("z_loss_multiplier"):  # max_utils.py, cross_entropy_with_logits: no pass of its own
        settings.put("software.kernels.z_loss", "within", "z_loss_multiplier")
    _note_packs(settings)


def _note_packs(settings: Settings) -> None:
    """What is taken of lengths, which stand in the data alone: packs attend by segment, made-up data do not.

    Source: layers/attention_op.py, cudnn_flash_attention (019f0175); base.yml: packing is on, and data are
    real ones.
    """
    if settings.text("dataset_type", default="tfds") != "synthetic":
        settings.draft.note(PACKED if settings.flag("packing", default=True) else UNPACKED)


def _mesh(settings: Settings, gpus: int | None) -> None:
    """The degrees of the scenario, from the sizes of all axes."""
    draft = settings.draft
    sizes = _axes(settings, gpus)
    tp = sizes["tensor"] * sizes["tensor_transpose"] * sizes["tensor_sequence"]
    cp, ep = sizes["context"] * sizes["sequence"], sizes["expert"]
    _refuse_axes(draft, sizes)
    settings.put("parallelism.tp", tp, "ici_tensor_parallelism", "dcn_tensor_parallelism", default=DEFAULT)
    settings.put("parallelism.cp", cp, "ici_context_parallelism", "ici_sequence_parallelism", default=DEFAULT)
    if ep > 1:
        settings.put("parallelism.ep", ep, "ici_expert_parallelism", "dcn_expert_parallelism")
    if gpus is None:
        return
    product = sizes["data"] * sizes["fsdp"] * tp * sizes["pipeline"] * cp * ep
    if product != gpus:
        draft.refuse(
            "gpus",
            f"the mesh is {product} devices, and the job has {gpus}; give it, as in --given gpus={product}",
        )
        return
    _shards(settings, sizes, cp)
    _batches(settings, gpus, gpus // (tp * sizes["pipeline"] * cp))


def _axes(settings: Settings, gpus: int | None) -> dict[str, int]:
    """Devices along each axis, between hosts (dcn) and inside (ici); one of each may be -1, the rest."""
    per_host = (settings.integer("gpus_per_node") if settings.given.get("gpus_per_node") else 8) or 8
    sizes = dict.fromkeys(_AXES, 1)
    levels = (("dcn", "data", (gpus or 0) // per_host or 1), ("ici", "fsdp", min(gpus or 8, per_host)))
    for level, filling, whole in levels:
        found = {
            axis: settings.integer(
                f"{level}_{axis}_parallelism", default=-1 if axis == filling else 1, least=-1
            )
            or 1
            for axis in _AXES
        }
        rest = [axis for axis, value in found.items() if value == -1]
        if len(rest) > 1 and gpus:
            rest_text = ", ".join(f"{level}_{axis}_parallelism" for axis in rest)
            settings.draft.refuse(rest_text, "only one of them may be -1, the rest of the devices")
        known = prod(value for value in found.values() if value > 0)
        for axis in rest[:1]:
            found[axis] = max(1, whole // known)
        for axis, value in found.items():
            sizes[axis] *= max(1, value)
    return sizes


def _refuse_axes(draft: Draft, sizes: dict[str, int]) -> None:
    for name in ("autoregressive", "context_autoregressive", "fsdp_transpose"):
        if sizes[name] > 1:
            draft.refuse(f"ici_{name}_parallelism", "this axis is not modelled")
    if sizes["pipeline"] > 1:
        draft.refuse(
            "ici_pipeline_parallelism",
            "MaxText's pipeline, which repeats its stages in a loop over all devices, is not modelled",
        )


def _shards(settings: Settings, sizes: dict[str, int], cp: int) -> None:
    draft = settings.draft
    shard = sizes["fsdp"] * sizes["expert"]
    draft.put(
        "parallelism.zero",
        3 if shard > 1 else 0,
        _sharding_origin(settings) or f"{DEFAULT}: the devices of a host",
    )
    if shard > 1 and sizes["data"] > 1:
        draft.put(
            "parallelism.fsdp_shard_size",
            shard * cp,
            _sharding_origin(settings) or DEFAULT,
        )


def _sharding_origin(settings: Settings) -> str:
    """The settings that shard parameters: degrees of fsdp and of experts that are not 1."""
    names = [f"{place}_{axis}_parallelism" for axis in ("fsdp", "expert") for place in ("ici", "dcn")]
    found = [setting for name in names if (setting := settings.setting(name))]
    return " times ".join(one.origin for one in found if str(one.value) != "1")


def _batches(settings: Settings, gpus: int, ranks: int) -> None:
    """Sequences of a step; ``ranks`` are the data-parallel ones."""
    draft = settings.draft
    per = settings.number("per_device_batch_size", default=12.0) or 12.0
    steps = settings.integer("gradient_accumulation_steps", default=1) or 1
    sequences = per * gpus
    if sequences != int(sequences) or int(sequences) % ranks:
        settings.refuse(
            "per_device_batch_size",
            f"{per} on {gpus} devices are no whole sequences on each of {ranks} data-parallel ranks",
        )
        return
    draft.put(
        "training.micro_batch",
        int(sequences) // ranks,
        settings.origin("per_device_batch_size", default=DEFAULT) + ", counted over all devices",
    )
    settings.put(
        "training.global_batch",
        int(sequences) * steps,
        "per_device_batch_size",
        "gradient_accumulation_steps",
        default=DEFAULT,
    )


def _experts(settings: Settings) -> None:
    """Refuse experts that do not run as grouped, dropless GEMMs, which is MaxText's default.

    Source: layers/moe.py, RoutedMoE.dense_matmul. Without a capacity every expert runs on every token.
    With one, tokens are laid out by GEMMs with one-hot masks, "BSM,BSEC -> EBCM", and put back by another:
    each counts 2 S / (6 F) times the FLOPs of the experts, of sequences of S tokens and experts of width F.
    Both are 3.6 times the experts' FLOPs for Qwen3-30B-A3B at 4,096 tokens, and 19 % for Mixtral 8x7B.
    """
    draft = settings.draft
    name = draft.get("model.preset")
    if draft.get("model.moe") is None and not (name in model_names() and get_model(name).moe):
        return
    capacity = settings.number("capacity_factor", default=-1.0) or -1.0
    settings.flag("megablox", default=True)
    if settings.flag("sparse_matmul", default=True):
        return
    if capacity <= 0:
        settings.refuse("sparse_matmul", "experts that all run on all tokens are not modelled")
    else:
        settings.refuse(
            "sparse_matmul",
            f"false with capacity_factor {capacity:g}: tokens laid out by GEMMs with one-hot masks are "
            "not modelled; experts that run by groups (sparse_matmul: true) are",
        )


def _training(settings: Settings) -> None:
    settings.put(
        "training.seq_length",
        settings.integer("max_target_length", default=2048),
        "max_target_length",
        default=DEFAULT,
    )
    if not settings.flag("scan_layers", default=True):
        settings.put("software.sharding.unrolled", True, "scan_layers")
    policy = settings.text("remat_policy", default="full") or "full"
    if policy not in _REMAT:
        settings.refuse(
            "remat_policy",
            f"{policy}: what it keeps is not modelled; {', '.join(_REMAT)} are",
        )
    else:
        settings.put("training.recompute", _REMAT[policy], "remat_policy", default=f"{DEFAULT}: full")
    kind = settings.choice(
        "dtype", among={"bfloat16": "bf16", "float32": "fp32", "float16": "fp16"}, default="bf16"
    )
    told = settings.text("quantization", default="") or ""
    if told in ("fp8", "nanoo_fp8", "fp8_gpu", "fp8_nanoo", "fp8_full", "te_fp8_delayedscaling"):
        settings.put("training.precision", "fp8", "quantization")
    elif told == "te_fp8_currentscaling":
        settings.put("training.precision", "fp8", "quantization")
        settings.put("software.kernels.fp8_scaling", "current", "quantization")
    elif told == "te_mxfp8":
        settings.put("training.precision", "mxfp8", "quantization")
    elif told:
        settings.refuse("quantization", f"{told}: fp8 and te_mxfp8 are modelled")
    else:
        settings.put("training.precision", kind, "dtype", default=DEFAULT)
    if settings.text("weight_dtype", default="float32") != "float32":
        settings.refuse("weight_dtype", "master weights in fewer than 32 bits are not modelled")
    settings.refuse_if("optimizer_memory_host_offload", "optimizer state on the host is not read for MaxText")
    settings.refuse_if("parameter_memory_host_offload", "parameters on the host are not modelled")
    name = settings.choice("opt_type", among={"adamw": None, "adam_pax": None, "sgd": "sgd", "muon": "muon"})
    settings.put("training.optimizer.name", name, "opt_type")


IMPORTER = Importer(
    name="maxtext",
    title="MaxText (GPU)",
    source="AI-Hypercomputer/maxtext src/maxtext/configs/base.yml, configs/types.py (e591f30c)",
    recognises=_recognises,
    read=read_maxtext,
    order=33,
)
