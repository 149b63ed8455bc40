"""Kernels measured on a GPU that the catalogue lacks: its description says which GPU they are of."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stepsim.calibration.readers.named_gpus import agreed_gpu
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import profile_for
from stepsim.hardware.gpu import Gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Gemm
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.scenario.machine_file import gpu_of_file
from stepsim.sim.simulate import simulate

_MACHINE = "gpu: { name: my-gpu, extends: L40S, bf16_flops: 181 TFLOP/s, memory: 80 GB }\n"
_SCENARIO = """\
extends: llama3-8b-h100
cluster: { gpu: machine.yaml, gpus: 8, interconnect: nvlink-only }
model: { num_layers: 2 }
training: { global_batch: 8 }
"""


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture
def machine(tmp_path: Path) -> Gpu:
    (tmp_path / "machine.yaml").write_text(_MACHINE)
    (tmp_path / "scenario.yaml").write_text(_SCENARIO)
    return gpu_of_file(tmp_path / "machine.yaml")


def products(path: Path, gpu: Gpu, named: str, slower: float) -> Path:
    """What the GEMMs of nine shapes take on ``gpu`` at ``slower`` times the rate of its relative."""
    profile = profile_for(gpu)
    profile = replace(profile, clock_fraction=slower * profile.clock_fraction)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["family", "gpu", "dtype", "seconds", "m", "n", "k"])
        for n in (2048, 4096, 14336):
            for k in (2048, 4096, 8192):
                seconds = kernel_seconds(Gemm(m=8192, n=n, k=k), gpu, profile)
                writer.writerow(["gemm", named, "bf16", seconds, 8192, n, k])
    return path


@pytest.mark.parametrize("named", ["", "my-gpu", "L40S"])
def test_products_of_a_described_gpu_make_its_steps_more_certain(
    tmp_path: Path, machine: Gpu, named: str
) -> None:
    table, out = products(tmp_path / "k.csv", machine, named, 0.8), tmp_path / "own.profile.yaml"
    said = run("calibrate", "fit", table, "--gpu", tmp_path / "machine.yaml", "--out", out, "--replicas", 0)
    assert said.exit_code == 0, said.output
    before = simulate(load_scenario(tmp_path / "scenario.yaml"))
    after = simulate(load_scenario(tmp_path / "scenario.yaml", {"calibration": [str(out)]}))
    assert after.step_time_s > 1.02 * before.step_time_s
    assert before.interval is not None
    assert after.interval is not None
    assert any("never measured" in part.name for part in before.interval.parts)
    assert (
        after.interval.high_s / after.interval.low_s < 0.95 * before.interval.high_s / before.interval.low_s
    )


def test_a_profile_of_a_described_gpu_is_shown_against_its_points(tmp_path: Path, machine: Gpu) -> None:
    table, out = products(tmp_path / "k.csv", machine, "", 0.8), tmp_path / "own.profile.yaml"
    described = ("--gpu", tmp_path / "machine.yaml")
    assert run("calibrate", "fit", table, *described, "--out", out, "--replicas", 0).exit_code == 0
    shown = run("calibrate", "report", out, "--points", table, *described, "--json")
    assert json.loads(shown.output)["residuals"][0]["p90"] < 0.02
    unsaid = run("calibrate", "report", out, "--points", table)
    assert unsaid.exit_code == 2
    assert "--gpu" in unsaid.output


def test_collectives_of_a_described_gpu_are_fitted(tmp_path: Path, machine: Gpu) -> None:
    table, out = tmp_path / "c.csv", tmp_path / "own.profile.yaml"
    sizes = [2**power for power in range(10, 30, 2)]
    lines = [f"all_reduce,8,1,{size},{1e-5 + size / 2e10}," for size in sizes]
    table.write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    said = run("calibrate", "fit", table, "--gpu", tmp_path / "machine.yaml", "--out", out, "--json")
    part = json.loads(said.stdout)["fitted"][0]["part"]
    assert part == "all_reduce, 8 ranks, 8 domains"  # cards without NVLink: a domain each


def test_a_file_names_the_described_gpu_or_the_one_that_it_changes(machine: Gpu) -> None:
    path = Path("k.csv")
    assert agreed_gpu(path, "L40S", machine) == agreed_gpu(path, "my-gpu", machine) == machine
    assert agreed_gpu(path, None, machine) == machine
    assert agreed_gpu(path, "H100-SXM5-80GB", None) == "H100-SXM5-80GB"
    with pytest.raises(ValueError, match=r"H100-SXM5-80GB.*my-gpu"):
        agreed_gpu(path, "H100-SXM5-80GB", machine, "Tesla")


def test_a_file_without_a_gpu_is_refused(tmp_path: Path, machine: Gpu) -> None:
    table = products(tmp_path / "k.csv", machine, "", 1.0)
    (tmp_path / "host.yaml").write_text("node: { gpus: 4 }\n")
    said = run("calibrate", "fit", table, "--gpu", tmp_path / "host.yaml")
    assert said.exit_code == 2
    assert "describes no GPU" in said.output
