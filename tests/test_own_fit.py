"""A profile of one's own: the fit finds what made the data, and the file that says so is read back."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from measured_files import collectives
from typer.testing import CliRunner

from stepsim.calibration.fit.own.collectives import fit_collectives
from stepsim.calibration.fit.own.judged import held_out
from stepsim.calibration.fit.own.kernels import fit_kernels, power_limited, training_clock
from stepsim.calibration.readers.tables import read_table
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import calibrated_profile, load_profile
from stepsim.hardware.calibrated.read import read_profile_file
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.profile import GpuProfile
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Attention, Gemm, Kernel, MemoryBound
from stepsim.sim.lowering.communication import Communication
from stepsim.sim.network.group_placement import GroupPlacement
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import build_cluster, simulate

GPU = "H100-SXM5-80GB"
SCENARIO = "llama3-70b-h100"
COLUMNS = [
    "family",
    "gpu",
    "dtype",
    "seconds",
    "m",
    "n",
    "k",
    "seq_q",
    "heads",
    "head_dim",
    "direction",
    "causal",
    "hbm_bytes",
    "operation",
]


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(one) for one in arguments])


def slower(factor: float) -> GpuProfile:
    """An H100 whose kernels run at ``factor`` of the shipped best rates."""
    return replace(load_profile(GPU), clock_fraction=factor)


def table(path: Path, truth: GpuProfile, noise: float = 0.0, gpu: str = GPU) -> Path:
    """A sweep that ``truth`` would measure, as a table."""
    draw = random.Random(0)
    kernels: list[tuple[Kernel, dict[str, Any]]] = []
    shapes = product((2048, 8192), (1024, 2048, 4096, 8192, 14336), (1024, 4096, 8192))
    kernels += [(Gemm(m=m, n=n, k=k), {"family": "gemm", "m": m, "n": n, "k": k}) for m, n, k in shapes]
    for length in (1024, 4096, 16384):
        for heads in (16, 32):
            for direction in ("forward", "backward"):
                columns = {"family": "attention", "seq_q": length, "heads": heads, "head_dim": 128}
                columns |= {"direction": direction, "causal": 1}
                attention = Attention(
                    batch=1, seq_q=length, seq_kv=length, heads=heads, kv_heads=heads, head_dim=128,
                    causal=True, direction="forward" if direction == "forward" else "backward",
                )  # fmt: skip
                kernels.append((attention, columns))
    for size in (2e8, 5e8, 1e9, 2e9):
        columns = {"family": "memory", "hbm_bytes": int(size), "operation": "rms_norm"}
        kernels.append((MemoryBound(hbm_bytes=size), columns))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for kernel, columns in kernels:
            seconds = kernel_seconds(kernel, get_gpu(GPU), truth) * draw.lognormvariate(0, noise)
            writer.writerow({"gpu": gpu, "dtype": "bf16", "seconds": seconds, **columns})
    return path


@pytest.mark.slow
def test_the_fit_predicts_what_made_the_data(tmp_path: Path) -> None:
    truth = slower(0.9)
    points = read_table(table(tmp_path / "k.csv", truth, noise=0.01)).kernels
    fitted = fit_kernels(GPU, points, replicas=0)
    assert fitted.fitted == ("memory pointwise_efficiency", "gemm bf16", "attention fa2")
    assert fitted.whole_shape
    own = replace(fitted.profile, clock_fraction=1.0)
    for kernel in (Gemm(m=4096, n=6144, k=3072), Gemm(m=8192, n=1024, k=2048), MemoryBound(hbm_bytes=7e8)):
        want = kernel_seconds(kernel, get_gpu(GPU), truth)
        assert kernel_seconds(kernel, get_gpu(GPU), own) == pytest.approx(want, rel=0.06), kernel
    record = fitted.profile.gemm.provenance
    assert record.held_out_median is not None
    assert record.held_out_median < 0.05
    assert record.source == "k.csv"


@pytest.mark.slow
def test_training_keeps_its_clock_unless_the_measurements_are_slower(tmp_path: Path) -> None:
    shipped, large = load_profile(GPU), Gemm(m=8192, n=8192, k=8192)

    def in_a_step(factor: float) -> float:
        points = [
            point
            for point in read_table(table(tmp_path / "k.csv", slower(factor))).kernels
            if isinstance(point.kernels[0], Gemm)
        ]
        fitted = fit_kernels(GPU, points, replicas=0)
        assert training_clock(shipped, fitted) == fitted.profile.clock_fraction <= 1
        return kernel_seconds(large, get_gpu(GPU), fitted.profile)

    assert in_a_step(0.95) == pytest.approx(kernel_seconds(large, get_gpu(GPU), shipped), rel=0.01)
    assert in_a_step(0.6) == pytest.approx(kernel_seconds(large, get_gpu(GPU), slower(0.6)), rel=0.05)


@pytest.mark.parametrize("state", [0.0, 1.0])
def test_the_state_of_the_power_limit_is_told_by_products_that_draw_little(
    tmp_path: Path, state: float
) -> None:
    truth = replace(slower(0.97), power_limited=state)
    points = read_table(table(tmp_path / "k.csv", truth, noise=0.01)).kernels
    assert power_limited(load_profile(GPU), points, get_gpu(GPU)) == pytest.approx(state, abs=0.25)
    assert power_limited(load_profile(GPU), points[:9], get_gpu(GPU)) == 0.0


def test_what_is_too_little_is_said_and_not_fitted(tmp_path: Path) -> None:
    points = read_table(table(tmp_path / "k.csv", slower(0.9))).kernels
    few = fit_kernels(GPU, [p for p in points if isinstance(p.kernels[0], Gemm)][:6], replicas=0)
    assert few.fitted == ("gemm bf16",)
    assert not few.whole_shape
    assert few.profile.gemm.tiles == load_profile(GPU).gemm.tiles
    none = fit_kernels(GPU, [p for p in points if isinstance(p.kernels[0], Attention)][:2], replicas=0)
    assert none.fitted == ()
    assert "2 points; a fit needs" in none.notes[0]


def test_points_beyond_the_peak_are_told_and_leave_a_file_that_can_be_read(tmp_path: Path) -> None:
    sweep, out = table(tmp_path / "k.csv", slower(0.9)), tmp_path / "mine.profile.yaml"
    unmasked = tmp_path / "unmasked.csv"
    rows = list(csv.DictReader(sweep.read_text().splitlines()))
    with unmasked.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(
            {**row, "causal": 0, "seconds": float(row["seconds"]) / 2}
            for row in rows
            if row["family"] == "attention"
        )
    told = run("calibrate", "fit", unmasked, "--out", out, "--replicas", 0)
    assert "points are faster than the peak of the GPU; attention with a mask has 1" in told.output
    curve = read_profile_file(out).attention["fa2"]
    assert max(*curve.forward.values(), *curve.backward.values()) <= 1.0
    masked = fit_kernels(GPU, [p for p in read_table(sweep).kernels if isinstance(p.kernels[0], Attention)])
    assert masked.notes == ()


def test_a_family_is_on_one_side_of_the_split() -> None:
    names = [f"gemm ({i}, {j})" for i in range(20) for j in range(20)]
    assert 0.12 < sum(map(held_out, names)) / len(names) < 0.28
    assert [held_out(name) for name in names] == [held_out(name) for name in names]


@pytest.mark.slow
def test_the_command_writes_a_file_that_is_read_back(tmp_path: Path) -> None:
    kernels = table(tmp_path / "k.csv", slower(0.9), noise=0.01)
    rows = collectives(2e-5, 4e-9, 2e11)
    lines = [f"{c.kind},{c.ranks},1,{c.bytes:.0f},{c.seconds},{GPU}" for c in rows]
    (tmp_path / "c.csv").write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    out = tmp_path / "my.profile.yaml"
    done = run("calibrate", "fit", kernels, tmp_path / "c.csv", "--out", out, "--replicas", "3", "--json")
    assert done.exit_code == 0, done.stderr
    parts = {part["part"]: part for part in json.loads(done.stdout)["fitted"]}
    assert set(parts) == {
        "memory pointwise_efficiency", "gemm bf16", "attention fa2", "all_reduce, 8 ranks, 1 domains",
    }  # fmt: skip
    own = read_profile_file(out)
    assert own.gpu == GPU
    assert own.gemm is not None
    assert own.gemm.provenance.points == 30
    low, high = own.gemm.intervals["fraction bf16"]
    assert float(low) <= own.gemm.rates["bf16"].fraction <= float(high)
    profile = calibrated_profile(GPU, [str(out)])
    (curve,) = profile.collectives
    for point in rows:
        assert curve.solo_s(point.bytes) == pytest.approx(point.seconds, rel=0.02)
    assert curve.covers(1e6)
    assert not curve.covers(1e12)


@pytest.mark.slow
def test_a_simulated_step_uses_the_fitted_file(tmp_path: Path) -> None:
    out = tmp_path / "my.profile.yaml"
    run("calibrate", "fit", table(tmp_path / "k.csv", slower(0.5)), "--out", out, "--replicas", "0")
    (tmp_path / "s.yaml").write_text(f"extends: {SCENARIO}\ncalibration: [my.profile.yaml]\n")
    mine, shipped = (simulate(load_scenario(one)) for one in (tmp_path / "s.yaml", SCENARIO))
    assert mine.step_time_s > 1.2 * shipped.step_time_s
    sources = {assumption.source for assumption in mine.assumptions}
    assert "k.csv" in sources


def test_collective_curves_find_their_constants_and_need_sizes() -> None:
    rows = collectives(3e-5, 2e-9, 1e11)
    (own,), notes = fit_collectives(GPU, [*rows, *collectives(1e-5, 0, 1e11, "broadcast")[:3]], "made")
    assert own.curve.alpha_s == pytest.approx(3e-5, rel=0.05)
    assert own.curve.bytes_per_s == pytest.approx(1e11, rel=0.05)
    assert own.curve.provenance.held_out_median is not None
    assert own.curve.provenance.held_out_median < 0.02
    assert notes == ("broadcast of 8 ranks: 3 sizes; a curve needs 4",)


def test_steps_of_the_library_are_followed_and_noise_is_not() -> None:
    """A protocol that changes at 64 kB halves the time from there on: no smooth form has that."""
    smooth = collectives(2e-5, 0.0, 1e11)
    stepped = [replace(one, seconds=one.seconds * (1.0 if one.bytes < 65536 else 0.5)) for one in smooth]
    (own,), _ = fit_collectives(GPU, stepped, "made")
    assert own.curve.corrections
    for one in stepped:
        assert own.curve.solo_s(one.bytes) == pytest.approx(one.seconds, rel=1e-3)
    (own,), _ = fit_collectives(GPU, smooth, "made")
    between = [one.bytes * 2 for one in smooth[:-1]]
    for size in between:
        assert own.curve.solo_s(size) == pytest.approx(2e-5 + size / 1e11, rel=0.05)
    draw = random.Random(1)
    noisy = [replace(one, seconds=one.seconds * draw.lognormvariate(0, 0.2)) for one in smooth]
    (own,), _ = fit_collectives(GPU, noisy, "made")
    record = own.curve.provenance
    assert record.held_out_median is not None
    assert record.held_out_median > 0.02  # noise shows in what was not seen, whatever the form


def test_no_curve_is_faster_than_the_links_of_its_gpu() -> None:
    (own,), _ = fit_collectives(GPU, collectives(1e-5, 0.0, 5e12), "made")
    assert own.curve.bytes_per_s <= get_gpu(GPU).nvlink_bytes_per_s * 1.0001


def test_own_curves_of_collectives_on_the_command_line(tmp_path: Path) -> None:
    rows = collectives(2e-4, 0.0, 1e9)
    lines = [f"{c.kind},2,1,{c.bytes:.0f},{c.seconds},cpu" for c in rows]
    (tmp_path / "c.csv").write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    out = tmp_path / "p.yaml"
    assert run("calibrate", "fit", tmp_path / "c.csv", "--out", out).exit_code == 0

    def asked(*more: object) -> Any:
        return run("collective", "all_reduce", "--gpus", 2, "--calibration", out, *more)

    inside = json.loads(asked("--size", "1MB", "--json").stdout)
    assert inside["time_s"] == pytest.approx(2e-4 + 1e6 / 1e9, rel=0.02)
    assert (inside["basis"], inside["in_range"]) == ("measured range", True)
    beyond = json.loads(asked("--size", "100GB", "--json").stdout)
    assert (beyond["basis"], beyond["in_range"]) == ("extrapolated", False)
    assert "extrapolated" in asked("--size", "100GB").stdout
    for arguments, message in (
        (("--gpus", 4), "all_reduce of 4 ranks on 1 hosts was not measured; there is all_reduce of 2 on 1"),
        (("--gpu", GPU), "is a profile of cpu, not of H100-SXM5-80GB"),
        (("--algorithm", "ring"), "own curves have no picture"),
    ):
        refused = asked(*arguments)
        assert (refused.exit_code, message in refused.stderr) == (2, True), refused.stderr


def test_carried_groups_are_marked_and_follow_the_model(tmp_path: Path) -> None:
    rows = collectives(2e-5, 0.0, 1e11)
    lines = [f"{c.kind},8,1,{c.bytes:.0f},{c.seconds},{GPU}" for c in rows]
    (tmp_path / "c.csv").write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    out = tmp_path / "p.yaml"
    run("calibrate", "fit", tmp_path / "c.csv", "--out", out)
    document = json.loads(
        run("collective", "all_reduce", "--gpus", 4, "--size", "64MB", "--calibration", out, "--json").stdout
    )
    assert (document["basis"], document["in_range"]) == ("carried from 8 ranks", False)
    cluster = build_cluster(load_scenario(SCENARIO))
    curves = calibrated_profile(GPU, [str(out)]).collectives
    step = Communication(cluster=cluster, curves=curves).collective(
        "all_reduce", 64e6, GroupPlacement(ranks=4, domains=1)
    )
    assert document["time_s"] == pytest.approx(step.solo_s, rel=0.1)


def test_a_tier_that_was_not_measured_is_the_models(tmp_path: Path) -> None:
    """A profile of one host says nothing of several, and refuses nothing."""
    lines = [f"{c.kind},8,1,{c.bytes:.0f},{c.seconds},{GPU}" for c in collectives(2e-5, 0.0, 1e11)]
    (tmp_path / "c.csv").write_text("\n".join(["kind,ranks,hosts,bytes,seconds,gpu", *lines]))
    run("calibrate", "fit", tmp_path / "c.csv", "--out", tmp_path / "p.yaml")
    asked = ("collective", "all_reduce", "--gpus", 16, "--size", "64MB", "--json")
    own = json.loads(run(*asked, "--calibration", tmp_path / "p.yaml").stdout)
    assert own["basis"] == "the model: that kind and tier was not measured"
    assert own["time_s"] == json.loads(run(*asked, "--gpu", GPU).stdout)["time_s"]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda folder: (folder / "a.csv").write_text(""), "a.csv: is empty"),
        (
            lambda folder: table(folder / "a.csv", slower(1.0), gpu="cpu"),
            "nothing in these files can be fitted",
        ),
        (lambda folder: table(folder / "a.csv", slower(1.0), gpu="H10O"), "no GPU is called 'H10O'"),
        (lambda folder: (folder / "a.csv").write_text("not,a,table\n"), "lacks the columns"),
    ],
)
def test_what_cannot_be_fitted_is_refused(tmp_path: Path, prepare: Any, message: str) -> None:
    prepare(tmp_path)
    done = run("calibrate", "fit", tmp_path / "a.csv", "--out", tmp_path / "p.yaml")
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "p.yaml").exists()


def test_two_gpus_make_no_profile(tmp_path: Path) -> None:
    one = table(tmp_path / "a.csv", slower(1.0))
    other = table(tmp_path / "b.csv", slower(1.0), gpu="H200-SXM-141GB")
    done = run("calibrate", "fit", one, other, "--out", tmp_path / "p.yaml")
    assert (done.exit_code, "several GPUs cannot make one profile" in done.stderr) == (2, True)


def test_measuring_says_what_it_needs(tmp_path: Path) -> None:
    for arguments, message in (
        ((), "give --spawn N"),
        (("--spawn", 1, "--backend", "gloo"), "--spawn 1: a collective is between processes"),
        (("--spawn", 2, "--backend", "mpi"), "no backend is called 'mpi'"),
        (("--spawn", 2, "--backend", "gloo", "--kind", "allreduc"), "Did you mean all_reduce?"),
        (("--spawn", 2, "--backend", "gloo", "--scenario", SCENARIO), "has 64 GPUs, but 2 processes"),
        (("log.txt", "--spawn", 2), "LOGs are fitted, not measured"),
    ):
        done = run("calibrate", "collectives", *arguments, "--out", tmp_path / "c.csv")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
