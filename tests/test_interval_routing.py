"""Intervals of models with experts reach up to the step of a real router, unless balance is forced."""

from __future__ import annotations

import math
from typing import Any

import pytest
from small_scenarios import WIDE, scenario
from validation_cases import MOE, case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.to_scenario import scenario_document
from stepsim.sim.evidence.interval import REACHES
from stepsim.sim.evidence.interval_routing import MOST, ROUTER
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import LENGTHENS
from stepsim.sim.simulate import simulate

EXPERTS = {"num_experts": 8, "topk": 2, "expert_ffn_hidden_size": 2048}


def step(moe: dict[str, Any] | None = EXPERTS, *, ep: int = 4, **training: Any) -> Result:
    software = {"preset": "megatron-core-2025", "host": {"cuda_graphs": True}}
    run = scenario(
        **WIDE,
        gpu="H100-SXM5-80GB",
        interconnect="ib-ndr400-x8",
        dp=4,
        ep=ep,
        zero=1,
        moe=moe,
        software=software,
        **training,
    )
    return simulate(run)


def reach(result: Result) -> list[float]:
    assert result.interval is not None
    return [part.share for part in result.interval.parts if part.kind == ROUTER]


def test_an_interval_reaches_up_to_the_step_of_a_real_router() -> None:
    assumed, forced = step(), step(routing="forced")
    assert assumed.interval is not None
    assert forced.interval is not None
    assert reach(assumed) == [1.0]
    assert assumed.step_time_s == forced.step_time_s
    assert assumed.interval.high_s > assumed.step_time_s * MOST
    assert assumed.interval.high_s > forced.interval.high_s
    assert assumed.interval.low_s == pytest.approx(forced.interval.low_s)


def test_it_counts_for_the_layers_that_have_experts() -> None:
    assert reach(step(EXPERTS | {"num_dense_layers": 1})) == [0.75]


def test_uneven_routing_only_lengthens_the_interval() -> None:
    assert ROUTER in LENGTHENS
    assert ROUTER in REACHES
    assert math.log(MOST) == pytest.approx(0.219, abs=1e-3)


def test_what_is_known_of_the_router_leaves_no_such_doubt() -> None:
    assert not reach(step(routing="forced"))
    assert not reach(step(routing="in_turn"))
    assert not reach(step(routing={"kind": "zipf", "exponent": 0.2}))
    assert not reach(step(EXPERTS | {"capacity_factor": 1.0}))
    assert not reach(step(ep=1))
    assert not reach(step(None, ep=1))


@pytest.mark.parametrize(
    ("framework", "assumed", "routing"),
    [
        ("NeMo AutoModel (FSDP2, TE, DeepEP)", [], "in_turn"),
        ("torchtitan (FSDP2; DeepEP)", [], "in_turn"),
        ("torchtitan (FSDP2; DeepEP)", ["software.balanced_routing"], "forced"),
        ("Megatron core (DeepEP dispatcher)", [], "forced"),
    ],
)
def test_who_forces_balance_by_taking_experts_in_turn(
    framework: str, assumed: list[str], routing: str
) -> None:
    said = {"software.framework": framework, "software.year": 2025, "software.balanced_routing": True}
    case = case_document({"model.moe": MOE, "assumed": assumed} | said)
    assert scenario_document(build(case))["training"]["routing"] == routing


@pytest.mark.parametrize(("stated", "routing"), [(True, "forced"), (False, None), (None, None)])
def test_a_case_says_that_its_balance_was_forced(stated: bool | None, routing: str | None) -> None:
    experts = case_document({"model.moe": MOE, "software.balanced_routing": stated})
    assert scenario_document(build(experts))["training"].get("routing") == routing
    dense = case_document({"software.balanced_routing": stated})
    assert "routing" not in scenario_document(build(dense))["training"]
