"""Layers of Megatron core that one H200 ran (docs/kernels.md), beside what is told of the same ones.

Nothing is fitted on these figures but the share of instructions that is issued (kernels/memory_bound.py),
on one of them. The GPU was alone, so products are told at the clock of sweeps, and the measured ones hold
those of a head of 2,048 words, one in a hundred of a layer's. What issuing bounds is told at the clock read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_scenarios import WIDE, scenario

from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.schedules.orders.action import ActionKind
from stepsim.sim.lowering.lower import lower
from stepsim.sim.program.program import Compute
from stepsim.sim.simulate import build_cluster

H200 = "H200-SXM-141GB"
MEASURED: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent / "data" / "h200_megatron_layers.yaml").read_text()
)["layers"]
LLAMA3_8B = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "seq_length": 8192,
}
GROUPS = {
    "quantise": "quantise",
    "transpose quantised": "quantise",
    "activation backward": "activation_backward",
    "weights' gradient": "activation",
    "rope backward": "rope",
}
QWEN3_30B = {
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_query_groups": 4,
    "ffn_hidden_size": 768,
    "seq_length": 4096,
}
EXPERTS = {"num_experts": 128, "topk": 8, "expert_ffn_hidden_size": 768}


def told(
    precision: str, *, clock_mhz: float | None = None, experts: bool = False
) -> tuple[dict[str, float], Counter[str]]:
    """Microseconds and kernels by group of a layer of Llama 3 8B, or Qwen3 30B's ``experts``, both passes."""
    run = scenario(
        **WIDE | (QWEN3_30B if experts else LLAMA3_8B),
        gpu=H200,
        gpus_per_node=1,
        interconnect="nvlink-only",
        microbatches=1,
        recompute="none",
        precision=precision,
        software={"preset": "megatron-core-2025"},
    )
    if experts:
        run = run.with_({"model.head_dim": 128, "model.moe": EXPERTS})
    shipped = load_profile(H200)
    clock = clock_mhz * 1e6 / get_gpu(H200).boost_hz if clock_mhz else shipped.measured_clock_fraction
    alone = replace(shipped, clock_fraction=clock)
    plan = lower(run, build_cluster(run), profile=alone).plan
    microseconds: dict[str, float] = defaultdict(float)
    kernels: Counter[str] = Counter()
    for kind in (ActionKind.FORWARD, ActionKind.BACKWARD):
        for op in plan.blocks.layer_of(kind, plan.stages[0].runs[0]).ops:
            if isinstance(op.work, Compute):
                known = {"gemm": "products", "attention": "attention"}.get(op.work.kind)
                group = known or GROUPS.get(op.name, op.name)
                microseconds[group] += op.work.seconds * 1e6
                kernels[group] += 1
    return microseconds, kernels


@pytest.mark.parametrize(
    ("case", "precision", "group", "least", "most"),
    [
        ("8b_bf16", "bf16", "products", 1.00, 1.10),
        ("8b_bf16", "bf16", "attention", 0.92, 1.04),
        ("8b_delayed", "fp8", "products", 1.03, 1.14),
        ("8b_delayed", "fp8", "attention", 0.92, 1.04),
        ("8b_delayed", "fp8", "quantise", 0.92, 1.10),
    ],
)
def test_a_layer_takes_what_an_h200_took(
    case: str, precision: str, group: str, least: float, most: float
) -> None:
    ratio = told(precision)[0][group] / MEASURED[case]["us"][group]
    assert least < ratio < most


@pytest.mark.parametrize(
    ("case", "group", "least", "most"),
    [
        ("8b_bf16", "activation_backward", 0.97, 1.03),  # the share was taken from it
        ("8b_bf16", "rope", 0.93, 1.01),
        ("qwen30b_bf16", "activation_backward", 0.82, 1.0),
        ("qwen30b_bf16", "activation", 0.93, 1.03),
        ("qwen30b_bf16", "rope", 0.82, 1.0),
    ],
)
def test_what_issuing_bounds_takes_what_an_h200_took(
    case: str, group: str, least: float, most: float
) -> None:
    ran = MEASURED[case]
    microseconds, _ = told("bf16", clock_mhz=ran["clock_mhz"], experts=case.startswith("qwen"))
    assert least < microseconds[group] / ran["us"][group] < most


def test_as_many_products_and_norms_are_told_as_ran() -> None:
    """Beside a layer's ran three products of the head for four layers, and the model's last norm."""
    kernels, ran = told("bf16")[1], MEASURED["8b_bf16"]["launches"]
    assert kernels["products"] == pytest.approx(ran["products"] - 3 / 4, abs=0.1)
    assert kernels["norm"] == int(ran["norm"])
