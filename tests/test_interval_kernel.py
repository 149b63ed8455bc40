"""Intervals reach to steps with other attention kernels than the one that is assumed."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from validation_cases import case_document

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.to_scenario import to_scenario
from stepsim.hardware.calibrated.models import IMPLEMENTATIONS
from stepsim.sim.evidence.interval_kernel import CHOICES, FASTER, SLOWER, assumed_attention
from stepsim.sim.figures import signed_percent
from stepsim.sim.lowering.lower import lower
from stepsim.sim.report.tables import print_result
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import Interval
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster, simulate


def scenario(
    preset: str = "nemo-2024", gpu: str = "H100-SXM5-80GB", precision: str = "bf16", **kernels: Any
) -> Scenario:
    document = {
        "model": {
            "num_layers": 4,
            "hidden_size": 2048,
            "num_attention_heads": 16,
            "ffn_hidden_size": 5632,
            "vocab_size": 32000,
            "mlp": "swiglu",
        },
        "cluster": {"gpu": gpu, "gpus": 8, "interconnect": "ib-ndr400-x8"},
        "parallelism": {"tp": 1, "dp": 8},
        "training": {"seq_length": 16384, "global_batch": 16, "micro_batch": 1, "precision": precision},
        "software": {"preset": preset, "kernels": kernels},
    }
    return scenario_from_document(document, "kernel")


def interval_of(run: Scenario) -> Interval:
    interval = simulate(run).interval
    assert interval is not None
    return interval


def kinds(interval: Interval) -> set[str]:
    return {part.kind for part in interval.parts} & {SLOWER, FASTER}


@pytest.mark.parametrize(("assumed", "other"), [("cudnn", "fa2"), ("fa2", "cudnn"), ("fa2", "fa3")])
def test_the_replay_with_another_kernel_lies_inside(assumed: str, other: str) -> None:
    interval = interval_of(scenario(attention=assumed, attention_assumed=True))
    step_s = simulate(scenario(attention=other)).step_time_s
    assert interval.low_s < step_s < interval.high_s


def test_each_side_has_the_part_of_its_kernels_alone() -> None:
    """On H100 FlashAttention-2 is the slowest, and FlashAttention-3 between it and cuDNN or beside it."""
    stated = interval_of(scenario(attention="fa2"))
    assumed = interval_of(scenario(attention="fa2", attention_assumed=True))
    assert kinds(stated) == set()
    assert kinds(assumed) == {FASTER}
    assert assumed.low_s < stated.low_s
    assert assumed.high_s == stated.high_s
    slower = interval_of(scenario(attention="cudnn", attention_assumed=True))
    assert slower.high_s > interval_of(scenario(attention="cudnn")).high_s


@pytest.mark.parametrize(("assumed", "other"), [("cudnn", "fa2"), ("fa2", "fa3")])
def test_each_part_alone_reaches_the_step_with_that_kernel_and_says_so(assumed: str, other: str) -> None:
    run = scenario(attention=assumed, attention_assumed=True)
    result = simulate(run)
    (share,) = [one.seconds / result.step_time_s for one in result.critical_path if one.name == "attention"]
    causes = assumed_attention(share, lower(run, build_cluster(run)).plan)
    (cause,) = [one for one in causes if other in one.name]
    interval = result.interval
    assert interval is not None
    (part,) = [one for one in interval.parts if one.name == cause.name]
    counted = interval.quantile if part.kind == SLOWER else interval.quantile_below
    assert counted * part.sigma == pytest.approx(cause.sigma)
    change = math.exp(share * (cause.sigma if part.kind == SLOWER else -cause.sigma)) - 1.0
    assert change == pytest.approx(
        simulate(scenario(attention=other)).step_time_s / result.step_time_s - 1.0, rel=0.05
    )
    alone = replace(result, interval=replace(interval, parts=(part,)))
    assert f"{other} is the {part.kind} ({signed_percent(change)})" in printed(alone)


def printed(result: Result) -> str:
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_result(result, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_attention_in_eight_bits_has_one_kernel() -> None:
    fields: dict[str, Any] = {
        "attention": "cudnn",
        "attention_assumed": True,
        "gpu": "B200-SXM-180GB",
        "precision": "mxfp8",
    }
    assert kinds(interval_of(scenario(**fields, fp8_attention=False)))
    assert kinds(interval_of(scenario(**fields, fp8_attention=True))) == set()


def test_a_chip_with_one_kernel_leaves_no_choice() -> None:
    assert kinds(interval_of(scenario(gpu="L40S", attention="fa2", attention_assumed=True))) == set()


def test_attention_without_a_fused_kernel_is_no_choice_among_them() -> None:
    assert kinds(interval_of(scenario(attention="unfused", attention_assumed=True))) == set()


def test_a_trainer_that_nobody_read_assumes_its_attention_until_it_is_named() -> None:
    assert scenario("generic-fsdp").software.kernels.attention_assumed
    assert not scenario("generic-fsdp", attention="fa2").software.kernels.attention_assumed
    assert scenario(
        "generic-fsdp", attention="fa2", attention_assumed=True
    ).software.kernels.attention_assumed
    assert not scenario("torchtitan-2025").software.kernels.attention_assumed


@pytest.mark.parametrize("preset", ["generic-fsdp", "generic-jax", "nemo-2024"])
@pytest.mark.parametrize("attention", ["fa2", "fa3", "cudnn"])
@pytest.mark.parametrize("assumed", [{}, {"attention_assumed": True}, {"attention_assumed": False}])
def test_what_is_assumed_is_so_in_a_document_written_anew(
    preset: str, attention: str, assumed: dict[str, Any]
) -> None:
    run = scenario(preset, attention=attention, **assumed)
    assert scenario_from_document(run.to_document(), "anew").software == run.software


def test_a_case_says_which_attention_it_assumes() -> None:
    stated = {"software.framework": "PyTorch FSDP", "software.year": 2024, "assumed": []}
    for assumed in (False, True):
        case = build(case_document({**stated, "assumed": ["software.attention"] * assumed}))
        assert to_scenario(case).software.kernels.attention_assumed == assumed


def test_all_fused_attention_but_the_first_is_a_choice() -> None:
    assert {*CHOICES} == {*IMPLEMENTATIONS} - {"fa1"}
