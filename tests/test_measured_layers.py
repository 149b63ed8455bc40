"""Layers of Megatron core that one H200 ran (docs/kernels.md), beside what is told of the same ones.

Nothing is fitted on these figures. The GPU was alone, so products are told at the clock of sweeps, and the
measured ones hold those of a head of 2,048 words, one in a hundred of a layer's.
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
GROUPS = {"quantise": "quantise", "transpose quantised": "quantise", "norm": "norm"}


def told(precision: str) -> tuple[dict[str, float], Counter[str]]:
    """Microseconds and kernels by group of a layer of Llama 3 8B, both passes."""
    run = scenario(
        **WIDE | LLAMA3_8B,
        gpu=H200,
        gpus_per_node=1,
        interconnect="nvlink-only",
        microbatches=1,
        recompute="none",
        precision=precision,
        software={"preset": "megatron-core-2025"},
    )
    shipped = load_profile(H200)
    alone = replace(shipped, clock_fraction=shipped.measured_clock_fraction)
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


def test_as_many_products_and_norms_are_told_as_ran() -> None:
    """Beside a layer's ran three products of the head for four layers, and the model's last norm."""
    kernels, ran = told("bf16")[1], MEASURED["8b_bf16"]["launches"]
    assert kernels["products"] == pytest.approx(ran["products"] - 3 / 4, abs=0.1)
    assert kernels["norm"] == int(ran["norm"])
