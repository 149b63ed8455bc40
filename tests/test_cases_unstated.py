"""What no source states of its runs and is known all the same: networks, vocabularies, runs without ZeRO."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from validation_cases import NETWORK, case_document, write_cases

from stepsim.calibration.cases.case import Case, build, read_cases
from stepsim.calibration.cases.constants import Constants
from stepsim.calibration.cases.halves import Halves
from stepsim.calibration.cases.preset import preset_of
from stepsim.calibration.cases.to_scenario import scenario_document, to_scenario
from stepsim.calibration.cases.unstated import (
    MEASURED_PRODUCTS,
    MICROBATCH_A_RANK,
    SIMPLE_ALONE,
    SITE_NETWORKS,
    TIED,
    VOCABULARIES,
)
from stepsim.calibration.validation.judge.choices import PROPOSED
from stepsim.calibration.validation.predict import predict
from stepsim.calibration.validation.run import validate
from stepsim.hardware.interconnect import get_interconnect
from stepsim.sim.brief.step import brief_step
from stepsim.sim.lowering.sizes import parameters
from stepsim.sim.scenario.software import software_names

TRAINER = {"software.framework": "Aleph Alpha in-house (Megatron-style 3D)", "software.year": 2023}
ASSUMED = ["hardware.interconnect"]
FORK = {"software.framework": "Megatron-LM (zero-bubble fork)", "software.year": 2023}


def network_of(case: Case, *, as_stated: bool = False) -> str:
    name: str = scenario_document(case, as_stated=as_stated)["cluster"]["interconnect"]
    return name


def test_every_known_network_and_preset_exists() -> None:
    assert set(SITE_NETWORKS) <= set(software_names())
    for name in SITE_NETWORKS.values():
        get_interconnect(name)
    assert set(VOCABULARIES) | set(SIMPLE_ALONE) | set(TIED) <= set(software_names())
    assert set(MICROBATCH_A_RANK) <= set(software_names())
    for name in SIMPLE_ALONE.values():
        get_interconnect(name)


@pytest.mark.parametrize("framework", ["nanotron", "Megatron-LM"])
@pytest.mark.parametrize("interconnect", ["efa-3200", "ib-ndr400-x8"])
@pytest.mark.parametrize("as_stated", [True, False])
@pytest.mark.parametrize("measured", [None, NETWORK])
def test_one_site_ran_simple_alone(
    framework: str, interconnect: str, as_stated: bool, measured: dict[str, float] | None
) -> None:
    """What its runs measured of their rings shows it; those that state none show it by the others."""
    fields = {"software.framework": framework, "software.year": 2024, "hardware.interconnect": interconnect}
    case = build(case_document({**fields, "measured_network": measured}))
    document = scenario_document(case, as_stated=as_stated)
    simple = (
        framework == "nanotron" and interconnect == "efa-3200" and (measured is not None or not as_stated)
    )
    proto = document["software"].get("exchange", {}).get("nccl_proto")
    assert proto == ("Simple" if simple else None)


@pytest.mark.parametrize("as_stated", [True, False])
def test_boards_whose_own_products_were_measured(as_stated: bool) -> None:
    """One host of one framework's text and one GPU, and nobody else."""
    (((text, gpu), reached),) = MEASURED_PRODUCTS.items()
    one = {"software.framework": text, "software.year": 2026, "hardware.gpu": gpu, "hardware.gpus": 8}
    for change, told in (
        ({}, {"measured_products": reached}),
        ({"software.framework": "Megatron-LM core (TE 2.12, torch 2.10)"}, None),
        ({"hardware.gpu": "B300-SXM"}, None),
        ({"hardware.gpus": 64}, None),
    ):
        case = build(case_document({**one, **change}))
        assert scenario_document(case, as_stated=as_stated)["cluster"].get("power") == told


@pytest.mark.parametrize("framework", [TRAINER["software.framework"], "Megatron-LM"])
@pytest.mark.parametrize("assumed", [ASSUMED, [], ["layout.zero"]])
def test_what_a_source_states_stands(framework: str, assumed: list[str]) -> None:
    case = build(case_document(TRAINER | {"software.framework": framework, "assumed": assumed}))
    stated = case.hardware.interconnect
    known = assumed == ASSUMED and framework == TRAINER["software.framework"]
    assert network_of(case) == (SITE_NETWORKS["aleph-alpha-2023"] if known else stated)
    assert network_of(case, as_stated=True) == stated


@pytest.mark.parametrize("framework", [TRAINER["software.framework"], "Megatron-LM"])
@pytest.mark.parametrize("assumed", [["model.tied_embeddings"], [], ["layout.zero"]])
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("as_stated", [True, False])
def test_a_trainer_ties_its_head_where_nobody_says(
    framework: str, assumed: list[str], stated: bool, as_stated: bool
) -> None:
    fields = TRAINER | {"software.framework": framework, "assumed": assumed, "model.tied_embeddings": stated}
    model = scenario_document(build(case_document(fields)), as_stated=as_stated)["model"]
    by_itself = assumed == ["model.tied_embeddings"] and framework == TRAINER["software.framework"]
    assert model["tied_embeddings"] is (stated or by_itself)


@pytest.mark.parametrize("framework", [FORK["software.framework"], "Megatron-LM"])
@pytest.mark.parametrize("assumed", [["model.vocab_size"], [], ["layout.precision"]])
def test_a_vocabulary_that_a_source_states_stands(framework: str, assumed: list[str]) -> None:
    case = build(case_document(FORK | {"software.framework": framework, "assumed": assumed}))
    known = assumed == ["model.vocab_size"] and framework == FORK["software.framework"]
    model, stated = scenario_document(case)["model"], case.model.vocab_size
    expected = VOCABULARIES["megatron-zero-bubble-2023"] if known else stated
    assert (model["vocab_size"], model["padded_vocab_size"]) == (expected, expected)
    assert scenario_document(case, as_stated=True)["model"]["vocab_size"] == expected


SIZES = {(22, 2304): 1.5, (30, 4096): 6.2, (46, 5120): 14.6, (62, 6144): 28.3}
"""Billions of parameters by layers and width (arXiv:2401.10241, Table 3)."""


@pytest.mark.parametrize(("assumed", "right"), [(("model.vocab_size",), 4), ((), 1)])
def test_the_zero_bubble_paper_names_its_models_by_what_they_hold(
    shared: Path, assumed: tuple[str, ...], right: int
) -> None:
    """The rows that the cases assume would have made all but the smallest a tenth of a billion larger."""
    case = read_cases(shared / "data" / "cases" / "zero_bubble.yaml")[0]
    model = to_scenario(replace(case, assumed=assumed)).model
    found = 0
    for (layers, width), billions in SIZES.items():
        update = {"num_layers": layers, "hidden_size": width, "ffn_hidden_size": 4 * width}
        update |= {"num_attention_heads": width // 128, "num_query_groups": width // 128, "kv_channels": 128}
        size = parameters(model.model_copy(update=update), positions=case.model.seq_length).total
        found += f"{size / 1e9:.1f}" == f"{billions:.1f}"
    assert found == right


@pytest.mark.parametrize("year", [2024, 2025])
@pytest.mark.parametrize("assumed", [["layout.micro_batch"], []])
@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (8, 1), (8, 2)])
def test_torchtitan_of_2024_made_a_microbatch_for_each_pipeline_rank(
    year: int, assumed: list[str], pp: int, vpp: int
) -> None:
    """Not for each stage, as one who reads its later code would assume; what a source states stands."""
    layout = {"tp": 1, "pp": pp, "vpp": vpp, "dp": 8, "micro_batch": 2, "global_batch": 256}
    changes: dict[str, object] = {f"layout.{key}": value for key, value in layout.items()}
    changes |= {"software.framework": "torchtitan (FSDP2)", "software.year": year, "assumed": assumed}
    case = build(case_document(changes | {"hardware.gpus": 8 * pp, "layout.sequence_parallel": False}))
    known = year == 2024 and pp > 1 and bool(assumed)
    expected = 256 // 8 // pp if known else 2
    assert scenario_document(case)["training"]["micro_batch"] == expected
    assert scenario_document(case, as_stated=True)["training"]["micro_batch"] == expected


def test_both_schedules_of_one_job_are_told_alike_with_the_microbatches_that_its_code_made(
    shared: Path,
) -> None:
    """405B on 512 H100, 1F1B and interleaved: with a microbatch for each stage the second would be twelve
    points faster than the first is told."""
    cases = {case.id: case for case in read_cases(shared / "data" / "cases" / "torchtitan.yaml")}
    plain, interleaved = (
        cases[f"torchtitan-2412-405b-512g-{schedule}"] for schedule in ("1f1b", "interleaved-1f1b")
    )

    def off(case: Case) -> float:
        assert case.measured.step_time_s is not None
        return brief_step(to_scenario(case)).step_time_s / case.measured.step_time_s - 1

    assert off(interleaved) == pytest.approx(off(plain), abs=0.03)
    assert off(replace(interleaved, assumed=())) < off(plain) - 0.1


@pytest.mark.parametrize("fitted", [True, False])
def test_a_source_left_out_has_the_network_that_is_stated(tmp_path: Path, fitted: bool) -> None:
    """What its own runs told of its site is left out with them, whether or not they shaped constants."""
    layout = {
        "tp": 1, "pp": 1, "vpp": 1, "dp": 16, "schedule": "none", "sequence_parallel": False,
        "micro_batch": 1, "global_batch": 16,
    }  # fmt: skip
    changes = TRAINER | {f"layout.{key}": value for key, value in layout.items()}
    changes |= {"assumed": ASSUMED, "hardware.gpus": 16, "model.num_layers": 4}
    document = case_document(changes)
    path = write_cases(tmp_path / "a.yaml", [document])
    case = read_cases(path)[0]
    nothing = Constants(gpus={}, presets={})
    sources = {"a": nothing} if fitted else {}
    halves = Halves(constants=(nothing, nothing), sources=sources, fitted=0, cases=1, families=1)
    report = validate([path], halves=halves)
    assert report.rows[0].prediction.step_time_s == brief_step(to_scenario(case)).step_time_s
    left_out = brief_step(to_scenario(case, as_stated=True)).step_time_s
    assert report.source_left_out == {case.id: left_out}
    assert left_out < report.rows[0].prediction.step_time_s


@pytest.mark.parametrize("assumed", [["layout.zero"], []])
@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("framework", ["Megatron-DeepSpeed", "Megatron-LM"])
def test_megatron_deepspeed_without_a_word_of_zero_is_megatron_alone(
    framework: str, zero: int, assumed: list[str]
) -> None:
    changes = {"software.framework": framework, "layout.zero": zero, "assumed": assumed}
    case = build(case_document(changes))
    silent = framework == "Megatron-DeepSpeed" and zero == 0 and assumed == ["layout.zero"]
    expected = "megatron-2021" if silent else preset_of(case.software)
    assert scenario_document(case)["software"]["preset"] == expected


def test_what_ran_without_zero_fits(shared: Path) -> None:
    """3.6B on each GPU by itself: under DeepSpeed's engine no plan would be sure of it; it ran at three."""
    found = []
    for case in read_cases(shared / "data" / "cases" / "vtrain_multi.yaml"):
        if case.layout.tp == case.layout.pp == 1:
            assert case.measured.outcome == "ok"
            found.append(predict(case).fit_probability)
            stated = predict(replace(case, assumed=())).fit_probability
            assert stated is not None
            assert stated < PROPOSED
    assert len(found) == 3
    assert min(one or 0.0 for one in found) > PROPOSED


@pytest.mark.parametrize("microbatch", [1, 2])
def test_what_sequence_parallelism_saves_between_hosts_tells_the_network(
    shared: Path, microbatch: int
) -> None:
    """65B on 64 GPUs, tp 8 and pp 8: one replica, so that messages between stages alone cross hosts, whole
    without sequence parallelism and an eighth of it with. What that saves tells how fast they are."""
    name = f"aa-llama65B-seq2048-64g-tp8-pp8-mbs{microbatch}-noac-fa2+rms-sp"
    cases = {case.id: case for case in read_cases(shared / "data" / "cases" / "aleph_alpha_layouts.yaml")}
    whole, part = cases[name + "0"], cases[name + "1"]
    assert whole.measured.step_time_s is not None
    assert part.measured.step_time_s is not None
    measured_s = whole.measured.step_time_s - part.measured.step_time_s

    def saved_s(network: str) -> float:
        steps = []
        for case in (whole, part):
            stated = replace(case, hardware=replace(case.hardware, interconnect=network), assumed=())
            steps.append(brief_step(to_scenario(stated)).step_time_s)
        return steps[0] - steps[1]

    known = SITE_NETWORKS["aleph-alpha-2023"]
    assert saved_s(known) == pytest.approx(measured_s, rel=0.1)
    for other in ("ib-hdr200-x8", "ib-hdr200-x4"):
        assert saved_s(other) < 0.7 * measured_s


@pytest.mark.parametrize("schedule", ["ZB-2p", "ZB-1p", "1F1B-I"])
def test_no_stage_of_the_zero_bubble_paper_is_slower_than_its_pace(shared: Path, schedule: str) -> None:
    """1.5B: what 32 more microbatches take, each. With the rows that the cases assume the last stage alone
    takes more, whatever the schedule."""
    cases = {case.id: case for case in read_cases(shared / "data" / "cases" / "zero_bubble.yaml")}
    long, short = (cases[f"zb-t4-1.5B-{schedule}-m{count}"] for count in (64, 32))
    assert long.measured.step_time_s is not None
    assert short.measured.step_time_s is not None
    measured_s = (long.measured.step_time_s - short.measured.step_time_s) / 32

    def pace_s(*runs: Case) -> float:
        steps = [brief_step(to_scenario(case)).step_time_s for case in runs]
        return (steps[0] - steps[1]) / 32

    assert pace_s(*(replace(case, assumed=()) for case in (long, short))) > 1.1 * measured_s
    assert pace_s(long, short) == pytest.approx(measured_s, rel=0.1)


@pytest.mark.parametrize(
    ("precision", "zero", "dp", "runs"),
    [("bf16", 0, 8, 1), ("bf16", 1, 8, 1), ("fp16", 0, 8, 0), ("bf16", 0, 1, 0)],
)
def test_deepspeed_shards_its_state_under_bf16_whatever_stage_is_named(
    precision: str, zero: int, dp: int, runs: int
) -> None:
    layout = {"layout.precision": precision, "layout.zero": zero, "layout.dp": dp, "hardware.gpus": dp}
    sizes = {"layout.tp": 1, "layout.pp": 1, "layout.schedule": "none", "layout.vpp": 1}
    fields = {"software.framework": "Megatron-DeepSpeed", "software.year": 2023, "assumed": []}
    case = build(case_document({**fields, **layout, **sizes}))
    assert scenario_document(case)["parallelism"]["zero"] == runs
