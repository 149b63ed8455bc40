"""Measuring end to end: on this CPU, and the GPU's way of it on a make-believe GPU.

The make-believe one runs tensors of device cuda on the CPU and kernels in Triton's interpreter; its events
take the time of the clock. It shows that every call of the GPU's path is there, not that times are right.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from interpreted import load_torch
from typer.testing import CliRunner

from stepsim.calibration.measure import device as devices
from stepsim.calibration.measure import points, timing
from stepsim.calibration.measure.device import Device, find_device
from stepsim.calibration.measure.kernel_csv import append_row, read_rows
from stepsim.calibration.measure.layer import LayerOp, measure_layer
from stepsim.calibration.measure.nvml import Reading
from stepsim.calibration.measure.points import FAMILIES
from stepsim.calibration.measure.session import _origin, measure, measure_point
from stepsim.cli.main import app
from stepsim.kernels.kernel import Attention, Gemm, MemoryBound

pytestmark = pytest.mark.torch

ORIGIN = {"stepsim": "0", "command": "a test"}
TINY = replace(
    points.CPU,
    dtypes=("fp32",),
    tokens=(16, 32),
    weights=((48, 32), (32, 32)),
    shards=(1,),
    attention_tokens=32,
    sequences=(32,),
    widths=(32,),
    rows=(4,),
    vocabularies=(64,),
    streams=(256,),
)


@pytest.fixture(scope="module")
def torch() -> Any:
    return load_torch()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, torch: Any) -> None:
    """Tiny sweeps, and no time spent on any point."""
    monkeypatch.setattr(points, "CPU", TINY)
    monkeypatch.setattr(
        points, "GPU", replace(TINY, fused=("triton", "torch"), attention=("fa2",), copy_blocks=(2,))
    )
    time_cpu = timing._time_cpu
    monkeypatch.setattr(timing, "_time_cpu", lambda run, target_s: time_cpu(run, 0.001))


def session(device: Device, path: Path, **options: Any) -> Any:
    told: list[str] = []
    chosen: dict[str, Any] = {
        "budget_s": 600.0,
        "families": FAMILIES,
        "origin": ORIGIN,
        "say": told.append,
    } | options
    return measure(device, path, **chosen)


@pytest.mark.usefixtures("quick")
def test_a_sweep_on_this_cpu_goes_on_where_it_stopped(tmp_path: Path) -> None:
    here, path = find_device("cpu"), tmp_path / "kernels.csv"
    first = session(here, path, most=7)
    assert (first.measured, first.before, first.failed) == (7, 0, ())
    none = session(here, path, budget_s=0.0)
    assert (none.measured, none.before, none.left) == (0, 7, first.left)
    rest = session(here, path)
    assert (rest.before, rest.left, rest.failed) == (7, 0, ())
    rows = read_rows([path])
    assert len({row.id for row in rows}) == len(rows) == 7 + rest.measured
    assert {row.columns["family"] for row in rows} == set(FAMILIES) - {"triton"}
    for row in rows:
        assert row.columns["date"].endswith("Z")
        assert row.columns["command"] == "a test"
        assert row.columns["device"] == here.name
        assert row.columns["gpu"] == "cpu"
        assert float(row.columns["p10_s"]) <= row.seconds <= float(row.columns["p90_s"]) * (1 + 1e-4)
    for corun in (row.columns for row in rows if row.columns["family"] == "corun"):
        assert float(corun["alone_s"]) > 0
        assert float(corun["beside_bytes_per_s"]) > 0


@pytest.mark.usefixtures("quick")
def test_another_devices_file_is_refused(tmp_path: Path) -> None:
    here, path = find_device("cpu"), tmp_path / "kernels.csv"
    session(here, path, most=1)
    with pytest.raises(ValueError, match=r"device .*--out"):
        session(replace(here, name="NVIDIA H100 80GB HBM3"), path)


def test_unknown_devices_are_refused(torch: Any) -> None:
    with pytest.raises(ValueError, match="known: cuda, cpu"):
        find_device("tpu")
    with pytest.raises(ValueError, match="H100-SXM5-80GB"):
        find_device("cpu", gpu="H100-SXM-80GB")
    with pytest.raises(ValueError, match="no GPU"):
        find_device("cpu", gpu="H100-SXM5-80GB")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no GPU"):
            find_device("cuda")


@pytest.mark.usefixtures("quick")
def test_the_command_measures_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "out" / "kernels.csv"
    command = [
        "calibrate",
        "kernels",
        "--device",
        "cpu",
        "--only",
        "gemm",
        "--budget",
        "1min",
        "--out",
        str(path),
    ]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    assert "measured" in done.stdout
    document = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert document["before"] == len(read_rows([path])) > 0
    assert document["left"] == 0


# A make-believe GPU ---------------------------------------------------------------------------------------


class Event:
    """A CUDA event whose time is the clock's when it is recorded."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = perf_counter()

    def elapsed_time(self, end: Event) -> float:
        return max(1e-3, (end.at_s - self.at_s) * 1e3)

    def query(self) -> bool:
        return False


class Stream:
    """A stream on which all has been done already."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait_event(self, event: Event) -> None: ...

    def synchronize(self) -> None: ...


class Clock:
    """A driver's library that knows the clock alone."""

    def read(self) -> Reading:
        return Reading(sm_clock_hz=1.5e9)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, torch: Any) -> Device:
    """A device of kind cuda whose tensors lie in the host's memory."""

    def here(make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: make(*args, **{k: v for k, v in options.items() if k != "device"})

    for name in ("empty", "zeros", "ones", "randn", "randint"):
        monkeypatch.setattr(torch, name, here(getattr(torch, name)))
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(devices, "_nvml", Clock)
    monkeypatch.setattr(timing, "_FLUSH_BYTES", 1024)
    for limit, runs in (("_WARM_UP_RUNS", 0), ("_MIN_RUNS", 1), ("_MAX_RUNS", 1)):
        monkeypatch.setattr(timing, limit, runs)
    monkeypatch.setattr(timing, "_TINY_LAUNCHES", 3)
    monkeypatch.setattr("stepsim.calibration.measure.session._COPY_BYTES", {"cuda": 4096})
    return replace(find_device("cpu"), kind="cuda", name="make-believe", gpu="H100-SXM5-80GB", sram_bytes=2e5)


@pytest.mark.usefixtures("quick")
def test_every_kind_of_point_runs_the_gpus_way(gpu: Device, tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    # One of each: the interpreter is slow.
    kinds = {
        (p.operation, p.implementation, getattr(p.kernel, "direction", "")): p for p in points.sweep("cuda")
    }
    assert len(kinds) > 25
    for point in kinds.values():
        if point.implementation != "fa2":  # torch's CPU build may lack that library
            append_row(path, measure_point(point, gpu) | _origin(gpu) | ORIGIN)
    rows = read_rows([path])
    assert {row.id for row in rows} == {p.id for p in kinds.values() if p.implementation != "fa2"}
    assert {row.columns["gpu"] for row in rows} == {"H100-SXM5-80GB"}
    assert all(row.seconds > 0 for row in rows)
    clocks = {row.columns["sm_clock_hz"] for row in rows if row.columns["family"] != "launch"}
    assert clocks == {"1500000000"}


@pytest.mark.usefixtures("quick")
def test_a_layer_runs_the_gpus_way(gpu: Device) -> None:
    attention = Attention(
        batch=1, seq_q=32, seq_kv=32, heads=2, kv_heads=1, head_dim=16, causal=True, dtype="fp32"
    )
    kernels: dict[str, Any] = {
        "qkv": Gemm(m=32, n=16, k=16, dtype="fp32", out_bytes=4),
        "attention": attention,
        "attention backward": replace(attention, direction="backward"),
        "rope": MemoryBound(hbm_bytes=4096.0, launches=3),
        "rope of many sines": MemoryBound(hbm_bytes=4096.0, instructions=1e6),
    }
    ops = [
        LayerOp(name=name, direction="forward", kernel=kernel, predicted_s=1e-5, dtype="fp32")
        for name, kernel in kernels.items()
    ]
    norm = replace(
        ops[0], name="norm", kernel=MemoryBound(hbm_bytes=1024.0), operation="rms_norm", rows=4, columns=32
    )
    backward = replace(norm, name="norm backward", operation="rms_norm_backward", direction="backward")
    found = {one.op.name: one for one in measure_layer([*ops, norm, backward, norm], gpu, lambda _: None)}
    assert found["norm"].ran == "triton rms_norm"
    assert found["norm backward"].ran == "triton rms_norm_backward"
    assert found["rope"].ran == "3 copies of the same bytes"
    assert found["rope of many sines"].ran == "a copy of the same bytes, not its instructions"
    assert found["qkv"].ran == "cuBLAS"
    assert found["qkv"].sm_clock_hz == 1.5e9
    assert all(one.measured_s for name, one in found.items() if "attention" not in name)


# A layer on this CPU ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_a_layer_is_measured_beside_its_prediction() -> None:
    scenario = ["llama3-8b-h100", "--set", "training.seq_length=16", "--set", "training.precision=fp32"]
    done = CliRunner().invoke(app, ["calibrate", "layer", *scenario, "--device", "cpu", "--json"])
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["gpu"].startswith("H100")
    for one in document["kernels"]:
        assert one["measured_s"] > 0
        assert one["predicted_s"] > 0
        assert one["error"] == pytest.approx(one["predicted_s"] / one["measured_s"] - 1)
    parts = {one["part"]: one for one in document["totals"]}
    assert parts["layer"]["measured_s"] == pytest.approx(
        parts["forward"]["measured_s"] + parts["backward"]["measured_s"]
    )
    assert parts["layer"]["measured_s"] == pytest.approx(
        sum(one["measured_s"] for one in document["kernels"])
    )


def test_a_layer_that_is_too_large_for_a_cpu_is_refused(torch: Any) -> None:
    done = CliRunner().invoke(app, ["calibrate", "layer", "llama3.1-405b-16k", "--device", "cpu"])
    assert done.exit_code == 2
    assert "--set training.seq_length=128" in done.stderr
