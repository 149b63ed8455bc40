"""A loss in chunks holds the logits of one, and a loss that nothing compiles those that torch makes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from small_scenarios import every_op, lowered, scenario
from validation_cases import case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.preset import software_document
from stepsim.calibration.cases.unstated import known_precision
from stepsim.sim.lowering.layers.loss import logits_bytes
from stepsim.sim.program.program import Compute
from stepsim.sim.scenario.machine import gpu_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

SOFTWARE = replace(build(case_document()).software, framework="torchtitan", year=2025, fused_kernels=False)
ALONE = {"dp": 1, "cp": 1, "tp": 8, "pp": 1, "precision": "bf16"}
"""Tensors of one replica in eight, of which nothing is sharded."""


def kernels(framework: str = "torchtitan", *, torch_compile: bool = False) -> dict[str, object]:
    software = replace(SOFTWARE, framework=framework, torch_compile=torch_compile)
    found: dict[str, object] = software_document(software)["kernels"]
    return found


@pytest.mark.parametrize("cross_entropy", ["eager", "fused", "vocab-parallel"])
@pytest.mark.parametrize("tp", [1, 2])
def test_logits_of_one_chunk_are_held_besides_what_was_cut(cross_entropy: str, tp: int) -> None:
    def held(chunks: int) -> tuple[float, float]:
        told = {"cross_entropy": cross_entropy, "loss_chunks": chunks}
        plan = lowered(scenario(tp=tp, software={"preset": "torchtitan-2025", "kernels": told})).plan
        cut = 2 * plan.local.tokens * plan.local.hidden * plan.local.element_bytes
        return logits_bytes(plan.local, plan.scenario.software), float(cut)

    whole, cut = held(1)
    assert held(8)[0] == pytest.approx(whole / 8 + cut)


@pytest.mark.parametrize("cross_entropy", ["fused", "eager", "vocab-parallel"])
@pytest.mark.parametrize("chunks", [2, 8, 512])
def test_a_loss_in_chunks_lowers_the_peak_and_its_step_is_longer(cross_entropy: str, chunks: int) -> None:
    """The same GEMMs and passes, in chunks that each read the head's matrix and add to its gradient."""
    run = scenario(vocab_size=32_768, seq_length=2048, software="torchtitan-2025", dp=2, zero=3)
    told = {"software.kernels.cross_entropy": cross_entropy}
    whole = simulate(run.with_(told))
    cut = simulate(run.with_(told | {"software.kernels.loss_chunks": chunks}))
    assert whole.memory[0].terms["logits"] > 0
    assert cut.memory[0].peak_bytes < whole.memory[0].peak_bytes
    added = 3 * (chunks - 1) * 2.0 * run.model.embedding_rows * run.model.hidden_size
    assert cut.step_time_s > whole.step_time_s + added / gpu_of(run.cluster).hbm_bytes_per_s


def test_a_backward_in_two_parts_has_the_chunks_of_one() -> None:
    """The head's gradients are put off chunk by chunk, where a schedule puts weights' gradients off."""
    run = scenario(vocab_size=32_768, software="torchtitan-2025", pp=2, microbatches=4, schedule="zb-h1")
    cut = run.with_({"software.kernels.loss_chunks": 8})
    joined = cut.with_({"schedule": "1f1b"})
    split, whole = head_seconds(cut), head_seconds(joined)
    assert split == pytest.approx(whole, rel=1e-9)
    assert split.keys() >= {"logits dgrad", "logits wgrad", "head gradient add"}


def head_seconds(run: Scenario) -> dict[str, float]:
    """Seconds of the head's kernels in a step of the last pipeline rank, by their names."""
    found: defaultdict[str, float] = defaultdict(float)
    for op, times in every_op(lowered(run).programs.classes[-1]):
        if isinstance(op.work, Compute) and op.name.startswith(("logits", "head gradient")):
            found[op.name] += times * op.work.seconds
    return dict(found)


def test_torchtitan_compiles_its_loss_with_the_model_only() -> None:
    assert kernels()["cross_entropy"] == "eager"
    assert kernels()["logits_fp32"] is True
    assert "cross_entropy" not in kernels(torch_compile=True)
    assert kernels("torchtitan (uncompiled loss)", torch_compile=True)["cross_entropy"] == "eager"
    assert kernels("torchtitan (fused loss)")["cross_entropy"] == "fused"
    assert kernels("torchtitan (fused loss)")["logits_fp32"] is False
    assert kernels("prime-rl (uncompiled loss, logits held)", torch_compile=True)["holds_logits"] is True
    copied = kernels("Halo (Transformers; liger loss, metrics of copied logits)")
    assert copied["metrics_copy_logits"] is True
    liger = kernels("Halo (Transformers; liger loss)")  # ForCausalLMLoss casts logits before it
    assert (liger["cross_entropy"], liger["logits_fp32"]) == ("fused", True)


def test_megatron_without_its_fused_loss_has_its_own() -> None:
    """tensor_parallel/cross_entropy.py works in place on one FP32 copy, torch's keeps three."""
    assert kernels("Megatron core (vocab-parallel loss)")["cross_entropy"] == "vocab-parallel"


def test_a_case_says_that_the_loss_is_in_chunks() -> None:
    assert kernels("torchtitan (FSDP2; loss in 8 chunks)")["loss_chunks"] == 8


def test_weights_of_16_bit_are_multiplied_in_16_bit_where_nothing_is_sharded() -> None:
    assert known_precision("torchtitan-2025", ALONE) == "fp32"
    assert known_precision("torchtitan-2025", ALONE, master_weights=False) == "bf16"
