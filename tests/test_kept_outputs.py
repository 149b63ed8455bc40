"""What torch.distributed.pipelining keeps until a step ends: closed forms, and every way to the bill."""

from __future__ import annotations

from typing import Any

import pytest
from small_scenarios import scenario

from stepsim.sim.brief.memory import memory_by_order
from stepsim.sim.brief.search import Search
from stepsim.sim.brief.step import brief_step
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import layout_values, space_of
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import simulate

MICROBATCHES = 24


def piped(keeps: str, *, received: bool = False, **fields: Any) -> Scenario:
    pipeline = {"keeps_outputs": keeps, "keeps_received": received}
    software = {"preset": "torchtitan-2025", "pipeline": pipeline}
    own = {"norm": "rmsnorm", "position": "rope", "biases": False, "dropout": 0.0, "mlp": "swiglu"}
    layout = {"tp": 2, "pp": 2, "schedule": "1f1b", "zero": 3, "dp": 2, "microbatches": MICROBATCHES}
    return scenario(**{"software": software, **own, **layout, **fields})


def outputs_bytes(run: Scenario) -> list[float]:
    return [stage.terms.get("outputs", 0.0) for stage in simulate(run).memory]


@pytest.mark.parametrize(
    "fields", [{}, {"schedule": "interleaved", "vpp": 2}, {"schedule": "gpipe"}, {"pp": 4}], ids=str
)
def test_logits_and_what_stages_pass_are_there_once_a_microbatch(fields: dict[str, Any]) -> None:
    run = piped("all", **fields)
    tokens = run.training.micro_batch * run.training.seq_length
    logits = 2.0 * tokens * run.model.vocab_size / run.parallelism.tp * MICROBATCHES
    passed = 2.0 * tokens * run.model.hidden_size / run.parallelism.tp * MICROBATCHES
    pp, vpp = run.parallelism.pp, run.parallelism.vpp
    assert outputs_bytes(run) == [vpp * passed] * (pp - 1) + [(vpp - 1) * passed + logits]
    assert outputs_bytes(piped("last", **fields)) == [0.0] * (pp - 1) + [logits]
    assert outputs_bytes(piped("none", **fields)) == [0.0] * pp


def test_a_loss_in_chunks_is_given_hidden_states_which_stay_in_place_of_logits() -> None:
    """The head is in the loss (torchtitan components/loss.py, ChunkedCELoss)."""
    run = piped("last").with_({"software.kernels.loss_chunks": 8})
    tokens = run.training.micro_batch * run.training.seq_length
    passed = 2.0 * tokens * run.model.hidden_size / run.parallelism.tp * MICROBATCHES
    assert outputs_bytes(run) == [0.0, passed]


@pytest.mark.parametrize("fields", [{}, {"schedule": "interleaved", "vpp": 2}, {"pp": 4}], ids=str)
def test_what_stages_get_has_a_buffer_for_each_microbatch(fields: dict[str, Any]) -> None:
    """Both ends of the model get from one side, all others from two; an input in flight is that buffer, and
    what a stage gives waits with it."""
    run, without = piped("none", received=True, **fields), piped("none", **fields)
    tokens = run.training.micro_batch * run.training.seq_length
    passed = 2.0 * tokens * run.model.hidden_size / run.parallelism.tp
    pp, vpp = run.parallelism.pp, run.parallelism.vpp
    stages = [2 * vpp - 1, *[2 * vpp] * (pp - 2), 2 * vpp - 1]
    assert outputs_bytes(run) == [each * passed * MICROBATCHES for each in stages]
    first, other = simulate(run).memory[0], simulate(without).memory[0]
    more = first.terms["activations"] - other.terms["activations"]
    assert 0 <= more <= passed * first.layers_in_flight
    last, other = simulate(run).memory[-1], simulate(without).memory[-1]
    assert last.terms["activations"] < other.terms["activations"]


@pytest.mark.parametrize(("schedule", "vpp"), [("dualpipe", 1), ("dualpipev", 2)])
def test_both_ends_of_a_pipeline_that_goes_both_ways_keep_half_each(schedule: str, vpp: int) -> None:
    software = {
        "preset": "torchtitan-2025",
        "pipeline": {
            "keeps_outputs": "last",
            "keeps_received": False,
            "overlapped_point_to_point": "batched",
        },
    }
    run = piped("last", schedule=schedule, vpp=vpp, pp=4, tp=1, zero=1, software=software)
    logits = 2.0 * run.training.micro_batch * run.training.seq_length * run.model.vocab_size * MICROBATCHES
    ends = {"dualpipe": [logits / 2, 0.0, 0.0, logits / 2], "dualpipev": [logits, 0.0, 0.0, 0.0]}
    assert outputs_bytes(run) == ends[schedule]
    fixed = {name: values[:1] for name, values in layout_values(run).items()}
    space = space_of(run, vary=fixed | {"training.micro_batch": [1, 2]})
    found = screen(space, within=float("inf"))
    for i in range(len(space)):
        whole = max(stage.needed_bytes for stage in simulate(space.scenario_of(i)).memory)
        assert found.needed_bytes[i] == pytest.approx(whole, rel=1e-9)


def test_a_step_without_pipeline_keeps_none() -> None:
    run = piped("all", received=True, pp=1, schedule="none")
    assert outputs_bytes(run) == [0.0]


@pytest.mark.parametrize("keeps", ["none", "last", "all"])
def test_steps_that_are_shortened_keep_those_of_the_whole(keeps: str) -> None:
    run = piped(keeps, received=True)
    whole = [stage.peak_bytes for stage in simulate(run).memory]
    for memory in (memory_by_order(run).high, brief_step(run).memory, Search().step_of(run).memory):
        assert [stage.peak_bytes for stage in memory] == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("keeps", ["last", "all"])
def test_a_screening_has_them(keeps: str) -> None:
    run = piped(keeps, received=True)
    vary: dict[str, list[Any]] = {"parallelism.pp": [1, 2, 4], "training.micro_batch": [1, 2, 4]}
    fixed = {name: values[:1] for name, values in layout_values(run).items() if name not in vary}
    space = space_of(run, vary={**fixed, "schedule": ["1f1b", "none"], **vary})
    found = screen(space, within=float("inf"))
    assert len(space) > 3
    for i in range(len(space)):
        whole = max(stage.needed_bytes for stage in simulate(space.scenario_of(i)).memory)
        assert found.needed_bytes[i] == pytest.approx(whole, rel=1e-9)
