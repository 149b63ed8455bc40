"""DeepSpeed of 2021, whose ZeRO-3 gathers parameters into lists of a tensor a rank while nothing runs."""

from __future__ import annotations

from typing import Any

import pytest
from refusals import refused_at
from small_scenarios import every_op, lowered, scenario
from validation_cases import case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.recipes import recipe_fields
from stepsim.sim.lowering.sharding.traffic import ShardGroup, ShardTraffic
from stepsim.sim.lowering.sharding.units import Unit
from stepsim.sim.lowering.updates.gradients import COPY_HOST_S
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program.program import Collective, Op
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.scenario.sharding import MATRICES, ShardingRule
from stepsim.sim.simulate import simulate

PRESET = "deepspeed-zero3-2021"
WHOLE = {"prefetch_elements": 0.0}  # layers this small would be gathered as one
RANKS = 8


def run(*, lists: bool, zero: int = 3, **fields: Any) -> Scenario:
    software = {"preset": PRESET, "sharding": WHOLE | ({"lists": True} if lists else {})}
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


def test_experts_are_reduced_from_as_many_lists_as_they_are_gathered_into() -> None:
    """Experts in a loop are modules of a matrix each, here 12, each with a list of its own."""

    def group(name: str) -> ShardGroup:
        return ShardGroup(communicator=name, ranks=4, transfer=lambda _, size: Transfer(1e-5, size, 1e9))

    traffic = ShardTraffic(
        rule=ShardingRule(gathers="each", lists=True, calls=MATRICES, expert_calls=12),
        shards=group("dp"), replicas=group("hsdp"), experts=group("edp"), expert_replicas=group("ehsdp"),
        gather_bytes=2, reduce_bytes=2, parameter_bytes=2, host_s=0.0, turn_s=1e-3,
    )  # fmt: skip
    unit = Unit(name="layer", elements=1e6, experts=2e6)
    turns: dict[str, dict[str, int]] = {}
    for name, ops in (("gathered", traffic.gather(unit)), ("reduced", traffic.reduce(unit))):
        for op in ops:
            assert isinstance(op.work, Collective)
            of = turns.setdefault(name, {})
            of[op.work.communicator] = of.get(op.work.communicator, 0) + round(
                op.work.transfer.latency_s / 1e-3
            )
    assert turns["reduced"] == turns["gathered"] == {"dp": 4 * MATRICES, "edp": 4 * 12}


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
