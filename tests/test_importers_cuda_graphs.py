"""Scopes of Megatron core's CUDA graphs: which part of a layer each means, and which of them is refused."""

from __future__ import annotations

from typing import Any

import pytest
from importing import imported, refused
from megatron_scripts import MOE, args

from stepsim.sim.scenario.importers.export import export
from stepsim.sim.scenario.load import load_scenario

TE = " --cuda-graph-impl transformer_engine"
LOCAL = " --cuda-graph-impl local"
FLEX = MOE.replace("alltoall", "flex")
WHOLE, NO_EXPERTS = (True, None, None), (True, True, None)
ROUTER_ALONE = (True, True, True)


def host(more: str, *, version: str = "HEAD") -> tuple[Any, Any, Any]:
    found = imported(args(more), {"gpus": "64"}, version=version).document["software"]["host"]
    return (
        found.get("cuda_graphs"),
        found.get("graphs_leave_out_experts") or None,
        found.get("graphs_leave_out_attention"),
    )


@pytest.mark.parametrize(
    ("more", "held"),
    [
        (TE, WHOLE),
        (TE + " --cuda-graph-scope full", WHOLE),
        (TE + " --cuda-graph-scope attn mlp", WHOLE),
        (LOCAL + " --cuda-graph-scope full_iteration", WHOLE),
        (MOE + TE, WHOLE),
        (MOE + TE + " --cuda-graph-scope attn moe", WHOLE),
        (MOE + TE + " --cuda-graph-scope attn mlp moe", WHOLE),
        (MOE + TE + " --cuda-graph-scope attn moe_router moe_preprocess", NO_EXPERTS),
        (MOE + TE + " --cuda-graph-modules attn mamba moe_router moe_preprocess", NO_EXPERTS),
        (MOE + LOCAL + " --cuda-graph-modules attn moe_router moe_preprocess", NO_EXPERTS),
        (MOE + TE + " --cuda-graph-scope moe_router moe_preprocess", ROUTER_ALONE),
        # Without NCCL's exchange nothing is put into order before rows leave.
        (FLEX + TE + " --cuda-graph-scope attn moe_router", NO_EXPERTS),
        ("--cuda-graph-scope attn", (False, None, None)),
    ],
)
def test_a_scope_means_a_part_of_a_layer(more: str, held: tuple[Any, Any, Any]) -> None:
    assert host(more) == held


def test_graphs_of_megatron_core_held_whole_layers_until_lists_of_scopes() -> None:
    assert host(LOCAL + " --cuda-graph-scope attn", version="core_v0.15.0") == WHOLE
    assert refused(args(LOCAL + " --cuda-graph-scope attn"), {"gpus": "64"}) == {"--cuda-graph-scope"}


@pytest.mark.parametrize(
    "more",
    [
        TE + " --cuda-graph-scope attn",
        TE + " --cuda-graph-scope mlp",
        TE + " --cuda-graph-scope attn moe_router",
        TE + " --cuda-graph-scope everything",
        MOE + TE + " --cuda-graph-scope attn",
        MOE + TE + " --cuda-graph-scope attn mlp",
        MOE + TE + " --cuda-graph-scope moe",
        MOE + TE + " --cuda-graph-scope attn moe_preprocess",
        # NCCL's exchange counts rows and puts them into order before they leave: kernel by kernel here.
        MOE + TE + " --cuda-graph-scope attn moe_router",
    ],
)
def test_a_scope_that_the_simulator_cannot_tell_is_refused(more: str) -> None:
    assert refused(args(more), {"gpus": "64"}) == {"--cuda-graph-scope"}


@pytest.mark.parametrize(
    ("framework", "preset", "gap"),
    [("megatron-lm", "megatron-core-2025", " "), ("megatron-bridge", "megatron-bridge-2026", ",")],
)
@pytest.mark.parametrize("attention", [False, True])
def test_partial_graphs_are_written_as_they_are_read(
    framework: str, preset: str, gap: str, attention: bool
) -> None:
    changes = {
        "model": "qwen3-30b-a3b",
        "software": preset,
        "software.host.cuda_graphs": True,
        "software.host.graphs_leave_out_experts": True,
        "software.host.graphs_leave_out_attention": attention,
    }
    scenario = load_scenario("qwen3-30b-a3b-h100", changes)
    text = export(scenario, framework)  # read back and compared field by field
    told = [*([] if attention else ["attn"]), "moe_router", "moe_preprocess"]
    assert gap.join(told) in text
    assert "attn" not in text or not attention
