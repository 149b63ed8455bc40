"""Biases and clamps of experts that no product's kernel applies: what torch's operations move, and where."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from small_experts import with_experts
from small_scenarios import lowered
from validation_cases import MOE, case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.recipes import recipe_fields
from stepsim.sim.program.program import Compute, RepeatedBlocks
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software import get_software
from stepsim.sim.simulate import simulate

LAYERS, ROWS, WIDTH, HIDDEN = 4, 512 * 2, 512, 256
"""A rank's rows are topk of its tokens; the width of an expert, and of the residual stream."""


def run_of(**fields: Any) -> Scenario:
    return with_experts(**{"biases": True, "microbatches": 1, "moe_dispatcher": "alltoall"} | fields)


def layer_bytes(run: Scenario, name: str) -> Counter[float]:
    """HBM bytes of ops of that name in a step, each with how often it runs."""
    found: Counter[float] = Counter()
    for op in lowered(run).programs.classes[0].ops:
        ops = (
            [one for block in op.work.row for one in block.ops]
            if isinstance(op.work, RepeatedBlocks)
            else [op]
        )
        found.update(one.work.bytes for one in ops if one.name == name and isinstance(one.work, Compute))
    return found


def only(run: Scenario, name: str) -> float:
    (size,) = layer_bytes(run, name)
    return size


@pytest.mark.parametrize(
    ("dispatcher", "forward", "backward"),
    [
        ("alltoall", 12, 16),  # 16 bits throughout
        ("deepep", 28, 40),  # a bias times an FP32 probability is FP32, and so is all up to the cast back
        ("hybridep", 28, 40),
    ],
)
def test_a_second_bias_is_weighted_added_and_joined_in_the_wider_type(
    dispatcher: str, forward: int, backward: int
) -> None:
    """Bytes of an element that pass HBM, counted in TEGroupedMLP._apply_bias and in what autograd runs."""
    run = run_of(moe_dispatcher=dispatcher)
    assert only(run, "expert biases") == forward * ROWS * HIDDEN
    assert only(run, "expert biases backward") == backward * ROWS * HIDDEN


def test_automodel_adds_the_first_bias_so_as_well() -> None:
    """Without probabilities: an addition and a join; a sum and a join."""
    run = run_of(expert_biases="apart")
    assert set(layer_bytes(run, "expert biases")) == {12 * ROWS * HIDDEN, 8 * ROWS * 2 * WIDTH}
    assert set(layer_bytes(run, "expert biases backward")) == {16 * ROWS * HIDDEN, 6 * ROWS * 2 * WIDTH}
    assert get_software("automodel-2025").kernels.expert_biases == "apart"


@pytest.mark.parametrize(
    "fields",
    [
        {"biases": False},
        {"expert_biases": "in-products"},
        {"gpu": "GB300-NVL72", "gpus_per_node": 4, "precision": "mxfp8", "fused_grouped_mlp": True},
    ],
)
def test_no_chain_where_there_is_no_bias_or_a_kernel_adds_it(fields: dict[str, Any]) -> None:
    interconnect = {"moe_dispatcher": "hybridep"} if "gpu" in fields else {}
    run = run_of(**fields | interconnect)
    assert not layer_bytes(run, "expert biases")
    assert not layer_bytes(run, "expert biases backward")


def test_the_residual_adds_a_bias_of_attention_but_none_of_experts() -> None:
    """Theirs are added before the combine; unfused, a bias is two passes more."""
    tokens = 512 * HIDDEN * 2
    assert set(layer_bytes(run_of(fused_residual=False), "bias, dropout, add")) == {3 * tokens, 5 * tokens}
    assert set(layer_bytes(run_of(fused_residual=False, biases=False), "bias, dropout, add")) == {3 * tokens}


def test_a_clamped_gate_is_clamped_by_branch_and_joined() -> None:
    """Forward 2 + 2 and 4 passes over a branch, backward 6 and 4."""
    wide = ROWS * WIDTH * 2
    run = run_of(clamped_gate=True)
    assert only(run, "clamp gate") == 8 * wide
    assert only(run, "clamp gate backward") == 10 * wide
    assert not layer_bytes(run_of(clamped_gate=True, clamps_gate_apart=False), "clamp gate")
    assert not layer_bytes(run_of(), "clamp gate")


def test_an_activation_that_is_run_again_is_clamped_again() -> None:
    """So that its clamped input need not be kept; else it is, beside what was clamped."""

    def kept(**fields: Any) -> float:
        return simulate(run_of(**fields)).memory[0].terms["activations"]

    again = {"recompute": {"kind": "modules", "modules": ["moe_act"]}}
    assert layer_bytes(run_of(clamped_gate=True), "clamp gate").total() == LAYERS
    assert layer_bytes(run_of(clamped_gate=True, **again), "clamp gate").total() == 2 * LAYERS
    assert kept(clamped_gate=True) - kept() == pytest.approx(LAYERS * 2 * ROWS * WIDTH * 2)
    assert kept(clamped_gate=True, **again) - kept(**again) < 2 * 2 * ROWS * WIDTH * 2


@pytest.mark.parametrize(
    ("gpu", "precision", "release", "expected"),
    [
        ("H100-SXM5-80GB", "bf16", "megatron-bridge-2026", ("alltoall", False, "streams")),
        ("GB300-NVL72", "bf16", "megatron-bridge-2026", ("alltoall", None, None)),
        ("GB200-NVL72", "bf16", "megatron-bridge-2026", (None, False, None)),
        ("GB200-NVL72", "bf16", "megatron-bridge-26.06", ("alltoall", False, "streams")),
        ("B300-SXM", "bf16", "megatron-bridge-26.06", (None, None, "streams")),
        ("B300-SXM", "mxfp8", "megatron-bridge-26.06", (None, None, None)),
    ],
)
def test_what_the_recipes_of_gpt_oss_say(
    gpu: str, precision: str, release: str, expected: tuple[str | None, bool | None, str | None]
) -> None:
    document = {"model.moe": MOE, "model.hidden_size": 2880, "hardware.gpu": gpu, "layout.tp": 1}
    fields = recipe_fields(release, build(case_document(document | {"layout.precision": precision})))
    named = ("moe_dispatcher", "cuda_graphs", "grouped_gemm")
    assert tuple(fields.get(name) for name in named) == expected
    assert (fields["fused_residual"], fields["fused_rope"]) == (False, False)
