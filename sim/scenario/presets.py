"""Blocks that name a preset and change some of its fields: the model and the software.

Knows where presets come from: the catalogues, or a local Hugging Face config.json. Does not check
the fields; the types do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .model.catalogue import catalogue_fields, model_called
from .model.huggingface import config_fields
from .software.presets import get_software, software_names
from .tree import TreeNode, without_nulls

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from .software.software import Software


def model_fields(node: TreeNode) -> dict[str, Any]:
    """Fields of the block ``model``; what the preset leaves to defaults follows from the changed fields.

    Raises:
        ValueError: an unknown name, a config.json that cannot be read, or a label that is a preset's name.
    """
    changes: dict[str, Any] = node.plain()
    if "preset" not in changes:
        label = str(changes.get("name"))
        if not _SIZES & changes.keys() and model_called(label):
            raise ValueError(_A_LABEL.format(label=label))
        return changes
    preset = changes.pop("preset")
    fields = config_fields(_relative_to(node, preset)) if _is_path(preset) else catalogue_fields(str(preset))
    return {**fields, **{key: _changed(fields.get(key), change) for key, change in changes.items()}}


_SIZES = frozenset({"num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads"})
"""Who gives one of them describes a model of their own."""


_A_LABEL = "name is a label, from which nothing follows; write preset: {label} for what is known by that name"


def _changed(before: Any, change: Any) -> Any:
    """A field of a preset as changed: of a block (moe, mla) what it names; null takes one back."""
    if not isinstance(before, dict) or not isinstance(change, dict):
        return change
    return {key: value for key, value in {**before, **change}.items() if value is not None}


def software_fields(node: TreeNode) -> dict[str, Any]:
    """Fields of the block ``software``; of one without a preset most are defaults, which are the code of no
    trainer that anyone read, unless it says so.

    Raises:
        ValueError: an unknown preset, or a label that is a preset's name.
    """
    changes: dict[str, Any] = without_nulls(node).plain()
    if "preset" not in changes:
        label = str(changes.get("name"))
        if label in software_names() and "read" not in changes:  # which a block of all fields says
            raise ValueError(_A_LABEL.format(label=label))
        return {"read": False, **changes}
    preset = get_software(str(changes.pop("preset"))).model_dump()
    kernels = changes.get("kernels")
    if isinstance(kernels, dict) and "attention" in kernels:  # who names it knows it, unless told otherwise
        changes["kernels"] = {"attention_assumed": False, **kernels}
    return {**preset, **{key: _changed(preset.get(key), change) for key, change in changes.items()}}


WITHOUT_CUDNN = "fa2"
"""What a framework that asks for cuDNN runs elsewhere. On AMD it is Composable Kernel's, the default of
flash-attn on ROCm and of TransformerEngine's fused attention there (ROCm/flash-attention README;
ROCm/TransformerEngine README, NVTE_FUSED_ATTN_CK). Below compute capability 9.0 TransformerEngine prefers
FlashAttention to cuDNN (attention/dot_product_attention/utils.py, get_attention_backend)."""

FLASH_ATTENTION_FIRST = ("ampere", "ada", "blackwell-rtx")
"""Architectures of NVIDIA on which FlashAttention runs where cuDNN was asked for. Those below 9.0 by the rule
above; on RTX Blackwell cuDNN may run, but was not measured, and FlashAttention-2 stands for it."""

CUDNN_ON_BLACKWELL = ("torchtitan-2025",)
"""Presets whose attention of torch takes cuDNN's kernel first on compute capability 10.0 (pytorch/torchtitan
models/attention.py, ScaledDotProductAttention: CUDNN_ATTENTION before FLASH_ATTENTION)."""


def with_attention_of(gpu: Gpu, software: Software) -> Software:
    """A preset's attention as it is on ``gpu``: cuDNN and FlashAttention-3 are for some chips alone."""
    wanted = software.kernels.attention
    if gpu.vendor == "AMD" and wanted in ("cudnn", "fa3"):
        return software.with_fields(attention=WITHOUT_CUDNN)
    if gpu.architecture in FLASH_ATTENTION_FIRST and wanted == "cudnn":
        return software.with_fields(attention=WITHOUT_CUDNN)
    if gpu.architecture == "blackwell" and software.name in CUDNN_ON_BLACKWELL and wanted == "fa2":
        return software.with_fields(attention="cudnn")
    return software


def _is_path(preset: Any) -> bool:
    if not isinstance(preset, str) or preset.endswith(".json"):
        return isinstance(preset, str)
    # huggingface.co's names have one slash, too: meta-llama/Llama-3.1-8B.
    maker, slash, model = preset.partition("/")
    is_name = maker not in ("", ".", "..", "~") and "/" not in model and model_called(model) is not None
    return bool(slash) and not is_name


def _relative_to(node: TreeNode, preset: str) -> Path:
    """A path in a file is relative to the file; on a command line or in Python, to the current folder."""
    mark = node.entries["preset"].mark
    return Path(mark.file).parent / preset if mark.line else Path(preset)
