"""``stepsim collective --cluster`` on fabrics that can be full, and what the command refuses to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stepsim.cli.main import app
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster


def collective(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["collective", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 2
    assert done.stdout == ""
    return done.stderr


def on_tree(folder: Path, kind: str, oversubscription: float, gpus: int = 64, size: str = "8GB") -> Any:
    """A collective on hosts of 8 that have a leaf each, whose uplinks are so much narrower."""
    machine = folder / f"over-{oversubscription}.yaml"
    fabric = f"{{ kind: fat-tree, nodes_per_leaf: 1, oversubscription: {oversubscription} }}"
    machine.write_text(f"extends: llama3.1-405b-16k\ncluster: {{ fabric: {fabric} }}\n", encoding="utf-8")
    return collective(kind, "--cluster", str(machine), "--gpus", str(gpus), "--size", size)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "sendrecv", "all_to_all"])
def test_narrow_uplinks_bind(kind: str, tmp_path: Path) -> None:
    """All that leaves a host leaves its leaf: its GPUs have the NICs' rate over the ratio."""
    nic = build_cluster(load_scenario("llama3.1-405b-16k")).nic_bytes_per_s_per_gpu
    sent = {"sendrecv": 1 / 8, "all_to_all": 7 / 8}.get(
        kind, 63 / 64 / 8
    )  # of the payload, by a GPU to other hosts
    for ratio in (20, 40):
        one = on_tree(tmp_path, kind, ratio)
        assert one["time_s"] == pytest.approx(8e9 * sent * ratio / nic, rel=0.01)
        assert one["binding_link"].startswith("leaf")


def test_wide_uplinks_do_not(tmp_path: Path) -> None:
    plain = collective("all_reduce", "--cluster", "llama3.1-405b-16k", "--gpus", "64", "--size", "1GB")
    assert on_tree(tmp_path, "all_reduce", 1, size="1GB") == plain
    assert on_tree(tmp_path, "all_reduce", 40, gpus=8)["binding_link"] == "nvlink"


def test_small_ones_pay_their_latency_alone(tmp_path: Path) -> None:
    small = [on_tree(tmp_path, "all_reduce", ratio, size="8B")["time_s"] for ratio in (1, 40)]
    assert small[0] == pytest.approx(small[1], rel=1e-2)


def test_too_many_pairs_are_refused(tmp_path: Path) -> None:
    machine = tmp_path / "over.yaml"
    machine.write_text(
        "extends: llama3.1-405b-16k\ncluster: { fabric: { kind: fat-tree, oversubscription: 7 } }\n",
        encoding="utf-8",
    )
    told = refused("collective", "all_to_all", "--cluster", str(machine), "--gpus", "4096")
    assert "4,096 ranks" in told


def test_a_bare_number_is_of_bytes() -> None:
    assert collective("all_reduce", "--size", "4096") == collective("all_reduce", "--size", "4096 B")


@pytest.mark.parametrize("version", ["9.9.9", "2.99", "2.10.3"])
def test_versions_that_the_model_does_not_know_are_refused(version: str) -> None:
    told = refused("collective", "all_reduce", "--nccl", version)
    assert f"--nccl {version}" in told
    assert "2.18 to 2.30" in told


def test_a_known_version_is_taken() -> None:
    assert collective("all_reduce", "--nccl", "2.26.2+cuda12.8")["kind"] == "all_reduce"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("collective", "all_reduce", "--log"), "--log"),
        (("collective", "all_reduce", "--calibration"), "--calibration"),
        (("validate", "--nccl"), ""),  # of many files the name says which
        (("validate", "--kernels"), ""),
    ],
)
def test_files_that_are_not_there_are_named_with_their_field(
    arguments: tuple[str, ...], field: str, tmp_path: Path
) -> None:
    missing = tmp_path / "missing.txt"
    assert (
        refused(*arguments, str(missing))
        == f"stepsim: {f'{field} ' * bool(field)}{missing}: there is no file of this name\n"
    )
    assert "is a folder" in refused(*arguments, str(tmp_path))
