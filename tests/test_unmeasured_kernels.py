"""A GPU whose kernels nobody measured, and what curves and steps of one's own take away of its doubt."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stepsim.calibration.fit.own.steps import MeasuredRun, fit_own_steps
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.hardware.profile import GpuProfile, Provenance
from stepsim.sim.brief.step import Brief, brief_step
from stepsim.sim.evidence.interval import interval_of
from stepsim.sim.evidence.measured_steps import measured_steps
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.models import Scenario
from stepsim.sim.simulate import build_cluster

GPU = "H20-96GB"
OWN = Provenance(source="mine.csv", points=32, median_residual=0.01)


def job() -> Scenario:
    changes = {"cluster.gpu": GPU, "model.num_layers": 4, "training.global_batch": 32}
    return load_scenario("llama3-8b-h100", changes)


def profile() -> GpuProfile:
    scenario = job()
    return calibrated_profile(build_cluster(scenario).gpu, scenario.calibration)


def width(step: Brief) -> float:
    found = interval_of(step.step_time_s, step.doubt, measured_steps())
    return math.log(found.high_s / found.low_s)


def with_own_products(shipped: GpuProfile) -> GpuProfile:
    rates = tuple(
        replace(rate, provenance=OWN) if rate.dtype == "bf16" else rate for rate in shipped.gemm.rates
    )
    return replace(shipped, gemm=replace(shipped.gemm, rates=rates, provenance=OWN))


def with_own_attention(shipped: GpuProfile) -> GpuProfile:
    return replace(shipped, attention=tuple(replace(curve, provenance=OWN) for curve in shipped.attention))


def test_curves_of_ones_own_say_what_nobody_measured() -> None:
    shipped = profile()
    none, products = brief_step(job(), shipped), brief_step(job(), with_own_products(shipped))
    whole = brief_step(job(), with_own_attention(with_own_products(shipped)))
    assert none.doubt.kernels is not None
    assert products.doubt.kernels is not None
    left = products.doubt.kernels.sigma / none.doubt.kernels.sigma
    assert 0.0 < left < 0.3  # the share of attention, whose curve is carried
    assert whole.doubt.kernels is None
    assert width(whole) < width(products) < width(none)


def test_a_type_that_was_not_measured_is_still_in_doubt() -> None:
    scenario = job().with_({"training.precision": "fp8"})
    step = brief_step(scenario, with_own_attention(with_own_products(profile())))
    assert step.doubt.kernels is not None


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.25])
def test_a_measured_step_resolves_the_kernels_of_its_gpu(factor: float) -> None:
    before = brief_step(job(), profile())
    found = fit_own_steps([MeasuredRun(name="mine", scenario=job(), step_time_s=factor * before.step_time_s)])
    (after,) = found.after
    assert after.step_time_s == pytest.approx(factor * before.step_time_s, rel=0.03)
    assert found.doubtful == ()
    assert width(after) < width(before) / 3


def test_what_a_step_leaves_open_of_a_gpu_is_more_where_nobody_measured_its_kernels() -> None:
    before = brief_step(job(), profile())
    found = fit_own_steps([MeasuredRun(name="mine", scenario=job(), step_time_s=before.step_time_s)])
    other = job().with_({"training.precision": "fp32"})  # less of it is GEMMs of the type that was measured
    step = brief_step(other, replace(profile(), steps=found.factors))
    shown = tuple(cause for cause in step.doubt.causes if cause is not step.doubt.kernels)
    elsewhere = replace(step, doubt=replace(step.doubt, causes=shown, kernels=None))
    assert width(elsewhere) < width(step)


@pytest.mark.parametrize("gpu", ["H100-SXM5-80GB", "H200-SXM-141GB", "H800-SXM5-80GB"])
def test_gpus_that_were_measured_stay_as_they_are(gpu: str) -> None:
    """Or whose curves are carried from the same chip."""
    changes = {"cluster.gpu": gpu, "model.num_layers": 4, "training.global_batch": 32}
    scenario = load_scenario("llama3-8b-h100", changes)
    shipped = calibrated_profile(build_cluster(scenario).gpu, scenario.calibration)
    doubt = brief_step(scenario, shipped).doubt
    assert doubt.kernels is None
    spread = measured_steps().sources
    assert spread.of_kernels(doubt.kernels_sigma) is spread


def test_steps_of_a_gpu_of_ones_own_calibrate_it(tmp_path: Path) -> None:
    gpu = {"name": "my-gpu", "extends": "H200", "bf16_flops": "148 TFLOP/s", "memory_bandwidth": "4 TB/s"}
    document = {"extends": "llama3-8b-h100", "model": {"num_layers": 4}, "cluster": {"gpu": gpu}}
    document["training"] = {"global_batch": 32}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    before = brief_step(load_scenario(tmp_path / "job.yaml"))
    took = 1.2 * before.step_time_s
    run = {"scenario": "job.yaml", "measured": {"step_time_s": took}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(run))
    out = str(tmp_path / "steps.profile.yaml")
    done = CliRunner().invoke(app, ["calibrate", "steps", "--own", str(tmp_path / "run.yaml"), "--out", out])
    assert done.exit_code == 0, done.output
    after = brief_step(load_scenario(tmp_path / "job.yaml", {"calibration": [out]}))
    assert after.step_time_s == pytest.approx(took, rel=0.03)
