"""What calibration measures and writes, without torch: sweeps, the CSV, devices, a layer as a plain list."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from stepsim.calibration.measure.kernel_csv import (
    COLUMNS,
    append_row,
    kernel_columns,
    read_rows,
    triton_against_torch,
)
from stepsim.calibration.measure.nvml import Nvml, Reading
from stepsim.calibration.measure.points import FAMILIES, Point, memory_kernel, sweep
from stepsim.calibration.measure.timing import timing
from stepsim.calibration.readers.foreign.gpu_named import _NAMES, gpu_named
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Attention, Gemm, MemoryBound
from stepsim.kernels.run.norm import norm_cost
from stepsim.scenarios import __file__ as scenarios_file
from stepsim.sim.lowering.layer_kernels import layer_kernels
from stepsim.sim.scenario.load import load_scenario

POINTS = {kind: list(sweep(kind, fp8=kind == "cuda")) for kind in ("cuda", "cpu")}
SCENARIOS = sorted(path.stem for path in Path(scenarios_file).parent.glob("*.yaml"))

# Sweeps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POINTS)
def test_points_have_names_of_their_own_and_an_order(kind: Any) -> None:
    points = POINTS[kind]
    assert len({point.id for point in points}) == len(points)
    assert [point.id for point in sweep(kind, fp8=kind == "cuda")] == [point.id for point in points]
    # A short budget measures some of everything.
    families = set(FAMILIES) - ({"triton"} if kind == "cpu" else set())
    assert {point.family for point in points[: len(families)]} == families
    first = Counter(point.operation for point in points[:100])
    assert len(first) >= 10


def test_every_point_for_a_gpu_has_a_price() -> None:
    gpu, profile = get_gpu("H100-SXM5-80GB"), load_profile("H100-SXM5-80GB")
    assert all(kernel_seconds(point.kernel, gpu, profile) > 0 for point in POINTS["cuda"])


def test_training_shapes_are_in_the_sweep() -> None:
    kernels = {point.kernel for point in POINTS["cuda"]}
    assert Gemm(m=8192, n=28672, k=4096) in kernels  # Llama 3.1 8B, both branches of the MLP
    assert Gemm(m=8192, n=10240 // 8, k=8192) in kernels  # 70B's QKV on one of eight ranks
    assert Gemm(m=10240 // 8, n=8192, k=8192) in kernels  # and its weight gradient
    dims = {kernel.head_dim for kernel in kernels if isinstance(kernel, Attention)}
    assert dims == {64, 128, 256}


@given(st.sampled_from(FAMILIES), st.sampled_from(("cuda", "cpu")))
def test_families_can_be_chosen(family: str, kind: Any) -> None:
    assert {point.family for point in sweep(kind, families=[family])} <= {family}
    assert any(sweep("cuda", families=[family]))


def test_an_unknown_family_or_operation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gemms.*known: gemm, attention"):
        next(sweep("cpu", families=["gemms"]))
    with pytest.raises(ValueError, match="'dropout'"):
        memory_kernel("dropout", 1, 1, "bf16", fused=True)


# The CSV --------------------------------------------------------------------------------------------------


def line(point: Point, **changes: object) -> dict[str, object]:
    columns: dict[str, object] = {
        "id": point.id,
        "family": point.family,
        "operation": point.operation,
        "implementation": point.implementation,
        "shapes": point.shapes,
        "dtype": point.dtype,
        **kernel_columns(point.kernel),
        "seconds": 1.25e-4,
        "gpu": "H100-SXM5-80GB",
        "device": "NVIDIA H100 80GB HBM3",
    }
    return columns | changes


@pytest.mark.parametrize("kind", POINTS)
def test_what_is_written_is_read(kind: str, tmp_path: Path) -> None:
    path, points = tmp_path / "kernels.csv", POINTS[kind][:400]
    for point in points:
        append_row(path, line(point))
    rows = read_rows([path])
    assert [row.id for row in rows] == [point.id for point in points]
    for row, point in zip(rows, points, strict=True):
        assert row.seconds == pytest.approx(1.25e-4)
        assert row.flops == pytest.approx(point.kernel.flops, rel=1e-5)
        assert row.hbm_bytes == pytest.approx(point.kernel.hbm_bytes, rel=1e-5)
        for name, value in kernel_columns(point.kernel).items():
            if isinstance(value, int):
                assert int(row.columns[name]) == value
        assert row.columns["family"] == point.family
        assert row.columns["shapes"] == point.shapes
        assert row.columns["gpu"] == "H100-SXM5-80GB"


def test_triton_is_held_beside_torch_at_equal_shapes(tmp_path: Path) -> None:
    path = tmp_path / "kernels.csv"
    points = list(sweep("cuda", families=["gemm", "triton"]))
    torch_points = [point for point in points if point.family == "gemm"][:6]
    ours = {point.shape: point for point in points if point.id.startswith("gemm-triton-")}
    for number, point in enumerate(torch_points, 1):
        append_row(path, line(point, seconds=1e-3))
        append_row(path, line(ours[point.shape], seconds=1e-3 * number))
    append_row(path, line(ours["m1024-n4096-k4096"], seconds=1.0))  # nothing beside it
    (found,) = triton_against_torch(read_rows([path]))
    assert (found.operation, found.implementation, found.shapes) == ("gemm", "torch", 6)
    assert (found.low, found.high) == (pytest.approx(1 / 6), 1.0)
    assert found.median == pytest.approx((1 / 3 + 1 / 4) / 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": "fast"}, r"kernels.csv:2: .*fast"),
        ({"seconds": -1.0}, "kernels.csv:2: seconds: '-1'"),
        ({"flops": ""}, r"kernels.csv:2: .*''"),
    ],
)
def test_a_corrupted_line_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    path = tmp_path / "kernels.csv"
    append_row(path, line(next(sweep("cuda", families=["gemm"])), **changes))
    with pytest.raises(ValueError, match=message):
        read_rows([path])


def test_the_fits_reader_reads_what_is_written(tmp_path: Path) -> None:
    tables = pytest.importorskip("stepsim.calibration.readers.tables", reason="no reader of tables here")
    path, points = tmp_path / "kernels.csv", POINTS["cuda"][:200]
    for point in points:
        append_row(path, line(point))
    measured = tables.read_table(path)
    fitted = [point for point in points if point.family in ("gemm", "attention", "memory")]
    assert measured.gpu == "H100-SXM5-80GB"
    assert [one.id for one in measured.kernels] == [point.id for point in fitted]
    for one, point in zip(measured.kernels, fitted, strict=True):
        if not isinstance(point.kernel, MemoryBound):
            assert one.kernels == (point.kernel,)
        assert one.family == point.shapes


def test_files_that_hold_no_measurements_are_refused(tmp_path: Path) -> None:
    empty, header, other = (tmp_path / name for name in ("empty.csv", "header.csv", "other.csv"))
    empty.touch()
    header.write_text(",".join(COLUMNS) + "\n")
    other.write_text("shape,us\n1,2\n")
    with pytest.raises(ValueError, match=r"empty\.csv:"):
        read_rows([empty])
    with pytest.raises(ValueError, match="no measurements"):
        read_rows([header])
    with pytest.raises(ValueError, match="columns id, family"):
        read_rows([other])
    with pytest.raises(ValueError, match="columns: speed"):
        append_row(other, {"speed": 1})


# Devices --------------------------------------------------------------------------------------------------


def test_devices_are_found_in_the_catalogue() -> None:
    assert {name for _, name in _NAMES if name} <= set(gpu_names())
    assert all(gpu_named(name) == name for name in gpu_names())


class Library:
    """A driver's library with one GPU."""

    def __init__(self, *, broken: bool = False) -> None:
        self.broken = broken

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 9 if self.broken else 0

    def nvmlDeviceGetHandleByUUID(self, uuid: ctypes.c_char_p, handle: Any) -> int:  # noqa: N802
        return 0 if uuid.value == b"GPU-1" else 2

    def nvmlSystemGetDriverVersion(self, text: Any, size: int) -> int:  # noqa: N802
        text.value = b"570.1"
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, which: int, value: Any) -> int:  # noqa: N802
        value._obj.value = 1755 if which == 1 else 0
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:  # noqa: N802
        value._obj.value = 650_000
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, which: int, value: Any) -> int:  # noqa: N802
        return 3  # not supported


def test_nvml_reads_what_there_is() -> None:
    found = Nvml("GPU-1", Library())
    assert found.read() == Reading(sm_clock_hz=1.755e9, power_w=650.0, temperature_c=None)
    assert found.driver == "570.1"
    for silent in (Nvml("GPU-2", Library()), Nvml("GPU-1", Library(broken=True))):
        assert silent.read() == Reading()
        assert silent.driver == ""


@given(st.lists(st.floats(1e-9, 10.0), min_size=1))
def test_a_timing_is_ordered(seconds: list[float]) -> None:
    found = timing(seconds)
    assert min(seconds) <= found.p10_s <= found.median_s * (1 + 1e-12)
    assert found.median_s <= found.p90_s * (1 + 1e-12) or found.runs < 4
    assert found.runs == len(seconds)


# A layer ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_layer_is_all_its_kernels(name: str) -> None:
    scenario = load_scenario(name, ["training.recompute=none"])
    model, par, training = scenario.model, scenario.parallelism, scenario.training
    kernels = layer_kernels(scenario)
    assert [key for key, _ in itertools.groupby(one.direction for one in kernels)] == ["forward", "backward"]
    assert all(one.seconds > 0 for one in kernels)
    if model.moe is not None:
        return  # the closed form is that of a dense layer
    matrices = [one.kernel for one in kernels if isinstance(one.kernel, Gemm) and one.kernel.batch == 1]
    gates = 2 if model.mlp == "swiglu" else 1
    width = (2 * model.num_attention_heads + 2 * model.num_query_groups) * model.kv_channels
    weights = model.hidden_size * (width + (gates + 1) * model.ffn_hidden_size) / par.tp
    tokens = training.micro_batch * training.seq_length / par.cp
    assert sum(kernel.flops for kernel in matrices) == pytest.approx(6 * weights * tokens, rel=1e-9)
    assert {one.operation.removesuffix("_backward") for one in kernels} <= {
        *("rms_norm", "layer_norm", "swiglu", "gelu", "")
    }


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2-lite", "gpt-oss-20b"])
def test_a_layer_with_experts_is_one_of_the_kind_that_the_model_has_most(tmp_path: Path, name: str) -> None:
    path = tmp_path / "experts.yaml"
    path.write_text(f"""
model: {name}
cluster: {{ gpu: H100-SXM5-80GB, gpus: 8 }}
training: {{ global_batch: 8, micro_batch: 1, seq_length: 4096, precision: bf16 }}
software: nemo-2025
""")
    scenario = load_scenario(str(path))
    kernels = layer_kernels(scenario)
    grouped = [one.kernel for one in kernels if isinstance(one.kernel, Gemm) and one.kernel.batch > 1]
    moe = scenario.model.moe
    assert moe is not None
    # Two GEMMs forward, four backward, each over all experts.
    assert [kernel.batch for kernel in grouped] == [moe.num_experts] * 6
    assert not any(one.operation.startswith(("swiglu", "gelu")) for one in kernels)
    assert all(one.seconds > 0 for one in kernels)


@pytest.mark.parametrize("name", SCENARIOS)
def test_lowering_and_the_running_kernels_count_the_same_bytes(name: str) -> None:
    """Fused norms and activations move what the layer says, but for statistics and the norms' weights."""
    scenario = load_scenario(name, ())
    fused = 0
    for one in layer_kernels(scenario):
        if not one.operation or not isinstance(one.kernel, MemoryBound) or one.kernel.launches > 1:
            continue
        cost = memory_kernel(one.operation, one.rows, one.columns, one.dtype, fused=True)
        if one.operation.startswith(("rms_norm", "layer_norm")):
            direction: Any = "backward" if one.operation.endswith("_backward") else "forward"
            centred = one.operation.startswith("layer_norm")
            cost = norm_cost(one.rows, one.columns, one.dtype, direction, centred=centred, programs=1)
        assert one.kernel.hbm_bytes == pytest.approx(cost.hbm_bytes, rel=0.02), one.name
        fused += 1
    software = scenario.software.kernels
    assert fused >= software.fused_norm + software.fused_activation


# The commands -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["kernels", "--device", "cpu"], ["layer", "llama3-8b-h100"]])
def test_without_torch_the_commands_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["calibrate", *command])
    assert done.exit_code == 2
    assert "stepsim[calibration]" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "5"], "5 has no unit"),
        (["--only", "gems"], "gems"),
        (["--out", "kernels.txt"], ".csv"),
    ],
)
def test_wrong_options_are_refused_first(options: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["calibrate", "kernels", *options])
    assert done.exit_code == 2
    assert message in done.stderr
