"""Sequences that are packs of documents: attention is within each, all else goes by tokens."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import BARE_HOST, WIDE, changed, every_op, lowered, scenario

from stepsim.kernels.kernel import BACKWARD_FLOPS
from stepsim.sim.lowering.sizes import layer_attention_flops
from stepsim.sim.program.program import Compute
from stepsim.sim.report.captions import batch
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.simulate import simulate

COMMON: dict[str, Any] = WIDE | {
    "software": {"preset": "megatron-core-2025", "host": BARE_HOST},
    "position": "rope",
    "biases": False,
    "seq_length": 4096,
}
"""Layers so wide that their kernels are waited for, not the host."""


@pytest.mark.parametrize(("recompute", "tp"), [("none", 1), ("selective", 1), ("full", 2)])
def test_a_pack_costs_what_its_documents_cost_as_sequences(recompute: str, tp: int) -> None:
    common = {**COMMON, "recompute": recompute, "tp": tp, "sequence_parallel": tp > 1}
    packed = simulate(scenario(**common, document_length=512))
    apart = simulate(scenario(**common | {"seq_length": 512, "micro_batch": 8}))
    assert packed.step_time_s == pytest.approx(apart.step_time_s, rel=1e-12)
    assert packed.model_flops == apart.model_flops
    assert packed.hardware_flops == apart.hardware_flops
    assert packed.peak_memory_bytes == apart.peak_memory_bytes


def test_model_flops_leave_out_what_documents_do_not_attend_to() -> None:
    whole = scenario(**COMMON)
    packed = changed(whole, training={"document_length": 512})
    model, tokens = whole.model, float(whole.training.tokens_per_step)
    saved = 3 * model.num_layers * layer_attention_flops(model, tokens, 4096 - 512)
    assert simulate(whole).model_flops - simulate(packed).model_flops == pytest.approx(saved)


def test_documents_that_fill_no_pack_evenly_are_no_whole_number() -> None:
    """Of 3,072 tokens in 4,096 are one and a third, and not one as long as the pack."""
    lengths = (512, 600, 1024, 3072, 4096)
    steps = [simulate(scenario(**COMMON, document_length=length)).step_time_s for length in lengths]
    assert steps == sorted(set(steps))
    assert simulate(scenario(**COMMON)).step_time_s == steps[-1]


@pytest.mark.parametrize("length", [600, 1800, 3072])
def test_the_time_of_attention_is_that_of_the_flops_that_are_counted(length: int) -> None:
    """Kernels take the FLOPs of documents, and of nothing else: so does MFU."""
    run = scenario(**COMMON, document_length=length)
    names = ("attention", "attention backward")
    held = [(op, times) for op, times in every_op(lowered(run).programs.classes[0]) if op.name in names]
    flops = sum(times * op.work.flops for op, times in held if isinstance(op.work, Compute))
    tokens = float(run.training.tokens_per_step)
    one = layer_attention_flops(run.model, tokens, length, causal=True)
    assert flops == pytest.approx(run.model.num_layers * one * (1 + BACKWARD_FLOPS), rel=1e-9)


def test_a_document_is_no_longer_than_its_pack() -> None:
    with pytest.raises(ScenarioError, match=r"8192.*4096"):
        scenario(**COMMON, document_length=8192)


@pytest.mark.parametrize(("length", "said"), [(512, " in documents of 512"), (4096, ""), (None, "")])
def test_what_a_step_is_called_says_its_documents(length: int | None, said: str) -> None:
    assert f"4,096 tokens{said}, bf16" in batch(scenario(**COMMON, document_length=length))
