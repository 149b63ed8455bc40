"""Intervals of trainers that nobody read hold what reading a trainer is worth."""

from __future__ import annotations

import math
from dataclasses import replace
from math import log
from pathlib import Path

import pytest
from validation_cases import MOE, case_document, write_cases

from stepsim.calibration.cases.case import build
from stepsim.calibration.cases.preset import preset_of
from stepsim.calibration.cases.unread_trainer import as_unread
from stepsim.calibration.fit.growth import NORMAL_NINTH
from stepsim.calibration.fit.steps.source_terms import SourceRow
from stepsim.calibration.fit.steps.unread_spread import ALL, Move, fit_unread
from stepsim.calibration.validation.predict import predict
from stepsim.calibration.validation.run import validate
from stepsim.calibration.validation.unread import predicted_unread, unread_moves, unread_rows
from stepsim.sim.evidence.measured_steps import OTHERS, measured_steps
from stepsim.sim.result.step import Interval
from stepsim.sim.scenario.load import scenario_from_document
from stepsim.sim.scenario.software import get_software, software_names
from stepsim.sim.simulate import simulate

WORDS = "nobody read the code"


JOB = {
    "model": {
        "num_layers": 2,
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "ffn_hidden_size": 4096,
        "vocab_size": 32000,
        "mlp": "gelu",
    },
    "cluster": {"gpu": "H100-SXM5-80GB", "gpus": 8, "interconnect": "ib-ndr400-x8"},
    "parallelism": {"tp": 1, "dp": 8},
    "training": {"seq_length": 2048, "global_batch": 16, "micro_batch": 1, "precision": "bf16"},
}


def interval_of(preset: str) -> Interval:
    interval = simulate(scenario_from_document({**JOB, "software": {"preset": preset}}, "unread")).interval
    assert interval is not None
    return interval


@pytest.mark.parametrize("preset", software_names())
def test_who_was_not_read_is_as_uncertain_as_reading_moves_steps(preset: str) -> None:
    software = get_software(preset)
    parts = [part for part in interval_of(preset).parts if WORDS in part.name]
    assert software.read == (not parts)
    assert [part.sigma for part in parts] == [measured_steps().of_unread(preset).sigma] * (not software.read)


def test_a_stack_without_a_preset_is_one_that_nobody_read_unless_it_says_so() -> None:
    """Defaults are no trainer's code; a preset under another name stays what it is."""
    bare = scenario_from_document({**JOB, "software": {"kernels": {"attention": "fa2"}}}, "bare")
    known = scenario_from_document(
        {**JOB, "software": {"kernels": {"attention": "fa2"}, "read": True}}, "known"
    )
    named = scenario_from_document(
        {**JOB, "software": {"preset": "megatron-core-2025", "name": "mine"}}, "named"
    )
    assert [one.software.read for one in (bare, known, named)] == [False, True, True]
    wide, narrow = simulate(bare), simulate(known)
    assert wide.step_time_s == narrow.step_time_s
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval.high_s > narrow.interval.high_s
    assert any("software.read" in part.name for part in wide.interval.parts)
    assert scenario_from_document(bare.to_document(), "again").software == bare.software


def moves(kin: str, sources: int, *moved: float) -> list[Move]:
    return [Move(source=f"{kin} {n}", generic=kin, moved=one) for n in range(sources) for one in moved]


def test_a_kin_is_known_by_its_own_moves_and_others_by_all() -> None:
    known = measured_steps()
    assert known.unread.keys() > {OTHERS}
    assert {kin: known.of_unread(kin) for kin in known.unread} == known.unread
    assert known.of_unread("generic-jax") == known.unread[OTHERS]


def test_nine_in_ten_moves_are_held_and_not_one_in_two() -> None:
    """Most of a kin are as its preset says, and a fifth of it far from that."""
    near, far = (
        moves("a", 8, 0.01, -0.02),
        [Move(source=f"far {n}", generic="a", moved=0.5) for n in range(2)],
    )
    assert fit_unread([*near, *far])["a"].sigma == pytest.approx(0.5 / NORMAL_NINTH, rel=1e-2)


@pytest.mark.parametrize("sources", [1, 5, 40])
def test_a_kin_is_known_by_its_own_sources_beside_those_of_all(sources: int) -> None:
    found = fit_unread([*moves("one", sources, 0.3), *moves("other", 400, 0.1)])
    pooled = math.sqrt((sources * 0.3**2 + ALL * 0.1**2) / (sources + ALL))
    assert set(found) == {"one", "other", OTHERS}
    assert found["one"].sigma == pytest.approx(pooled / NORMAL_NINTH, rel=1e-2)
    assert found["other"].sigma == found[OTHERS].sigma == pytest.approx(0.1 / NORMAL_NINTH, rel=1e-2)


def test_sources_count_alike_whatever_they_swept() -> None:
    few, swept = moves("a", 12, 0.1), [Move(source="sweep", generic="a", moved=0.5)] * 100
    assert fit_unread([*few, *swept])[OTHERS].sigma == pytest.approx(0.1 / NORMAL_NINTH, rel=1e-2)


def test_a_direction_is_no_matter() -> None:
    some = moves("a", 3, 0.05, 0.1, 0.2)
    assert fit_unread(some) == fit_unread([replace(move, moved=-move.moved) for move in some])


def test_of_no_moves_nothing_is_learnt() -> None:
    assert fit_unread([]) == {}


@pytest.mark.parametrize(
    ("framework", "zero", "kin"),
    [
        ("torchtitan", 3, "generic-fsdp"),
        ("Megatron core", 1, "generic-megatron"),
        ("MaxText", 3, "generic-jax"),
    ],
)
def test_a_case_as_nobody_read_it_keeps_what_it_states(framework: str, zero: int, kin: str) -> None:
    fields = {"software.framework": framework, "software.year": 2025, "layout.zero": zero}
    case = build(case_document(fields))
    unread = as_unread(case)
    assert unread is not None
    assert preset_of(unread.software) == kin
    assert replace(unread.software, framework=framework) == case.software
    assert replace(unread, software=case.software) == case
    assert as_unread(unread) is None


def test_a_family_moves_by_what_its_two_predictions_are_apart(tmp_path: Path) -> None:
    """One run of each dense family whose trainer was read; whatever was measured says nothing."""
    layout = {"tp": 1, "pp": 1, "vpp": 1, "dp": 64, "zero": 3, "sequence_parallel": False, "schedule": "none"}
    dense = {"software.framework": "torchtitan", "software.year": 2025, "software.attention": "fa2"}
    dense |= {f"layout.{name}": value for name, value in layout.items()}
    dense |= {"layout.recompute": "full", "layout.precision": "bf16"}
    unread = dense | {"software.framework": "a trainer", "layout.zero": 1}
    changes = [dense | {"id": f"dense {n}", "family": "dense"} for n in range(3)]
    changes += [dense | {"model.moe": MOE} | {"id": "experts", "family": "experts"}]
    changes += [unread | {"id": "unread", "family": "unread"}]
    report = validate([write_cases(tmp_path / "cases.yaml", [case_document(one) for one in changes])], jobs=1)
    assert all(row.prediction.step_time_s for row in report.rows)
    told_again = predicted_unread(report)
    (found,) = unread_moves(told_again)
    assert found.source == "cases"
    assert found.generic == "generic-fsdp"
    told = report.rows[0].case
    as_kin = as_unread(told)
    assert as_kin is not None
    steps = [predict(one).step_time_s for one in (told, as_kin)]
    assert steps[0] is not None
    assert steps[1] is not None
    assert found.moved == pytest.approx(log(steps[0] / steps[1]))
    assert found.moved != 0.0
    doubt = report.rows[0].prediction.doubt
    assert doubt is not None
    row = SourceRow(
        name=told_again[0].row.case.id,
        source="cases",
        gpu="H100-SXM5-80GB",
        family="dense",
        error=0.05,
        sample=doubt.sample,
    )
    (again,) = unread_rows(told_again, [row, replace(row, name="another")])
    assert again.error == pytest.approx(0.05 + found.moved)
    assert again.sample != row.sample
    assert again.sample.kind.kinds["software"] == "generic-fsdp"
