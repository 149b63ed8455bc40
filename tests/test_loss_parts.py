"""A loss in parts: head and loss take one part of the tokens after another, and hold logits of one."""

from __future__ import annotations

import pytest
from small_scenarios import scenario

from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate


def job(parts: int, cross_entropy: str = "fused") -> Scenario:
    run = scenario(vocab_size=32_768, seq_length=2048, software="torchtitan-2025", dp=2, zero=3)
    return run.with_({"software.kernels.loss_parts": parts, "software.kernels.cross_entropy": cross_entropy})


@pytest.mark.parametrize("cross_entropy", ["fused", "eager", "vocab-parallel"])
@pytest.mark.parametrize("parts", [2, 8, 512])
def test_logits_of_one_part_are_there_and_no_step_is_longer(parts: int, cross_entropy: str) -> None:
    """The same products and passes, in parts; the peak may then lie elsewhere, with no logits at all."""
    whole, cut = (simulate(job(count, cross_entropy)) for count in (1, parts))
    before, after = (one.memory[0].terms["logits"] for one in (whole, cut))
    assert before > 0
    assert after in (0.0, pytest.approx(before / parts))
    assert cut.memory[0].peak_bytes < whole.memory[0].peak_bytes
    assert cut.step_time_s == whole.step_time_s
