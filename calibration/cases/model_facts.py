"""What the model of a case is known to have beside the shapes that the case states: its router, its windows.

A case gives shapes alone. Where those of a layer are a catalogue model's, the limits of that model's router,
the window that its layers see, its biases and its norms of queries and keys are the case's too: they belong
to the model, whatever framework trains it (Megatron-Bridge recipes/deepseek: moe_router_num_groups 8,
moe_router_group_topk 4; pretrain.py of gpt_oss_20b in MLPerf Training 6.0: window_size (127, 0),
window_attn_skip_freq 2, add_bias_linear). The number of layers and the vocabulary may differ: benchmarks cut
the one and pad the other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ...sim.scenario.model.catalogue import get_model, model_names

if TYPE_CHECKING:
    from ...sim.scenario.model.model import Model

LAYER = ("hidden_size", "num_attention_heads", "kv_channels", "ffn_hidden_size", "mlp", "attention")
EXPERTS = ("num_experts", "topk", "expert_ffn_hidden_size", "shared_expert_ffn_hidden_size")

Shape = tuple[Any, ...]


def known_facts(model: dict[str, Any]) -> dict[str, Any]:
    """``model`` of a scenario with the facts of the catalogue's model of that shape, if there is one."""
    moe = model.get("moe")
    if (facts := _facts().get(_shape(model, moe))) is None:
        return model
    router = {"moe": {**moe, **facts.get("moe", {})}} if moe else {}
    return model | facts | router


@cache
def _facts() -> dict[Shape, dict[str, Any]]:
    known = {}
    for name in model_names():
        model = get_model(name)
        if facts := _facts_of(model):
            known[_shape(model.model_dump(), model.moe.model_dump() if model.moe else None)] = facts
    return known


def _facts_of(model: Model) -> dict[str, Any]:
    """What a case has no field for, where ``model`` has it: of a dense one the norms of queries and keys
    alone, since a framework decides on the biases and windows of shapes that many models have."""
    facts: dict[str, Any] = {}
    if model.qk_norm:
        facts["qk_norm"] = True
    if model.moe is None:
        return facts
    if model.moe.node_limit:
        facts["moe"] = {"node_limit": model.moe.node_limit}
    if model.sliding_window:
        facts |= {"sliding_window": model.sliding_window, "full_attention_every": model.full_attention_every}
    facts |= {name: True for name in ("biases", "clamped_gate") if getattr(model, name)}
    return facts


def _shape(model: dict[str, Any], moe: dict[str, Any] | None) -> Shape:
    return (*(model[name] for name in LAYER), *(moe[name] if moe else 0 for name in EXPERTS))
