"""A layout in a few words, as people write it. Knows names of fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SHORT = {
    "parallelism.sequence_parallel": "sp",
    "parallelism.stage_split": "split ",
    "training.micro_batch": "mbs",
    "training.recompute": "recompute ",
    "training.global_batch": "gbs",
    "training.seq_length": "seq",
    "cluster.gpus": "gpus",
    "schedule": "",
    "parallelism.fsdp_shard_size": "shards of ",
    "parallelism.order": "order ",
    "software.exchange.moe_a2a_overlap": "moe overlap",
}

AXES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "zero")
"""Fields whose value is written right behind them, as everybody does."""

OFF = {
    "software.gradients.overlap_grad_reduce": "no grad overlap",
    "software.gradients.overlap_param_gather": "no gather overlap",
    "software.exchange.tp_comm_overlap": "no tp overlap",
}
"""Switches that are usually on: in words where they are off."""

USUAL = ("none", "uniform", "tp-cp-ep-dp-pp")
"""Values that go without saying."""


def short(settings: Mapping[str, Any]) -> str:
    """``tp4 pp4 vpp6 mbs1``: axes of size one, what is off, and the data-parallel size are left out.

    >>> short({"parallelism.tp": 4, "parallelism.cp": 1, "training.recompute": "full", "parallelism.dp": 2})
    'tp4 recompute full'
    >>> short({"parallelism.tp": 4, "training.recompute": {"kind": "modules", "modules": ["layernorm"]}})
    'tp4 recompute layernorm'
    >>> short({"cluster.gpu": "H200-SXM-141GB", "training.tokens": 15e12, "parallelism.tp": 4})
    'gpu=H200-SXM-141GB tokens=1.5e+13 tp4'
    >>> short({"parallelism.tp": 4, **dict.fromkeys(OFF, True), "software.exchange.tp_comm_overlap": False})
    'tp4 no tp overlap'
    """
    words = []
    for field, value in settings.items():
        if field in OFF:
            words += [] if value else [OFF[field]]
            continue
        block, _, name = field.rpartition(".")
        of_one = value == (0 if name == "zero" else 1) and block == "parallelism" and value is not True
        off = value is None or value is False or (isinstance(value, str) and value in USUAL)
        if of_one or off or field == "parallelism.dp":
            continue
        words.append(_word(field, value))
    return " ".join(words)


def _word(field: str, value: Any) -> str:
    """The field and its value in one word."""
    name = field.rpartition(".")[2]
    if value is True:
        return SHORT.get(field, name).strip()
    start = SHORT.get(field, name if name in AXES else f"{name}=")
    return start + told(field, value)


def told(field: str, value: Any) -> str:
    """A value by itself; a split that is a rule by what of it counts, what is recomputed by its modules.

    >>> told("training.recompute", {"kind": "full", "layers": 2})
    'full layers 2'
    """
    if field == "parallelism.stage_split" and isinstance(value, str):
        return {"embedding_and_loss_as_layers": "with ends"}.get(value, value)
    if field == "training.recompute" and isinstance(value, Mapping):
        return _recomputed(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _recomputed(value: Mapping[str, Any]) -> str:
    """Modules by their names, else what is recomputed with how much of it."""
    if modules := value.get("modules"):
        return "+".join(modules)
    if value.get("method") == "block":
        return f"{value['layers']} of each stage"
    kind, *rest = value.items()
    return " ".join([str(kind[1]), *(f"{name} {one}" for name, one in rest)])
