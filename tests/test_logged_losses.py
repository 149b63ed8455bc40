"""Losses for metrics at the end of a step: what their gathering takes, by the ranks and by the losses."""

from __future__ import annotations

import pytest
from small_scenarios import scenario

import stepsim
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.sim.lowering.updates.gradients import COPY_HOST_S
from stepsim.sim.scenario.models import Scenario


def foundry(losses: int, gpus: int = 16) -> Scenario:
    """A small job of LLM Foundry's, each rank with one sequence."""
    zero = 3 if gpus > 1 else 0
    job = scenario(software="llm-foundry-2023", dp=gpus, zero=zero, micro_batch=1, microbatches=1)
    return job.with_({"software.kernels.logged_losses": losses})


def ending_s(losses: int, gpus: int) -> float:
    """From the last kernel of the update to the end of the step."""
    spans = [span for span in stepsim.simulate(foundry(losses, gpus)).iter_spans() if span.rank == 0]
    overhead = next(span for span in spans if span.name == "step overhead")
    return max(span.end_s for span in spans) - overhead.end_s


def test_each_state_of_each_loss_makes_a_buffer_and_a_copy_for_every_rank() -> None:
    host = load_profile("A100-SXM4-80GB").steps.host
    for losses in (1, 2):
        copies_s = 2 * losses * 2 * 48 * COPY_HOST_S * host
        more_s = ending_s(losses, 64) - ending_s(losses, 16)
        assert copies_s < more_s < 1.5 * copies_s  # and longer ways through the network
    assert ending_s(2, 64) == pytest.approx(2 * ending_s(1, 64), rel=0.05)


def test_it_grows_with_the_ranks_and_not_with_the_model() -> None:
    large = foundry(2).with_({"model.num_layers": 8})
    small = foundry(2).with_({"model.num_layers": 4})
    assert ending_s(2, 64) > 2 * ending_s(2, 16)
    more = [step_s(job) - step_s(job.with_({"software.kernels.logged_losses": 0})) for job in (large, small)]
    assert more[0] == pytest.approx(more[1], rel=0.3)  # less what the losses themselves take


def step_s(job: Scenario) -> float:
    return stepsim.simulate(job).step_time_s


def test_one_rank_or_no_loss_gathers_nothing() -> None:
    for losses, gpus in ((2, 1), (0, 16)):
        names = {span.name for span in stepsim.simulate(foundry(losses, gpus)).iter_spans()}
        assert "metrics all_gather" not in names
    assert "metrics all_gather" in {span.name for span in stepsim.simulate(foundry(2)).iter_spans()}
