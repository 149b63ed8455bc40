"""What the model of a case is known to have beside the shapes that the case states: how it routes.

A case gives shapes alone. Where those of a layer are a catalogue model's, the limits of that model's router
are the case's too: they belong to the model, whatever framework trains it (Megatron-Bridge
recipes/deepseek: moe_router_num_groups 8, moe_router_group_topk 4). The number of layers and the vocabulary
may differ: benchmarks cut the one and pad the other.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ...sim.scenario.model.catalogue import get_model, model_names

LAYER = ("hidden_size", "num_attention_heads", "kv_channels", "ffn_hidden_size", "mlp", "attention")
EXPERTS = ("num_experts", "topk", "expert_ffn_hidden_size", "shared_expert_ffn_hidden_size")

Shape = tuple[Any, ...]


def known_facts(model: dict[str, Any]) -> dict[str, Any]:
    """``model`` of a scenario with the facts of the catalogue's model of that shape, if there is one."""
    moe = model.get("moe")
    if not moe or (limit := _node_limits().get(_shape(model, moe))) is None:
        return model
    return model | {"moe": {**moe, "node_limit": limit}}


@cache
def _node_limits() -> dict[Shape, int]:
    limits = {}
    for name in model_names():
        moe = get_model(name).moe
        if moe and moe.node_limit:
            limits[_shape(get_model(name).model_dump(), moe.model_dump())] = moe.node_limit
    return limits


def _shape(model: dict[str, Any], moe: dict[str, Any]) -> Shape:
    return (*(model[name] for name in LAYER), *(moe[name] for name in EXPERTS))
