"""Biases and clamps of experts that no GEMM's kernel applies: what torch's operations move, and where."""

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
from stepsim.sim.scenario.model.catalogue import get_model
from stepsim.sim.scenario.model.model import Model
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
    weighted = only(run, "expert biases by weight"), only(run, "expert biases by weight, backward")
    assert only(run, "expert biases") + weighted[0] == forward * ROWS * HIDDEN
    assert only(run, "expert biases backward") + weighted[1] == backward * ROWS * HIDDEN
    assert weighted[1] == 4 * weighted[0]  # two products, which read what one writes


def test_automodel_adds_the_first_bias_so_as_well() -> None:
    """Without probabilities: an addition and a join; a sum and a join."""
    run = run_of(expert_biases="apart")
    assert set(layer_bytes(run, "expert biases")) == {10 * ROWS * HIDDEN, 8 * ROWS * 2 * WIDTH}
    assert set(layer_bytes(run, "expert biases backward")) == {8 * ROWS * HIDDEN, 6 * ROWS * 2 * WIDTH}
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


def test_a_bias_of_experts_has_no_gradient_in_the_residual() -> None:
    tokens = 512 * HIDDEN * 2
    assert layer_bytes(run_of(), "bias gradient")[tokens] == LAYERS  # attention's alone
    assert layer_bytes(run_of(num_dense_layers=1), "bias gradient")[tokens] == LAYERS + 1


def test_a_clamped_gate_is_clamped_by_branch_and_joined() -> None:
    """Forward 2 + 2 and 4 passes over a branch. Backward a mask and a choice of 4 passes, three masks and a
    choice of 7, and 4 passes to join them: a mask is a byte, half a pass."""
    wide = ROWS * WIDTH * 2
    run = run_of(clamped_gate=True)
    assert only(run, "clamp gate") + only(run, "join clamped gate") == 8 * wide
    masks = only(run, "clamp gate masks") + only(run, "clamp gate mask of both")
    chosen = only(run, "clamp gate backward") + only(run, "join clamped gradients")
    assert masks + chosen == (4 + 7 + 4) * wide
    assert not layer_bytes(run_of(clamped_gate=True, clamps_gate_apart=False), "clamp gate")
    assert not layer_bytes(run_of(), "clamp gate")


def test_a_first_bias_that_is_added_apart_is_no_business_of_the_activation() -> None:
    """Unfused, an activation adds the bias of the GEMM before it, whose gradient is summed once."""
    apart, inside = (
        run_of(fused_activation=False, expert_biases=where) for where in ("apart", "in-products")
    )
    of_rows = ROWS * WIDTH * 2
    assert of_rows in layer_bytes(inside, "bias gradient")
    assert of_rows not in layer_bytes(apart, "bias gradient")


@pytest.mark.parametrize("apart", [False, True])
def test_what_products_clamp_is_not_kept_twice(apart: bool) -> None:
    """Kernels of GEMMs that apply the activation clamp its inputs, too."""
    fields = {"gpu": "GB300-NVL72", "gpus_per_node": 4, "precision": "mxfp8", "moe_dispatcher": "hybridep"}
    run = run_of(**fields, fused_grouped_mlp=True, clamped_gate=True, clamps_gate_apart=apart)
    plain = run_of(**fields, fused_grouped_mlp=True)
    assert not layer_bytes(run, "clamp gate")
    assert simulate(run).memory[0].terms == simulate(plain).memory[0].terms


def test_a_dense_layer_and_shared_experts_keep_what_they_clamp_as_well() -> None:
    def more(**fields: Any) -> float:
        clamped, plain = (simulate(run_of(clamped_gate=on, **fields)) for on in (True, False))
        return clamped.memory[0].terms["activations"] - plain.memory[0].terms["activations"]

    experts, dense, shared = 2 * ROWS * WIDTH * 2, 2 * 512 * 1024 * 2, 2 * 512 * 256 * 2
    assert more(num_dense_layers=1) == pytest.approx((LAYERS - 1) * experts + dense)
    assert more(shared_expert_ffn_hidden_size=256) == pytest.approx(LAYERS * (experts + shared))


def test_a_gate_that_is_not_there_is_not_clamped() -> None:
    model = get_model("gpt3-175b").model_dump()
    with pytest.raises(ValueError, match="clamped_gate"):
        Model(**model | {"clamped_gate": True})


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
