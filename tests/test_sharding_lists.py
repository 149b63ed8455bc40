"""DeepSpeed of 2021, whose ZeRO-3 gathers parameters into lists of a tensor a rank while nothing runs."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused_at
from small_scenarios import every_op, lowered, scenario
from validation_cases import case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.recipes import recipe_fields
from stepsim.sim.lowering.updates.gradients import COPY_HOST_S
from stepsim.sim.program.program import Collective, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.sharding import MATRICES
from stepsim.sim.simulate import simulate

PRESET = "deepspeed-zero3-2021"
WHOLE = {"prefetch_elements": 0.0}  # layers this small would be gathered as one
RANKS = 8


def run(*, lists: bool, zero: int = 3, kernels: dict[str, Any] | None = None, **fields: Any) -> Scenario:
    sharding = WHOLE | ({"lists": True} if lists else {})
    software = {"preset": PRESET, "sharding": sharding, "kernels": kernels or {}}
    return scenario(software=software, dp=RANKS, zero=zero, mlp="gelu", microbatches=1, **fields)


def latencies_s(one: Scenario, kind: str) -> list[float]:
    found: list[float] = []
    op: Op
    for op, times in every_op(lowered(one).programs.classes[0]):
        if isinstance(op.work, Collective) and op.work.kind == kind:
            found += [op.work.transfer.latency_s] * times
    return found


def test_python_takes_a_turn_for_each_rank_before_each_gather() -> None:
    plain, listed = (latencies_s(run(lists=how), "all_gather") for how in (False, True))
    assert len(plain) == len(listed)
    assert sum(listed) - sum(plain) == pytest.approx(len(listed) * RANKS * COPY_HOST_S)


def test_a_layer_is_reduced_from_a_list_for_each_of_its_matrices() -> None:
    """Embedding and head, one matrix each, have one list."""
    plain, listed = (latencies_s(run(lists=how), "reduce_scatter") for how in (False, True))
    layers = run(lists=True).model.num_layers
    turns = RANKS * (layers * MATRICES + len(listed) - layers)
    assert sum(listed) - sum(plain) == pytest.approx(turns * COPY_HOST_S)


def test_experts_in_a_loop_are_reduced_from_lists_of_their_own() -> None:
    """One for each matrix, as they are gathered; other matrices of a layer have theirs."""
    count, matrices = 8, 2
    fields: dict[str, Any] = {
        "moe": {"num_experts": count, "topk": 2, "expert_ffn_hidden_size": 128},
        "kernels": {"expert_operators": "loop"},
    }
    plain, listed = (latencies_s(run(lists=how, **fields), "reduce_scatter") for how in (False, True))
    layers = run(lists=True).model.num_layers
    turns = RANKS * (layers * (MATRICES + count * matrices) + len(listed) - 2 * layers)
    assert sum(listed) - sum(plain) == pytest.approx(turns * COPY_HOST_S)


def test_nothing_runs_beside_a_collective_of_lists_and_what_is_gathered_is_copied_out() -> None:
    beside, alone = simulate(run(lists=False)), simulate(run(lists=True))
    spans = alone.spans
    moved = spans[spans["stream"] == "dp"]
    under_way_s = float((moved["end_s"] - moved["start_s"]).sum())
    assert alone.exposed_communication_s["dp"] == pytest.approx(under_way_s, rel=0.02)
    assert alone.step_time_s > beside.step_time_s
    names = {op.name for op, _ in every_op(lowered(run(lists=True)).programs.classes[0])}
    assert "parameter copy-out" in names


@pytest.mark.parametrize(("year", "said"), [(2021, {"lists": True}), (2022, {})])
def test_cases_of_2021_have_lists(year: int, said: dict[str, Any]) -> None:
    text = {"software.framework": "DeepSpeed ZeRO-3 (Megatron model)", "software.year": year}
    fields = recipe_fields(PRESET, build(case_document(text)))
    assert {name: value for name, value in fields.items() if name == "lists"} == said


@pytest.mark.parametrize(("preset", "zero"), [("torchtitan-2024", 3), (PRESET, 2)])
def test_lists_are_refused_where_nothing_makes_them(preset: str, zero: int) -> None:
    software = {"preset": preset, "sharding": {"lists": True}}
    with refused_at("software.sharding.lists", "DeepSpeed's ZeRO-3", str(zero)):
        scenario(software=software, dp=4, zero=zero)
