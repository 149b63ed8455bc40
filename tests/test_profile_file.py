"""Profiles of a user's own: what they say counts, what they leave out stays, what is wrong is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused_at

from stepsim.hardware.calibrated.overlay import (
    NARROW_SHARES,
    calibrated_profile,
    load_profile,
    profile_names,
    short_names,
)
from stepsim.hardware.calibrated.read import read_profile_file
from stepsim.hardware.calibrated.schema import json_schema
from stepsim.hardware.collective_curve import CollectiveCurve
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.provenance import Provenance
from stepsim.sim.lowering.communication import Communication
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.scenario.errors import ScenarioError
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster, simulate

GPU = "H100-SXM5-80GB"
SCENARIO = "llama3-70b-h100"
WHOLE = """
profile: 1
gpu: H100-SXM5-80GB
made: {command: by hand}
clock_fraction: 0.8
kernel_latency: 2 us
memory: {stream_efficiency: 0.9, ramp: 1 us, provenance: {source: triad}}
gemm:
  rates: {bf16: {fraction: 0.7}}
  tile_overhead: 1.2 us
  intervals: {tile_overhead: [1 us, 1.5 us]}
  provenance: {source: sweep, points: 30, median_residual: 0.02, p90_residual: 0.05,
               ranges: {k: [128, 4096], flops: [1 GFLOP, 3 TFLOP]}}
collectives:
- {kind: all_reduce, ranks: 8, domains: 1, latency: 12 us, sqrt_term_at_1MB: 3 us, rate: 200 GB/s,
   sizes: [8 B, 1 GB], provenance: {source: log}}
"""


def written(folder: Path, text: str, name: str = "my.profile.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_what_a_file_states_counts_and_the_rest_stays(tmp_path: Path) -> None:
    shipped = load_profile(GPU)
    own = calibrated_profile(GPU, ["h100-sxm", str(written(tmp_path, WHOLE))])
    assert (own.clock_fraction, own.kernel_latency_s) == (0.8, 2e-6)
    assert (own.memory.stream_efficiency, own.memory.ramp_s) == (0.9, 1e-6)
    assert own.memory.pointwise_efficiency == shipped.memory.pointwise_efficiency
    assert {rate.dtype: rate.fraction for rate in own.gemm.rates}["bf16"] == 0.7
    assert {rate.dtype for rate in own.gemm.rates} == {rate.dtype for rate in shipped.gemm.rates}
    assert own.gemm.tile_overhead_s == pytest.approx(1.2e-6)
    assert own.gemm.tiles == shipped.gemm.tiles
    assert own.gemm.provenance.covers(k=200, flops=2e12)
    assert not own.gemm.provenance.covers(k=200, flops=2e13)
    # What stays as shipped keeps its speed in training, under a clock that belongs to the file's own rates.
    for mine, theirs in zip(own.attention, shipped.attention, strict=True):
        for (dim, rate), (_, before) in zip(mine.forward, theirs.forward, strict=True):
            assert rate * own.clock_fraction == pytest.approx(before * shipped.clock_fraction), dim
    (curve,) = own.collectives
    assert curve.solo_s(1e6) == pytest.approx(12e-6 + 3e-6 + 1e6 / 200e9)


@pytest.mark.parametrize("spelling", ["allreduce", "all-reduce", "AllReduce"])
def test_a_collective_goes_by_any_spelling(tmp_path: Path, spelling: str) -> None:
    path = written(tmp_path, WHOLE.replace("all_reduce", spelling))
    (curve,) = calibrated_profile(GPU, ["h100-sxm", str(path)]).collectives
    assert curve.kind == "all_reduce"


def test_the_later_entry_wins(tmp_path: Path) -> None:
    first = written(tmp_path, WHOLE)
    second = written(tmp_path, f"profile: 1\ngpu: {GPU}\nclock_fraction: 0.7\n", "b.yaml")
    assert calibrated_profile(GPU, [str(first), str(second)]).clock_fraction == 0.7
    assert calibrated_profile(GPU, [str(second), str(first)]).clock_fraction == 0.8
    assert calibrated_profile(GPU, [str(first), GPU]) == load_profile(GPU)


def test_every_short_name_is_a_shipped_profile() -> None:
    assert short_names()["h100-sxm"] == GPU
    for name, gpu in short_names().items():
        assert calibrated_profile(gpu, [name]) == load_profile(gpu)
    known = [get_gpu(name).short_name for name in gpu_names() if get_gpu(name).short_name]
    assert sorted(known) == sorted(short_names())  # each of one GPU, which has a profile


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "profile: 1"),
        ("a: [", "valid YAML"),
        ("profile: 2\ngpu: cpu\n", ":1: profile: 2 .*1"),
        ("profile: 1\ngpu: cpu\nkernel_latency: 3\n", ":3: kernel_latency: 3 "),
        ("profile: 1\ngpu: cpu\nkernel_latency: 3 GB\n", "GB measures"),
        ("profile: 1\ngpu: cpu\ngem: {}\n", ":3: gem: .*mean gemm"),
        ("profile: 1\ngpu: cpu\ngpu: cpu\n", ":3:1: 'gpu'"),
        ("profile: 1\n? [gpu, cpu]\n: 1\n", ":2:3: a key"),
        ("profile: 1\ngpu: &a [*a]\n", "contains itself"),
        (
            "profile: 1\ngpu: cpu\ngemm:\n  store_exposed: 1.5\n  provenance: {source: x}\n",
            ":4: gemm.store_exposed: 1.5 .*1",
        ),
        (
            "profile: 1\ngpu: cpu\ngemm:\n  provenance: {source: x, ranges: {flops: [1, 2]}}\n",
            "no unit",
        ),
        (WHOLE.replace("sizes: [8 B, 1 GB]", "sizes: [1 GB, 8 B]"), "sizes: the smallest"),
        (
            WHOLE.replace("sizes: [8 B, 1 GB]", "sizes: [8 B, 1 GB], corrections: [[8 B, 1], [8 B, 2]]"),
            "corrections: each",
        ),
        (WHOLE.replace("ranks: 8", "ranks: 1"), "ranks: 1 .*2"),
        (
            WHOLE.replace("latency: 12 us", "latncy: 12 us"),
            r"collectives\[0\].latncy: .*mean latency",
        ),
        (
            WHOLE.replace("{bf16: {fraction: 0.7}}", "{bf16: {fraction: 0.7, fractoin: 1}}"),
            "gemm.rates.bf16.fractoin: .*mean fraction",
        ),
        (WHOLE.replace("all_reduce", "all_reduc"), "mean all_reduce"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as refusal:
        read_profile_file(path)
    assert str(path) in str(refusal.value)


def test_a_name_of_no_catalogue_is_refused_where_the_scenario_has_another(tmp_path: Path) -> None:
    written(tmp_path, WHOLE.replace(GPU, "H100"))
    with pytest.raises(ScenarioError, match=f"H100.*{GPU}"):
        load_scenario(written(tmp_path, f"extends: {SCENARIO}\ncalibration: [my.profile.yaml]\n", "s.yaml"))


def test_a_profile_of_another_gpu_is_refused_where_the_scenario_names_it(tmp_path: Path) -> None:
    written(tmp_path, WHOLE.replace(GPU, "A100-SXM4-80GB"))
    scenario = written(tmp_path, f"extends: {SCENARIO}\ncalibration: [my.profile.yaml]\n", "s.yaml")
    with pytest.raises(ScenarioError) as refusal:
        load_scenario(scenario)
    assert "s.yaml:2:15: calibration[0]" in str(refusal.value)
    assert "H100-SXM5-80GB" in str(refusal.value)
    with refused_at("calibration[0]", "a100-sxm", "A100-SXM4-80GB"):
        load_scenario(SCENARIO, ["calibration=[a100-sxm]"])
    with refused_at("calibration[0]", "no.yaml"):
        load_scenario(SCENARIO, ["calibration=[no.yaml]"])
    with refused_at("calibration[0]", "'mine'"):
        load_scenario(SCENARIO, ["calibration=[mine]"])


def test_data_types_that_the_gpu_lacks_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE.replace(GPU, "A100-SXM4-80GB").replace("bf16:", "fp8:"))
    with pytest.raises(ValueError, match="A100-SXM4-80GB has no fp8 math"):
        calibrated_profile("A100-SXM4-80GB", [str(path)])


def test_a_profile_file_changes_the_step_as_its_numbers_say(tmp_path: Path) -> None:
    shipped = simulate(load_scenario(SCENARIO)).step_time_s
    half = load_profile(GPU).clock_fraction / 2
    written(tmp_path, f"profile: 1\ngpu: {GPU}\nclock_fraction: {half}\n")
    scenario = written(tmp_path, f"extends: {SCENARIO}\ncalibration: [my.profile.yaml]\n", "s.yaml")
    assert simulate(load_scenario(scenario)).step_time_s > 1.5 * shipped
    same = written(tmp_path, f"extends: {SCENARIO}\ncalibration: [h100-sxm]\n", "same.yaml")
    assert simulate(load_scenario(same)).step_time_s == shipped


def _curve(kind: str = "all_reduce", ranks: int = 8, domains: int = 1, **changes: Any) -> CollectiveCurve:
    curve = CollectiveCurve(
        kind=kind,
        ranks=ranks,
        domains=domains,
        alpha_s=2e-5,
        gamma_s=4e-9,
        bytes_per_s=1e11,
        low_bytes=8,
        high_bytes=1e9,
        provenance=Provenance(source="made"),
    )
    return replace(curve, **changes)


@given(
    kind=st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    ranks=st.sampled_from([2, 4, 8, 16, 64]),
    size=st.floats(1.0, 1e10),
)
def test_the_measured_group_costs_what_was_measured_and_its_links_stay(
    kind: str, ranks: int, size: float
) -> None:
    cluster = build_cluster(load_scenario(SCENARIO))
    placement = GroupPlacement(ranks=ranks, domains=max(1, ranks // 8))
    curve = _curve(kind, placement.ranks, placement.domains)
    own = Communication(cluster=cluster, curves=(curve,)).collective(kind, size, placement)
    model = Communication(cluster=cluster).collective(kind, size, placement)
    assert own.solo_s == pytest.approx(curve.solo_s(size))
    assert own.latency_s == pytest.approx(curve.alpha_s)
    assert (own.weights, own.sms, own.bytes) == (model.weights, model.sms, model.bytes)


@given(size=st.floats(1.0, 1e10), factors=st.lists(st.floats(0.3, 3.0), min_size=2, max_size=5))
def test_corrections_are_met_between_and_beyond(size: float, factors: list[float]) -> None:
    steps = tuple((8.0 * 100**i, factor) for i, factor in enumerate(factors))
    plain, curve = _curve(), _curve(corrections=steps)
    for at, factor in steps:
        assert curve.solo_s(at) == pytest.approx(factor * plain.solo_s(at))
    ratio = curve.solo_s(size) / plain.solo_s(size)
    assert min(factors) - 1e-9 <= ratio <= max(factors) + 1e-9
    assert curve.solo_s(1e14) == pytest.approx(factors[-1] * plain.solo_s(1e14))
    placement, cluster = GroupPlacement(ranks=8, domains=1), build_cluster(load_scenario(SCENARIO))
    step = Communication(cluster=cluster, curves=(curve,)).collective("all_reduce", size, placement)
    assert step.solo_s == pytest.approx(curve.solo_s(size))
    assert 0 < step.ceiling_bytes_per_s < float("inf")


def test_other_groups_are_carried_by_the_model_and_other_kinds_are_not(tmp_path: Path) -> None:
    cluster = build_cluster(load_scenario(SCENARIO))
    model = Communication(cluster=cluster)
    measured, other, size = GroupPlacement(ranks=8, domains=1), GroupPlacement(ranks=4, domains=1), 1e8
    twice = 2 * model.collective("all_reduce", size, measured).solo_s
    slow = _curve(alpha_s=1e-9, gamma_s=0.0, bytes_per_s=size / twice)
    own = Communication(cluster=cluster, curves=(slow,))
    assert own.collective("all_reduce", size, measured).solo_s == pytest.approx(twice, rel=1e-3)
    carried = own.collective("all_reduce", size, other).solo_s
    assert carried == pytest.approx(2 * model.collective("all_reduce", size, other).solo_s, rel=0.05)
    for kind, placement in (("all_gather", measured), ("all_reduce", GroupPlacement(ranks=16, domains=2))):
        assert own.collective(kind, size, placement) == model.collective(kind, size, placement)


def test_messages_follow_their_tier() -> None:
    cluster = build_cluster(load_scenario(SCENARIO))
    curve = _curve("sendrecv", 2, 2)
    own, model = Communication(cluster=cluster, curves=(curve,)), Communication(cluster=cluster)
    assert own.message(1e6, "unit").solo_s == pytest.approx(curve.solo_s(1e6))
    assert own.message(1e6, "fabric", messages=3).latency_s == pytest.approx(3 * curve.alpha_s)
    assert own.message(1e6, "domain") == model.message(1e6, "domain")


def test_the_schema_knows_every_field_and_is_json() -> None:
    schema = json_schema()
    assert set(schema["properties"]) == {
        "profile", "gpu", "made", "clock_fraction", "corun_slowdown", "step_time_fit", "clock_from_steps",
        "step_time_residual", "measured_clock_fraction", "measured_power_limited", "measured_boost",
        "measured_call", "kernel_latency", "memory", "gemm", "attention", "collectives", "steps",
    }  # fmt: skip
    assert schema["additionalProperties"] is False
    assert yaml.safe_load(yaml.safe_dump(schema)) == schema


@pytest.mark.parametrize("dtype", NARROW_SHARES)
def test_narrow_shares_are_medians_of_what_was_measured(dtype: str) -> None:
    rates = [{rate.dtype: rate for rate in load_profile(name).gemm.rates} for name in profile_names()]
    measured = [one for one in rates if dtype in one and not one[dtype].provenance.carried]
    shares = [one[dtype].fraction / one["bf16"].fraction for one in measured]
    assert NARROW_SHARES[dtype] == pytest.approx(median(shares), abs=1e-3)


@pytest.mark.parametrize("name", ["all_reduce.log", "all_reduce.txt", "kernels.csv", "trace.json.gz"])
def test_measurements_are_no_profile_and_told_what_makes_one(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text("# nThread 1 nGpus 1 minBytes 8\n 8 2 float\n", encoding="utf-8")
    with pytest.raises(ValueError, match="calibrate fit") as refusal:
        read_profile_file(path)
    assert name in str(refusal.value)
