"""What a profile rests on and does not cover: nothing measured is asked for again, all points are drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from drawn import lines, marks, words
from typer.testing import CliRunner

from stepsim.calibration.validation.calibration_picture import CurvePoints, calibration_svg
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import calibrated_profile
from stepsim.sim.evidence.coverage import coverage
from stepsim.sim.lowering.lower import lower
from stepsim.sim.report.drawing.chart import AMBER, BLUE
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster

SCENARIO = "llama3-70b-h100"
PROFILE = """profile: 1
gpu: H100-SXM5-80GB
gemm:
  rates: {bf16: {fraction: 0.7}}
  provenance: {source: mine, points: 30, median_residual: 0.02,
               ranges: {narrow: [1, 1000000], k: [1, 1000000], flops: [1 FLOP, 1 PFLOP]}}
collectives:
- {kind: all_gather, ranks: 8, domains: 1, latency: 12 us, sqrt_term_at_1MB: 3 us, rate: 300 GB/s,
   sizes: [8 B, 10 GB], provenance: {source: log, median_residual: 0.03}}
- {kind: reduce_scatter, ranks: 8, domains: 1, latency: 12 us, sqrt_term_at_1MB: 3 us, rate: 300 GB/s,
   sizes: [8 B, 1 kB], provenance: {source: log}}
"""
POINTS = (
    "family,gpu,dtype,seconds,m,n,k\n"
    "gemm,H100-SXM5-80GB,bf16,0.0002,4096,4096,4096\ngemm,H100-SXM5-80GB,bf16,0.0004,8192,4096,4096\n"
)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["calibrate", "report", *map(str, arguments)])


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "my.profile.yaml"
    path.write_text(PROFILE)
    return path


def test_what_is_outside_is_named_with_why_and_how(profile: Path) -> None:
    document = json.loads(run(profile, SCENARIO, "--json").stdout)
    outside = document["outside"]
    assert document["inside"] > 0
    assert not any(one["kind"] == "gemm" for one in outside)
    assert not any(one["kind"] == "all_gather" and one["ranks"] == 8 for one in outside)
    scatters = {one["outside"] for one in outside if one["kind"] == "reduce_scatter" and one["ranks"] == 8}
    assert scatters == {"measured from 8 to 1000 B"}
    assert {one["outside"] for one in outside if one["kind"] == "sendrecv"} == {"not measured: as shipped"}
    kernels, torchrun, *logs, fit = document["commands"]
    assert kernels.startswith("stepsim calibrate kernels --only memory")
    assert "--only gemm" not in kernels
    assert "--kind sendrecv" in torchrun
    assert any(log.startswith("mpirun -np 8 reduce_scatter_perf") for log in logs)
    assert not any(log.startswith("mpirun -np 8 all_gather_perf") for log in logs)
    assert fit.startswith("stepsim calibrate fit")


def test_coverage_has_every_kernel_and_communication_of_the_step(profile: Path) -> None:
    scenario = load_scenario(SCENARIO)
    own = calibrated_profile(scenario.cluster.gpu_name, [str(profile)])
    plan = lower(scenario, build_cluster(scenario), profile=own).plan
    found = coverage(plan)
    assert len(found) == len(plan.kernels) + len(plan.communication.asked)
    assert [one.seconds for one in found] == sorted((one.seconds for one in found), reverse=True)
    assert {one.kind for one in found} >= {"gemm", "attention", "memory", "all_gather", "sendrecv"}


def test_points_have_residuals_and_a_picture(profile: Path, tmp_path: Path) -> None:
    points, svg = tmp_path / "k.csv", tmp_path / "r.svg"
    points.write_text(POINTS)
    done = run(profile, "--points", points, "--svg", svg, "--json")
    assert done.exit_code == 0, done.stderr
    (row,) = json.loads(done.stdout)["residuals"]
    assert (row["part"], row["points"]) == ("gemm", 2)
    assert len(marks(svg.read_text(), BLUE)) == 2 + 1  # two points, one entry of the legend


def test_a_shipped_profile_is_reported_too() -> None:
    document = json.loads(run("h100-sxm", SCENARIO, "--json").stdout)
    assert document["gpu"] == "H100-SXM5-80GB"
    gemms = [one for one in document["outside"] if one["kind"] == "gemm"]
    assert not any("carried" in one["outside"] for one in gemms)  # H100's GEMMs were measured


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("b200-sxm", SCENARIO), "is the profile of B200-SXM-180GB, but the cluster's gpu is H100-SXM5-80GB"),
        (("h100",), "h100: give a SCENARIO to look for in it, or measurements beside it with --points"),
        (
            ("a100", SCENARIO),
            "no profiled GPU is called 'a100'. Did you mean A100-SXM4-80GB?",
        ),  # of which three
        (("nonesuch",), "no profiled GPU is called 'nonesuch'"),
        (("a100-sxm", "--points", "k.csv"), "is of H100-SXM5-80GB, not of A100-SXM4-80GB"),
        (("h100-sxm", "--svg", "r.svg"), "needs measured points"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("k.csv").write_text(POINTS)
    done = run(*arguments)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_the_picture_is_the_same_every_time_and_shows_all() -> None:
    curve = CurvePoints(
        name="all_reduce <8>", seconds=lambda s: 1e-5 + s / 1e9, points=[(8.0, 1e-5), (1e6, 1e-3)]
    )
    picture = calibration_svg("t & u", {"gemm": [(1e-4, 1.1e-4)], "attention": [(2e-3, 1e-3)]}, [curve])
    again = calibration_svg("t & u", {"gemm": [(1e-4, 1.1e-4)], "attention": [(2e-3, 1e-3)]}, [curve])
    assert picture == again
    assert len(marks(picture, BLUE)) == 3 + 2  # a kernel, the curve's two points; two legends
    assert len(marks(picture, AMBER)) == 1 + 1
    assert {"gemm", "attention", "all_reduce <8>", "t & u"} <= set(words(picture))
    (curve_line,) = lines(picture, BLUE)
    assert len(curve_line) > 10
