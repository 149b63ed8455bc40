"""Other names of the same fields, and short forms of whole blocks.

Knows Megatron-LM's names, common abbreviations and where a name that stands in the wrong block
belongs. Does not know what the fields mean.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

from ...hardware.explain import dotted
from .errors import Problem
from .software.software import GROUP_OF, REPLACED
from .tree import TreeNode

# block -> other name -> path inside the block. Long names: Megatron-LM's dataclasses.
ALIASES: dict[str, dict[str, tuple[str, ...]]] = {
    "model": {
        "head_dim": ("kv_channels",),
        "num_moe_experts": ("moe", "num_experts"),
        "moe_router_topk": ("moe", "topk"),
        "moe_ffn_hidden_size": ("moe", "expert_ffn_hidden_size"),
        "moe_shared_expert_intermediate_size": ("moe", "shared_expert_ffn_hidden_size"),
        "moe_expert_capacity_factor": ("moe", "capacity_factor"),
        "moe_layer_freq": ("moe", "layer_freq"),
        "first_k_dense_replace": ("moe", "num_dense_layers"),
        "moe_router_group_topk": ("moe", "node_limit"),
        "mtp_num_layers": ("mtp_layers",),
        "q_lora_rank": ("mla", "q_lora_rank"),
        "kv_lora_rank": ("mla", "kv_lora_rank"),
        "qk_head_dim": ("mla", "qk_nope_head_dim"),
        "qk_pos_emb_head_dim": ("mla", "qk_rope_head_dim"),
        "v_head_dim": ("mla", "v_head_dim"),
        "pad_vocab_size_to": ("padded_vocab_size",),
    },
    "parallelism": {
        "tensor_model_parallel_size": ("tp",),
        "pipeline_model_parallel_size": ("pp",),
        "virtual_pipeline_model_parallel_size": ("vpp",),
        "context_parallel_size": ("cp",),
        "expert_model_parallel_size": ("ep",),
        "expert_tensor_parallel_size": ("etp",),
        "data_parallel_size": ("dp",),
        "sharding": ("zero",),
    },
    "training": {
        "micro_batch_size": ("micro_batch",),
        "mbs": ("micro_batch",),
        "global_batch_size": ("global_batch",),
        "gbs": ("global_batch",),
        "seq": ("seq_length",),
        "recompute_granularity": ("recompute",),
        "muon_num_ns_steps": ("optimizer", "ns_steps"),
        "muon_tp_mode": ("optimizer", "tp_mode"),
    },
    "published": {"step_time": ("step_time_s",)},
    "software": {field: (group, field) for field, group in GROUP_OF.items()},  # as before there were groups
    "cluster.measured_network": {
        name: (f"{name}_bytes_per_s",)
        for kind in ("all_reduce", "all_gather", "reduce_scatter")
        for name in (kind, f"{kind}_intra")
    },
}

SHORT_FORMS: dict[str, str] = {
    "model": "preset",
    "software": "preset",
    "software.sharding": "implementation",
    "cluster.fabric": "kind",
    "cluster.placement": "kind",
    "training.loss_scale": "kind",
    "training.optimizer": "name",
    "detection": "fixed",
    "recovery": "policy",
    "recovery.restart_cost": "fixed",
}
"""A block that is text stands for a block with this one key."""

SHORT_LISTS: dict[str, str] = {"faults": "events"}
"""A block that is a list stands for a block with this one key."""

HINTS = {
    "<<": "YAML 1.2 has no merge keys; write the fields here, or name the file to change under extends",
    "num_microbatches": "it follows from global_batch / (micro_batch × dp); set those",
    "gradient_accumulation_steps": "it follows from global_batch / (micro_batch × dp); set those",
    "untie_embeddings_and_output_weights": "use tied_embeddings, which says the opposite",
    "layout": "its fields belong in parallelism, training and schedule",
    "hardware": "its fields belong in cluster",
    **dict.fromkeys(
        ("fused_optimizer", "update_copy"),
        "write software.kernels.optimizer_implementation: fused, foreach (torch's default) or for-loop",
    ),
    **{field: f"it is part of software.{behaviour}" for field, behaviour in REPLACED.items()},
}
"""What to do instead, for keys that have no field."""


_RENAMED: dict[tuple[str, str], tuple[str, dict[object, str]]] = {
    (block, "fused_optimizer"): ("optimizer_implementation", {True: "fused", False: "for-loop"})
    for block in ("software", "software.kernels")
}
"""Fields of earlier versions that are understood and warned of (docs/stability.md): block and name, the field
that took their place, and its value for each of theirs. Any other value is refused by HINTS."""


def _renamed(block: str, key: str, node: TreeNode) -> tuple[str, TreeNode]:
    """A field under its name of today, with a warning where it stands under one of an earlier version."""
    field, values = _RENAMED.get((block, key), ("", {}))
    if not isinstance(node.value, bool) or node.value not in values:
        return key, node
    value = values[node.value]
    warnings.warn(
        f"stepsim: {block}.{key} is deprecated; write software.{GROUP_OF[field]}.{field}: {value}. A later"
        " version will refuse the old name",
        DeprecationWarning,
        stacklevel=2,
    )
    return field, replace(node, value=value)


RECOMPUTE = {
    "recompute_method": "method",
    "recompute_num_layers": "layers",
    "recompute_modules": "modules",
}
"""Megatron-LM's names beside recompute_granularity, as fields of training.recompute."""


def canonical(node: TreeNode, block: str = "") -> tuple[TreeNode, list[Problem]]:
    """The tree with canonical names and without short forms; a field given under two names is a problem."""
    if isinstance(node.value, str) and block in SHORT_FORMS:
        return node.with_entries({SHORT_FORMS[block]: node}), []
    if isinstance(node.value, list) and block in SHORT_LISTS:
        return node.with_entries({SHORT_LISTS[block]: node}), []
    entries: dict[str, TreeNode] = {}
    problems: list[Problem] = []
    for key, entry in node.entries.items():
        inner, found = canonical(entry, f"{block}.{key}" if block else key)
        problems += found
        key, inner = _renamed(block, key, inner)
        path = ALIASES.get(block, {}).get(key, (key,))
        problems += _insert(entries, path, inner, f"{block}.{key}")
    if block == "training":
        entries, found = _recompute(entries)
        problems += found
    return (node.with_entries(entries) if isinstance(node.value, dict) else node), problems


def _recompute(entries: dict[str, TreeNode]) -> tuple[dict[str, TreeNode], list[Problem]]:
    """Recomputation in Megatron's several fields, as the one field that it is here.

    Where a document has no ``recompute`` they stay as they are: another one may have it (``with_recompute``).
    """
    said = {field: entries[name] for name, field in RECOMPUTE.items() if name in entries}
    kind = entries.get("recompute")
    if kind is None or not said:
        return entries, []
    left = {name: entry for name, entry in entries.items() if name not in RECOMPUTE}
    if isinstance(kind.value, dict):
        return left | {"recompute": kind.with_entries({**kind.entries, **said})}, []
    if kind.value not in ("full", "selective"):
        return left, [_nothing_recomputed(said)]
    if kind.value == "full" and "method" not in said:
        message = "recompute_granularity full takes recompute_method, uniform or block, beside it"
        return left, [Problem(mark=kind.mark, path="training.recompute_method", message=message)]
    value = "modules" if kind.value == "selective" else "full"
    named = TreeNode(value=value, mark=kind.mark, key_mark=kind.key_mark)
    return left | {"recompute": kind.with_entries({"kind": named, **said})}, []


def _nothing_recomputed(said: dict[str, TreeNode]) -> Problem:
    """Megatron's names say more about a recompute_granularity that is not there."""
    field, node = next(iter(said.items()))
    name = next(name for name, known in RECOMPUTE.items() if known == field)
    message = "nothing is recomputed; give recompute_granularity, full or selective, beside it"
    return Problem(mark=node.key_mark or node.mark, path=f"training.{name}", message=message)


def with_recompute(tree: TreeNode) -> tuple[TreeNode, list[Problem]]:
    """A merged document, where one part may say ``recompute`` and another Megatron's names beside it."""
    training = tree.entries.get("training")
    if training is None or not any(name in training.entries for name in RECOMPUTE):
        return tree, []
    none = TreeNode(value="none", mark=training.mark)
    entries, problems = _recompute({"recompute": none, **training.entries})
    return tree.with_entries({**tree.entries, "training": training.with_entries(entries)}), problems


def _insert(
    entries: dict[str, TreeNode], path: tuple[str, ...], node: TreeNode, given_as: str
) -> list[Problem]:
    key, *rest = path
    if rest:
        holder = entries.get(key) or TreeNode(value={}, mark=node.mark, key_mark=node.key_mark)
        inner = dict(holder.entries)
        problems = _insert(inner, tuple(rest), node, given_as)
        entries[key] = holder.with_entries(inner)
        return problems
    if key in entries and entries[key].entries and node.entries:
        inner, problems = dict(entries[key].entries), []
        for name, entry in node.entries.items():
            problems += _insert(inner, (name,), entry, f"{given_as}.{name}")
        entries[key] = entries[key].with_entries(inner)
        return problems
    if key in entries:
        other = entries[key].key_mark
        where = f" (line {other.line})" if other and other.line else ""
        message = f"{key} is given twice, once under another name{where}; keep one of them"
        return [Problem(mark=node.key_mark or node.mark, path=given_as, message=message)]
    entries[key] = node
    return []


def home_of(key: str, blocks: dict[str, set[str]]) -> str | None:
    """The dotted field that ``key`` names in another block, if there is exactly one.

    ``blocks`` holds the fields of every block.
    """
    homes = [dotted((block, key)) for block, fields in blocks.items() if key in fields]
    homes += [
        dotted((block, *path))
        for block, names in ALIASES.items()
        for name, path in names.items()
        if name == key
    ]
    return homes[0] if len(homes) == 1 else None
