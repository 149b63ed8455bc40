"""Sequences that are packs of documents: attention is within each, all else goes by tokens."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import BARE_HOST, WIDE, changed, scenario

from stepsim.sim.lowering.sizes import layer_attention_flops
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


def test_documents_that_fill_no_pack_evenly_are_as_many_as_come_nearest() -> None:
    """600 tokens in 4,096: seven documents of 586, as of 585 and of 620."""
    lengths = (512, 600, 1024, 4096)

    def step_s(length: int) -> float:
        return simulate(scenario(**COMMON, document_length=length)).step_time_s

    steps = [step_s(length) for length in lengths]
    assert steps == sorted(set(steps))
    assert step_s(585) == steps[1] == step_s(620)
    assert simulate(scenario(**COMMON)).step_time_s == steps[-1]


def test_a_document_is_no_longer_than_its_pack() -> None:
    with pytest.raises(ScenarioError, match="packs no documents of 8192"):
        scenario(**COMMON, document_length=8192)
