"""What predictions are held to: ranks against scipy, halves of constants, brief steps, verdicts."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from small_scenarios import scenario
from validation_cases import case_document, write_cases

from stepsim.calibration.cases.case import Case, read_cases
from stepsim.calibration.cases.constants import (
    Constants,
    GpuConstants,
    PresetConstants,
    shipped_gpu,
    shipped_preset,
)
from stepsim.calibration.cases.gpu_left_out import kin_of
from stepsim.calibration.cases.halves import Halves, half_of, left_out, read_halves, write_halves
from stepsim.calibration.cases.to_scenario import scenario_document
from stepsim.calibration.validation.judge.doubtful import doubtful_grid
from stepsim.calibration.validation.judge.gpu_left_out import by_gpu_left_out
from stepsim.calibration.validation.judge.ranking import FEWEST_ROWS, spearman_of_pairs, sweeps
from stepsim.calibration.validation.judge.regimes import against, rated
from stepsim.calibration.validation.judge.source_left_out import by_source_left_out
from stepsim.calibration.validation.judge.targets import targets
from stepsim.calibration.validation.predict import Prediction, predict
from stepsim.calibration.validation.run import Report, ValidatedCase, configuration, validate
from stepsim.hardware.calibrated.overlay import profile_names
from stepsim.hardware.gpus import get_gpu
from stepsim.sim.brief.step import brief_step
from stepsim.sim.simulate import simulate

GPU, PRESET = "A100-SXM4-80GB", "megatron-2022-sp"
TIMES = st.lists(st.floats(1.0, 100.0), min_size=3, max_size=12, unique=True)


def shipped() -> Constants:
    """The shipped constants of the case made by hand."""
    return Constants(gpus={GPU: shipped_gpu(GPU)}, presets={PRESET: shipped_preset(PRESET)})


def case_of(tmp_path: Path, **changes: Any) -> Case:
    path = write_cases(tmp_path / "one.yaml", [case_document(changes)])
    return read_cases(path)[0]


def row_of(case: Case, predicted_s: float) -> ValidatedCase:
    prediction = Prediction(
        step_time_s=predicted_s,
        interval_s=(0.9 * predicted_s, 1.1 * predicted_s),
        memory_bytes=1.0,
        outcome="ok",
    )
    return ValidatedCase(source="a source", regime="a regime", case=case, prediction=prediction)


@given(TIMES, st.data())
def test_over_all_pairs_the_coefficient_is_spearmans(measured: list[float], data: st.DataObject) -> None:
    size = len(measured)
    predicted = data.draw(st.lists(st.floats(1.0, 100.0), min_size=size, max_size=size))
    assume(len(set(predicted)) > 1)
    found = spearman_of_pairs(measured, predicted, same=0.0)
    assert found == pytest.approx(spearmanr(measured, predicted).statistic, abs=1e-9)


@given(TIMES)
def test_the_right_order_is_one_and_the_reverse_minus_one(measured: list[float]) -> None:
    assume(max(measured) > 1.1 * min(measured))
    assert spearman_of_pairs(measured, [3 * t for t in measured]) == pytest.approx(1.0)
    assert spearman_of_pairs(measured, [-t for t in measured]) == pytest.approx(-1.0)


def test_pairs_that_measured_alike_do_not_count() -> None:
    assert spearman_of_pairs([1.0, 1.02, 2.0], [1.1, 1.0, 2.0]) == pytest.approx(1.0)
    assert spearman_of_pairs([1.0, 1.04, 2.0], [1.1, 1.0, 2.0]) == pytest.approx(0.5)
    assert spearman_of_pairs([1.0, 1.02], [1.1, 1.0]) is None


def test_a_sweep_varies_the_layout_of_one_model(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    tall = [replace(case.layout, micro_batch=n + 1) for n in range(FEWEST_ROWS)]
    rows = [
        row_of(
            replace(case, id=str(n), layout=layout, measured=replace(case.measured, step_time_s=1.0 + n)),
            20.0 - n if n < 2 else 2.0 + n,
        )
        for n, layout in enumerate(tall)
    ]
    (sweep,) = sweeps(rows, ("high",))
    assert sweep.rows == FEWEST_ROWS
    assert sweep.spearman == sweep.of_steps < 1.0
    assert sweep.best_lost == pytest.approx(
        2.0
    )  # the third is predicted fastest, and takes three times the first
    assert sweeps(rows[1:], ("high",)) == []
    assert sweeps(rows, ("medium",)) == []
    alike = [replace(row, case=replace(row.case, layout=case.layout)) for row in rows]
    assert sweeps(alike, ("high",)) == []


def test_a_factor_is_over_the_better_guess(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    rows = [
        row_of(replace(case, family=str(n), measured=replace(case.measured, step_time_s=measured)), predicted)
        for n, (measured, predicted) in enumerate([(10.0, 10.5), (20.0, 21.0), (40.0, 42.0)])
    ]
    found = against("all", "high", rated(rows))
    assert found is not None
    assert (found.cases, found.families) == (3, 3)
    assert found.simulator == pytest.approx(0.05)
    assert found.by_gpu == found.by_regime
    assert found.factor == pytest.approx(found.by_gpu / 0.05)
    assert found.better


def test_targets_say_what_was_not_measured(tmp_path: Path) -> None:
    nothing = targets(Report(rows=()))
    assert {one.holds for one in nothing} == {None}
    case = case_of(tmp_path)
    report = Report(rows=(row_of(case, 11.0),), held_out={case.id: 10.7})
    median, p90, *_ = targets(report)
    assert (median.holds, p90.holds) == (False, True)
    assert median.measured == "7.0 % (10.0 % with the shipped constants)"


def test_a_twin_that_took_twice_as_long_is_named(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    twin = replace(
        case,
        id="two",
        layout=replace(case.layout, zero=0),
        measured=replace(case.measured, step_time_s=20.0),
    )
    grid = doubtful_grid([row_of(case, 10.0), row_of(twin, 10.0)])
    assert [line[0] for line in grid.rows] == ["two"]
    assert "2.0 times as long as its twin one" in grid.rows[0][2]


def test_halves_come_back_from_their_file(tmp_path: Path) -> None:
    other = Constants(
        gpus={GPU: GpuConstants(clock_fraction=0.7, corun_slowdown=0.1)},
        presets={PRESET: PresetConstants(host_s_per_kernel=1e-5, step_fixed_s=0.01)},
    )
    halves = Halves(constants=(shipped(), other), sources={}, fitted=2, cases=4, families=3)
    write_halves(tmp_path / "h.json", halves)
    assert read_halves(tmp_path / "h.json") == halves
    assert left_out(halves, "gpt 22b") == halves.constants[1 - half_of("gpt 22b")]
    (tmp_path / "no.json").write_text('{"constants": []}')
    with pytest.raises(ValueError, match=r"no\.json: .*--save"):
        read_halves(tmp_path / "no.json")


def test_unseen_constants_predict_the_rows_of_high_trust(tmp_path: Path) -> None:
    """The shipped ones again give the same step; a slower clock a longer one; low trust is left alone."""
    small = {"layout.global_batch": 8, "model.num_layers": 12, "hardware.interconnect": "ib-hdr200-x8"}
    documents = [case_document({**small, "id": trust, "trust": trust}) for trust in ("high", "low")]
    path = write_cases(tmp_path / "a.yaml", documents)
    same = Halves(constants=(shipped(), shipped()), sources={}, fitted=1, cases=2, families=1)
    gpu = replace(shipped_gpu(GPU), clock_fraction=shipped_gpu(GPU).clock_fraction / 2)
    slow = replace(shipped(), gpus={GPU: gpu})
    report = validate([path], halves=same)
    step_s = report.rows[0].prediction.step_time_s
    assert step_s is not None
    assert report.held_out == {"high": pytest.approx(step_s, rel=1e-12)}
    slower = validate([path], halves=replace(same, constants=(slow, slow)))
    assert slower.held_out["high"] > 1.3 * step_s
    assert slower.rows[0].prediction == report.rows[0].prediction
    assert predict(report.rows[0].case, shipped()) == report.rows[0].prediction


def test_a_source_is_predicted_without_itself(tmp_path: Path) -> None:
    """By constants of all others, in an interval that knows no step of its own; medium trust, too."""
    small = {"layout.global_batch": 8, "model.num_layers": 12, "hardware.interconnect": "ib-hdr200-x8"}
    documents = [case_document({**small, "id": trust, "trust": trust}) for trust in ("high", "medium", "low")]
    path = write_cases(tmp_path / "a.yaml", documents)
    gpu = replace(shipped_gpu(GPU), clock_fraction=shipped_gpu(GPU).clock_fraction / 2)
    slow = replace(shipped(), gpus={GPU: gpu})
    halves = Halves(constants=(shipped(), shipped()), sources={"a": slow}, fitted=1, cases=2, families=1)
    report = validate([path], halves=halves)
    step_s = report.rows[0].prediction.step_time_s
    assert step_s is not None
    assert set(report.source_left_out) == {"high", "medium"}
    assert report.source_left_out["medium"] > 1.3 * step_s
    everything, *groups = by_source_left_out(report)
    assert (everything.name, everything.left_out.cases) == ("all", 2)
    assert everything.left_out.signed_median > everything.shipped.signed_median
    few = "fewer than 1,024 GPUs"
    assert {one.name for one in groups} == {
        "a",
        "dense",
        few,
        f"{GPU}, {documents[0]['layout']['precision']}, dense, {few}",
    }
    assert everything.inside == 0.0  # half the clock is missed, and a miss counts beside the width
    assert everything.score > everything.width
    assert everything.noise == 0.0  # the same measured time twice
    other = validate([path], halves=replace(halves, sources={"b": slow}))
    assert other.source_left_out["medium"] == step_s


def test_a_gpu_is_predicted_as_if_nobody_had_measured_it(tmp_path: Path) -> None:
    """Another chip's efficiencies on its own datasheet, in an interval that is wider."""
    small = {"layout.global_batch": 8, "model.num_layers": 12, "hardware.interconnect": "ib-hdr200-x8"}
    path = write_cases(tmp_path / "a.yaml", [case_document({**small, "trust": "high"})])
    halves = Halves(constants=(shipped(), shipped()), sources={}, fitted=1, cases=1, families=1)
    report = validate([path], halves=halves)
    own, other = report.rows[0].prediction, report.gpu_left_out[report.rows[0].case.id]
    assert own.interval_s is not None
    assert other.interval_s is not None
    assert own.step_time_s != other.step_time_s
    assert other.interval_s[1] / other.interval_s[0] > own.interval_s[1] / own.interval_s[0]
    everything, one = by_gpu_left_out(report)
    assert (everything.name, one.name, one.kin) == ("all", GPU, kin_of(get_gpu(GPU)).name)
    assert (one.left_out.cases, one.refused) == (1, 0)


@pytest.mark.parametrize("name", profile_names())
def test_no_gpu_stands_in_for_its_own_chip(name: str) -> None:
    gpu = get_gpu(name)
    kin = kin_of(gpu)
    assert kin.name != name
    assert kin.vendor == gpu.vendor
    if kin.architecture == gpu.architecture:  # Blackwell's two chips: one has more 4-bit math
        assert (
            kin.peak_flops["fp4"] / kin.peak_flops["bf16"] != gpu.peak_flops["fp4"] / gpu.peak_flops["bf16"]
        )


def test_releases_of_one_configuration_are_predicted_once(tmp_path: Path) -> None:
    case = case_of(tmp_path)
    later = replace(case, software=replace(case.software, framework="Megatron-LM v2.6"))
    assert configuration(later) == configuration(case)
    wider = replace(case, layout=replace(case.layout, micro_batch=2))
    assert configuration(wider) != configuration(case)


@pytest.mark.parametrize(
    "fields",
    [
        {"pp": 4, "schedule": "1f1b", "microbatches": 8, "software": "nanotron-2024", "tp": 2, "dp": 2},
        {"microbatches": 3, "software": "torchtitan-2024", "dp": 4, "zero": 3},
        {"pp": 2, "schedule": "zb-1p", "microbatches": 8, "software": "megatron-zero-bubble-2023"},
    ],
)
def test_a_brief_step_is_the_step(fields: dict[str, Any]) -> None:
    run = scenario(gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", micro_batch=1, **fields)
    brief, whole = brief_step(run), simulate(run)
    assert brief.step_time_s == whole.step_time_s
    assert brief.memory == whole.memory
    assert brief.interval == whole.interval
    assert brief.fits == whole.fits


def test_the_path_of_a_long_step_is_that_of_two_short_ones() -> None:
    run = scenario(
        gpu="H100-SXM5-80GB", interconnect="ib-ndr400-x8", micro_batch=1, pp=4, schedule="1f1b",
        microbatches=400, software="nanotron-2024", tp=2,
    )  # fmt: skip
    brief, whole = brief_step(run), simulate(run)
    assert whole.interval is not None
    assert brief.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    assert brief.interval.high_s == pytest.approx(whole.interval.high_s, rel=1e-6)
    assert math.isclose(brief.interval.low_s, whole.interval.low_s, rel_tol=1e-6)


def test_aleph_alphas_trainer_cuts_all_its_modules_alike(tmp_path: Path) -> None:
    software = {"software.framework": "Aleph Alpha in-house Megatron-style", "software.year": 2023}
    layout = {"layout.vpp": 1, "layout.schedule": "1f1b", "model.num_layers": 80}
    case = case_of(tmp_path, **software, **layout)
    assert scenario_document(case)["parallelism"]["stage_split"] == [20, 21, 21, 18]
    deep = replace(case, layout=replace(case.layout, pp=8, tp=4))
    assert scenario_document(deep)["parallelism"]["stage_split"] == [10, 11, 11, 10, 10, 10, 10, 8]
    alone = replace(case, layout=replace(case.layout, pp=1, dp=8))
    assert scenario_document(alone)["parallelism"]["stage_split"] == "uniform"
    other = case_of(tmp_path, **layout)
    assert scenario_document(other)["parallelism"]["stage_split"] == "uniform"
