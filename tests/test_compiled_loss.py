"""Losses that torch.compile makes: Megatron core's, whose operators in place get buffers of their own, and
torch's, which over a split vocabulary scatters targets into zeros that have one."""

from __future__ import annotations

import pytest
from autocast_runs import COSTS
from small_scenarios import every_op, lowered, scenario

from stepsim.sim.lowering.layers.layer_builder import LayerBuilder
from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.loss import logits_bytes, loss_backward, loss_forward
from stepsim.sim.program.program import Collective, Compute
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.software.presets import get_software
from stepsim.sim.simulate import simulate


def run_of(cross_entropy: str, *, tp: int = 1) -> Scenario:
    software = {"preset": "megatron-core-2025", "kernels": {"cross_entropy": cross_entropy}}
    return scenario(vocab_size=32_768, tp=tp, software=software)


def loss_bytes(run: Scenario, direction: str) -> float:
    """Bytes that the loss reads and writes per logit of a rank, forward or backward."""
    names = {
        "forward": {
            "logits cast, maximum", "logits to FP32", "logits maximum", "exponentiate, sum",
            "subtract, gather target, exponentiate, sum", "normalise", "loss",
        },
        "backward": {"loss backward"},
    }[direction]  # fmt: skip
    step = lowered(run)
    logits = step.plan.local.tokens * step.plan.local.vocabulary
    microbatches = run.training.global_batch // (run.training.micro_batch * run.parallelism.dp)
    found = sum(
        times * op.work.bytes
        for op, times in every_op(step.programs.classes[-1])
        if isinstance(op.work, Compute) and op.name in names
    )
    return found / logits / microbatches


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(
    ("cross_entropy", "held"),
    [
        ("vocab-parallel", 4 + 2),  # probabilities, the 16-bit gradient
        ("fused", 4 + 2),
        ("compiled", 4 + 4 + 2),  # and those that targets are scattered into
    ],
)
def test_what_a_loss_holds_per_logit(cross_entropy: str, held: int, tp: int) -> None:
    plan = lowered(run_of(cross_entropy, tp=tp)).plan
    logits = plan.local.tokens * plan.local.vocabulary
    assert logits_bytes(plan.local, plan.scenario.software) == held * logits


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(
    ("cross_entropy", "forward", "backward"),
    [
        # cast r w, maximum r; subtracted r w, exponential r w, sum r; divided r w. Scaled r w, cast r w
        ("vocab-parallel", 2 + 4 + 4 + 5 * 4 + 2 * 4, 2 * 4 + 4 + 2),
        # cast and maximum r w; exponential r w, copied back r w; divided r w. Copied r w, scaled r w, cast w
        ("compiled", 2 + 4 + 4 * 4 + 2 * 4, 4 * 4 + 2),
        ("fused", 2 + 2 * 4, 4 + 2),
    ],
)
def test_what_a_loss_moves_per_logit(cross_entropy: str, forward: int, backward: int, tp: int) -> None:
    run = run_of(cross_entropy, tp=tp)
    assert loss_bytes(run, "forward") == pytest.approx(forward)
    assert loss_bytes(run, "backward") == pytest.approx(backward)


def test_a_compiled_loss_takes_the_memory_and_time_of_its_copies() -> None:
    fused, compiled = simulate(run_of("fused")), simulate(run_of("compiled"))
    assert compiled.memory[0].peak_bytes > fused.memory[0].peak_bytes
    assert compiled.step_time_s > fused.step_time_s


def test_megatron_core_does_not_fuse_its_loss_unless_told() -> None:
    assert get_software("megatron-core-2025").kernels.cross_entropy == "vocab-parallel"


def test_a_compiled_loss_reduces_targets_and_sums_together() -> None:
    step = lowered(run_of("compiled", tp=2))
    found = {
        op.name: op.work.transfer.bytes
        for op, _ in every_op(step.programs.classes[-1])
        if isinstance(op.work, Collective) and op.name.startswith("loss ")
    }
    each = step.plan.local.tokens * 4.0
    assert found == {"loss maximum all_reduce": each, "loss target and sum all_reduce": 2 * each}


def test_a_compiled_loss_of_16_bit_logits_casts_none() -> None:
    """The maximum alone is read: r; then as of FP32, in half of the bytes."""
    run = run_of("compiled").with_({"software.kernels.logits_fp32": False})
    assert loss_bytes(run, "forward") == pytest.approx(2 + 4 * 2 + 2 * 2)
    assert loss_bytes(run, "backward") == pytest.approx(4 * 2 + 2)
    plan = lowered(run).plan
    assert logits_bytes(plan.local, run.software) == 3 * 2 * plan.local.tokens * plan.local.vocabulary


@pytest.mark.parametrize(("direction", "launches"), [("forward", {1, 4}), ("backward", {3})])
def test_a_compiled_loss_launches_few_kernels(direction: str, launches: set[int]) -> None:
    run = run_of("compiled")
    builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=run.software)
    (loss_forward if direction == "forward" else loss_backward)(builder)
    found = [
        op.work.seconds for op in builder.ops if isinstance(op.work, Compute) and op.name != "small kernels"
    ]
    assert set(found) == launches
    assert sum(found) == (6 if direction == "forward" else 3)


def launches_of(run: Scenario) -> dict[str, float]:
    """Kernels of the loss by the names of its ops; those that only the host counts are left out."""
    builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=run.software)
    loss_forward(builder)
    loss_backward(builder)
    return {
        op.name: op.work.seconds
        for op in builder.ops
        if isinstance(op.work, Compute) and op.name != "small kernels"
    }


def test_a_fused_loss_is_three_kernels_forward_and_one_backward() -> None:
    """Maximum, exponentials with their sum, and the loss of each token; the gradient."""
    assert launches_of(run_of("fused")) == {"loss": 3, "loss backward": 1}
    assert launches_of(torch_run(1)) == {"loss": 3, "loss backward": 1}


def test_dtensors_loss_is_a_kernel_up_to_each_reduction_and_three_backward() -> None:
    """Backward zeros are filled, targets scattered into them, and the gradient written."""
    assert launches_of(torch_run(2)) == {
        "logits maximum": 1,
        "logits exponentiate, sum": 1,
        "targets gather": 1,
        "loss backward": 3,
    }


def torch_run(tp: int, cross_entropy: str = "compiled-torch") -> Scenario:
    run = scenario(vocab_size=32_768, tp=tp, software="torchtitan-2025")
    return run.with_({"software.kernels.cross_entropy": cross_entropy})


@pytest.mark.parametrize(("tp", "held"), [(1, 2 + 2), (2, 2 + 2 + 4), (4, 2 + 2 + 4)])
def test_dtensors_loss_holds_what_targets_are_scattered_into(tp: int, held: int) -> None:
    """16-bit logits and their gradient; zeros in FP32 besides, where the vocabulary is split."""
    plan = lowered(torch_run(tp)).plan
    logits = plan.local.tokens * plan.local.vocabulary
    assert logits_bytes(plan.local, plan.scenario.software) == held * logits


def test_dtensors_loss_moves_what_targets_are_scattered_into() -> None:
    """Two passes over the logits forward; backward zeros w, then logits and zeros r, gradient w."""
    run = torch_run(2)
    builder = LayerBuilder(costs=COSTS, local=local_shape_of(run), software=run.software)
    loss_forward(builder)
    loss_backward(builder)
    moved = {op.name: op.work.bytes for op in builder.ops if isinstance(op.work, Compute)}
    logits = builder.local.tokens * builder.local.vocabulary
    assert moved["logits maximum"] == moved["logits exponentiate, sum"] == 2 * logits
    assert moved["loss backward"] == (2 + 2 + 2 * 4) * logits
    reduced = [op.name for op in builder.ops if isinstance(op.work, Collective)]
    assert reduced == ["loss maximum all_reduce", "loss sum all_reduce", "loss target all_reduce"]


def test_torchs_compiled_loss_of_a_whole_vocabulary_is_one_kernel_each_way() -> None:
    assert simulate(torch_run(1)).step_time_s == simulate(torch_run(1, "fused")).step_time_s


def test_torchtitan_compiles_torchs_own_loss() -> None:
    assert get_software("torchtitan-2025").kernels.cross_entropy == "compiled-torch"
