"""Slow GPUs against formulas that are derived here, with kernel seconds counted in the programs.

A rank's kernels take K seconds of a step in all. Where everybody waits for the slow rank with every kernel,
a factor f makes the step (f - 1) K longer; a slow stage of a pipeline makes it longer by less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slow_by_hand import LARGE, kernels_s, step_s, update_s
from small_scenarios import changed, lowered, scenario

from stepsim.sim.program.program import Exchange

WITHIN = 1e-3


@pytest.mark.parametrize("factor", [1.05, 1.3, 2.0])
def test_pure_data_parallelism_waits_for_the_slowest(factor: float) -> None:
    run = scenario(**LARGE, dp=8)
    expected = step_s(run) + (factor - 1) * kernels_s(run)
    assert step_s(run, f"gpu_throttle rank/3 slow_factor={factor}") == pytest.approx(expected, rel=WITHIN)


@pytest.mark.parametrize("factor", [1.05, 1.3, 2.0])
def test_a_tensor_parallel_group_goes_at_the_pace_of_its_slow_member(factor: float) -> None:
    run = scenario(**LARGE, tp=4, dp=1)
    expected = step_s(run) + (factor - 1) * kernels_s(run)
    assert step_s(run, f"gpu_throttle rank/2 slow_factor={factor}") == pytest.approx(expected, rel=WITHIN)


STAGES, MICROBATCHES = 4, 16
DEEP: dict[str, Any] = {
    **LARGE,
    "hidden_size": 16384,
    "ffn_hidden_size": 65536,
    "num_attention_heads": 128,
    "num_layers": 64,
    "pp": STAGES,
    "dp": 1,
    "schedule": "1f1b",
    "microbatches": MICROBATCHES,
}
"""A pipeline whose stages take far longer than their messages."""


@pytest.mark.parametrize("stage", range(STAGES))
def test_a_pipeline_goes_at_the_pace_of_its_slow_stage(stage: int) -> None:
    """1F1B: the slow stage s of p runs its first forward, waits until that microbatch is back, and works from
    then on without a pause. So all of its m forwards and backwards count but the p - 1 - s forwards that it
    runs while it waits; then its kernels behind the norm of all gradients count, and on
    the first stage, which is the last to come to it, those before.
    """
    run = scenario(**DEEP)
    forward_s = kernels_s(run, stage, "F") / MICROBATCHES
    slowed_s = kernels_s(run, stage, "F") + kernels_s(run, stage, "B") - (STAGES - 1 - stage) * forward_s
    slowed_s += update_s(run, stage, behind_norm=True)
    if stage == 0:
        slowed_s += update_s(run, stage, behind_norm=False)
    one, two = (step_s(run, f"gpu_throttle rank/{stage} slow_factor={factor}") for factor in (1.5, 2.0))
    assert two - one == pytest.approx(0.5 * slowed_s, rel=WITHIN)


@pytest.mark.parametrize("factor", [1.2, 1.5, 2.0])
def test_a_slow_last_stage_from_the_first_kernel_to_the_last(factor: float) -> None:
    """The last of p stages, slower than the others, waits for a forward of each of these, has its m forwards
    and backwards in a row, a message apart, and hands the last backward on to them. Norms meet behind
    the first stage's, and the slow stage is the last to have its update.
    """
    run, last = scenario(**DEEP), STAGES - 1
    first = lowered(run).programs.classes[0]
    (message,) = {
        part.transfer for op in first.ops if isinstance(op.work, Exchange) for part in op.work.parts
    }
    others_s = sum(kernels_s(run, r, "F") + kernels_s(run, r, "B") for r in range(last)) / MICROBATCHES
    slowed_s = kernels_s(run, last, "F") + kernels_s(run, last, "B") + update_s(run, last, behind_norm=True)
    expected = others_s + factor * slowed_s + update_s(run, 0, behind_norm=False)
    expected += (2 * last + MICROBATCHES - 1) * message.solo_s
    assert step_s(run, f"gpu_throttle rank/{last} slow_factor={factor}") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("fast", [1.0, 1.25])
def test_hosts_of_two_speeds_go_at_that_of_the_slower(fast: float, tmp_path: Path) -> None:
    measured = tmp_path / "speeds.txt"
    measured.write_text(f"{fast}\n0.8\n")
    run = scenario(**LARGE, dp=16)
    expected = step_s(run) + (1 / 0.8 - 1) * kernels_s(run)
    mixed = changed(run, cluster={"variation": {"gpu_speed": {"file": str(measured)}, "per": "host"}})
    assert step_s(mixed) == pytest.approx(expected, rel=WITHIN)
