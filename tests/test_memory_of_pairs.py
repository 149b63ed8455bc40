"""A forward and a backward that run as one hold one microbatch between them, and a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from small_experts import with_experts

from stepsim.sim.lowering.layers.local_shape import local_shape_of
from stepsim.sim.lowering.layers.pairs import pairs_up
from stepsim.sim.lowering.state.activations import ActivationBytes
from stepsim.sim.lowering.state.timeline import Buffers, pairs_of, peak_held
from stepsim.sim.plan.axes import layout_values
from stepsim.sim.plan.fields import field_value
from stepsim.sim.plan.screen.screen import screen
from stepsim.sim.plan.space import space_of
from stepsim.sim.result.step import ActionSpan
from stepsim.sim.simulate import simulate


def activations(**fields: Any) -> float:
    return simulate(with_experts(seq_length=1024, **fields)).memory[0].terms["activations"]


@pytest.mark.parametrize("layers", [2, 4, 8])
@pytest.mark.parametrize("micro_batch", [1, 2])
def test_without_stages_a_layer_more_than_one_microbatch(layers: int, micro_batch: int) -> None:
    """Two microbatches would be twice as much: Megatron core releases a layer with each that it adds."""
    fields = {"micro_batch": micro_batch, "microbatches": 6}
    beside = activations(num_layers=layers, moe_a2a_overlap=True, **fields)
    one_more = activations(num_layers=layers + 1, moe_a2a_overlap=False, **fields)
    assert beside == pytest.approx(one_more, rel=1e-9)


def test_two_layers_at_a_time_are_those_in_flight() -> None:
    beside = simulate(with_experts(num_layers=8, microbatches=6, moe_a2a_overlap=True)).memory[0]
    assert beside.layers_in_flight == 9


def span(kind: str, start_s: float, end_s: float, microbatch: int) -> ActionSpan:
    return ActionSpan(0, kind, 0, microbatch, start_s, end_s)


def test_only_what_runs_at_the_same_time_is_a_pair() -> None:
    spans = [span("F", 0, 1, 0), span("F", 1, 2, 1), span("B", 1, 2, 0), span("B", 2, 3, 1)]
    assert pairs_of(spans) == {(1, 2)}
    assert not pairs_of([span("F", 0, 1, 0), span("I", 0, 1, 1), span("B", 1, 2, 0)])


class _Sizes(ActivationBytes):
    """A stage whose microbatch keeps 10 bytes, 4 of them in its largest layer, and 3 of logits."""

    def kept_by_forward(self, stage: object) -> float:
        return 10.0

    def kept_by_layer(self, stage: object) -> float:
        return 4.0

    def working(self, stage: object) -> float:
        return 0.0

    def kept_by_input_grad(self, stage: object) -> float:
        return 0.0


@pytest.mark.parametrize("order", [("F", "B"), ("B", "F")])
def test_what_a_backward_leaves_makes_room_for_the_forward(order: tuple[str, str]) -> None:
    """Whoever of the two is told first: 10 and a layer of 4 while both run, 10 when they have ended."""
    from small_scenarios import lowered, scenario

    plan = lowered(scenario(num_layers=2)).plan
    sizes = _Sizes(
        local=plan.local,
        software=plan.scenario.software,
        embedding=0.0,
        head=0.0,
        logits=3.0,
        head_operands=0.0,
        output=0.0,
        passed=0.0,
    )
    both = {"F": span("F", 1, 2, 1), "B": span("B", 1, 2, 0)}
    spans = [span("F", 0, 1, 0), *(both[kind] for kind in order), span("B", 2, 3, 1)]
    peak = peak_held(spans, plan.stages, sizes, {0: Buffers()})
    assert (peak.held.activations, peak.held.logits) == (14.0, 0.0)
    assert peak.timeline[-1][1] == (0.0, 0.0, 0.0, 0.0)
    assert max(sum(parts) for at_s, parts in peak.timeline if at_s == 2) == 13.0


@pytest.mark.parametrize("schedule", ["none", "interleaved"])
def test_the_screen_of_layouts_says_the_same(schedule: str) -> None:
    stages = {} if schedule == "none" else {"pp": 2, "vpp": 2}
    run = with_experts(schedule=schedule, microbatches=8, moe_a2a_overlap=True, **stages)
    space = space_of(run, vary={name: [field_value(run, name)] for name in layout_values(run)})
    (needed,) = screen(space, within=float("inf")).needed_bytes
    assert needed == pytest.approx(max(stage.needed_bytes for stage in simulate(run).memory), rel=1e-9)


def test_screened_layouts_whose_pairs_run_in_turn_are_told_from_those_whose_run_as_one() -> None:
    """Of a schedule's own pairs those run as one that have exchanges of experts between ranks."""
    fields: dict[str, Any] = {"pp": 2, "ep": 2, "seq_length": 1024, "overlapped_point_to_point": "batched"}
    run = with_experts(schedule="dualpipe", microbatches=8, persistent_gradients=False, **fields)
    fixed = {name: [field_value(run, name)] for name in layout_values(run)}
    space = space_of(run, vary={**fixed, "parallelism.ep": [1, 2, 4]})
    found = screen(space, within=float("inf")).needed_bytes
    assert len(found) == 3
    for i, needed in enumerate(found):
        most = max(stage.needed_bytes for stage in simulate(space.scenario_of(i)).memory)
        assert needed == pytest.approx(most, rel=1e-9)


def test_layers_pair_up_where_either_has_experts_on_other_ranks() -> None:
    far, near = (local_shape_of(with_experts(ep=ep)) for ep in (8, 1))
    dense = replace(far, experts=None)
    assert pairs_up(far, dense)
    assert pairs_up(dense, far)
    assert not pairs_up(near, near)
    assert not pairs_up(dense, near)
