"""What a sweep's own circumstances do to its times, and measured curves where tokens are exchanged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_experts import with_experts

from stepsim.calibration.fit.curve_fit import before_power_limit
from stepsim.calibration.measure import device as device_module
from stepsim.calibration.measure import session
from stepsim.calibration.measure import timing as timing_module
from stepsim.calibration.measure.device import Device
from stepsim.calibration.measure.kernel_csv import read_rows
from stepsim.calibration.measure.points import sweep
from stepsim.calibration.readers.foreign.gpu_named import gpu_named
from stepsim.calibration.readers.measurements import Measurement, read_points
from stepsim.calibration.readers.tables import read_table
from stepsim.calibration.validation.regions.kernel_errors import repeats
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.collective_curve import CollectiveCurve
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.provenance import Provenance
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.gemm import gemm_seconds
from stepsim.kernels.kernel import Gemm
from stepsim.sim.lowering.layer_kernels import layer_kernels
from stepsim.sim.scenario.load import load_scenario
from stepsim.sim.simulate import simulate

B200 = "B200-SXM-180GB"


@given(st.floats(1e-6, 1.0), st.floats(0.0, 0.6), st.floats(0.0, 2e-5))
def test_a_boost_shortens_and_the_host_bounds(sustained_s: float, boost: float, call_s: float) -> None:
    profile = replace(load_profile(B200), measured_boost=boost, measured_call_s=call_s)
    found_s = before_power_limit(sustained_s, profile)
    assert found_s >= call_s
    assert sustained_s / (1 + boost) * (1 - 1e-12) <= found_s <= max(sustained_s, call_s)
    longer_s = before_power_limit(2 * sustained_s, profile)
    assert longer_s >= found_s
    if found_s > call_s:  # of ever longer runs an ever smaller share is boosted
        assert longer_s / (2 * sustained_s) >= found_s / sustained_s * (1 - 1e-12)


def test_repeats_of_one_kernel_are_held_beside_each_other() -> None:
    def point(name: str, seconds: float, k: int = 64) -> Measurement:
        kernel = Gemm(m=128, n=128, k=k)
        return Measurement(id=name, gpu=B200, source="made", kernels=(kernel,), seconds=seconds)

    found = repeats([point("a", 1.0), point("b", 2.0), point("c", 5.0, k=32)])
    assert found.keys() == {(B200, "gemm")}
    one = found[B200, "gemm"]
    assert one.points == 2
    assert one.median == pytest.approx((1.0 + 0.5) / 2)


def test_products_side_by_side_are_not_split_over_k() -> None:
    """Four deep GEMMs beside each other: one wave of K steps, which alone would be split."""
    gpu, profile = get_gpu(B200), load_profile(B200)
    alone = Gemm(m=128, n=256, k=16384)
    beside = replace(alone, batch=4, calls=4)
    with_splits = replace(alone, batch=4)
    assert gemm_seconds(beside, gpu, profile) > 1.5 * gemm_seconds(with_splits, gpu, profile)


def curve(kind: str, slower: float) -> CollectiveCurve:
    return CollectiveCurve(
        kind=kind,
        ranks=8,
        domains=1,
        alpha_s=1e-5 * slower,
        gamma_s=0.0,
        bytes_per_s=1e11 / slower,
        low_bytes=1.0,
        high_bytes=1e12,
        provenance=Provenance(source="made"),
    )


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_exchanges_of_tokens_take_the_measured_alltoall(dispatcher: str) -> None:
    scenario = with_experts(moe_dispatcher=dispatcher)
    shipped = load_profile("H100-SXM5-80GB")
    steps = [
        simulate(scenario, profile=replace(shipped, collectives=curves)).step_time_s
        for curves in (
            (),
            (curve("all_to_all", 1.0),),
            (curve("all_to_all", 1e4),),
            (curve("broadcast", 1e4),),
        )
    ]
    assert steps[3] == steps[0]
    if dispatcher == "deepep":  # its kernels are not NCCL's
        assert steps == [steps[0]] * 4
    else:
        assert steps[2] > 1.5 * steps[1]


def test_kernels_of_a_layer_are_priced_by_the_scenarios_own_profile(tmp_path: Path) -> None:
    slow = tmp_path / "slow.profile.yaml"
    slow.write_text(
        "profile: 1\ngpu: H100-SXM5-80GB\n"
        "gemm: {rates: {bf16: {fraction: 0.3}}, provenance: {source: made}}\n"
    )
    shipped, own = (
        sum(one.seconds for one in layer_kernels(load_scenario("llama3-8b-h100", overrides)))
        for overrides in ((), (f"calibration=[{slow}]",))
    )
    assert own > 1.3 * shipped


@pytest.mark.parametrize(
    ("name", "memory_gib", "gpu"),
    [
        ("NVIDIA H200", None, "H200-SXM-141GB"),
        ("NVIDIA H200 NVL", None, None),
        ("NVIDIA GH200 480GB", None, None),
        ("GH200-96GB", None, "GH200-96GB"),
        ("NVIDIA H100 NVL", None, None),
        ("NVIDIA H100 80GB HBM3", 79.18, "H100-SXM5-80GB"),
        ("NVIDIA H100 80GB HBM3", 9.5, None),  # a part of one
        ("NVIDIA GB200", None, "GB200-NVL72"),
        ("NVIDIA A100-PCIE-40GB", None, None),
        ("NVIDIA A100-PG509-200", 39.39, "A100-SXM4-40GB"),
        ("NVIDIA A100-PG509-200", None, "A100-SXM4-40GB"),
        ("NVIDIA A100-SXM-64GB", None, "A100-SXM4-64GB"),
        ("NVIDIA H100", 63.43, "H100-SXM5-64GB"),  # as torch calls it on MareNostrum 5
        ("NVIDIA A100", 39.4, "A100-SXM4-40GB"),
        ("NVIDIA A100", 79.2, "A100-SXM4-80GB"),
        ("NVIDIA A1000", None, None),
        ("AMD Instinct MI300X", 191.98, "MI300X"),
    ],
)
def test_another_board_of_a_chip_is_not_taken_for_it(
    name: str, memory_gib: float | None, gpu: str | None
) -> None:
    assert gpu_named(name, memory_gib and memory_gib * 2**30) == gpu


class _NoBaseInCommon(Exception):
    """Like Triton's errors: of neither RuntimeError nor ValueError."""


CPU_DEVICE = Device(
    kind="cpu",
    name="made",
    gpu="cpu",
    driver="",
    cuda="",
    torch="0",
    triton="",
    sram_bytes=65536.0,
    fp8=False,
)


def test_a_kernel_that_a_compiler_refuses_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(point: object, device: object) -> dict[str, object]:
        raise _NoBaseInCommon("out of resource: shared memory\nRequired: 300000")

    monkeypatch.setattr(session, "measure_point", refuse)
    found = session.measure(
        CPU_DEVICE, tmp_path / "k.csv", budget_s=60, families=["launch"], origin={}, say=lambda text: None
    )
    assert [why for _, why in found.failed] == ["out of resource: shared memory"] * 2
    assert not found.measured


def test_a_gpu_that_answers_no_more_ends_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    torch = SimpleNamespace(cuda=SimpleNamespace(synchronize=refuse, empty_cache=refuse))
    monkeypatch.setattr(device_module, "load_torch", lambda: torch)
    monkeypatch.setattr(session, "measure_point", refuse)
    with pytest.raises(ValueError, match=r"empty kernel.*illegal memory"):
        session.measure(
            replace(CPU_DEVICE, kind="cuda"),
            tmp_path / "k.csv",
            budget_s=60,
            families=["launch"],
            origin={},
            say=lambda text: None,
        )


@pytest.mark.parametrize("content", [b"\x96\xff", b"family,gpu\n\0\0\0"])
@pytest.mark.parametrize("read", [read_table, lambda path: read_rows([path])])
def test_a_table_that_is_no_text_is_named(tmp_path: Path, content: bytes, read: Any) -> None:
    path = tmp_path / "broken.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.csv.*(not UTF-8|zero byte)"):
        read(path)


def test_points_that_are_no_text_are_named(tmp_path: Path) -> None:
    path = tmp_path / "points.yaml"
    path.write_bytes(b"\x96\xff")
    with pytest.raises(ValueError, match=r"points\.yaml:1:1: .*not UTF-8"):
        read_points([path])


class _SlowHost:
    """A GPU's queue, whose flushes take 80 us, and a host that needs 20 us to launch anything."""

    def __init__(self) -> None:
        self.host_s = self.gpu_s = 0.0
        machine = self

        class Event:
            def __init__(self, **_: object) -> None:
                self.at_s = 0.0

            def record(self) -> None:
                self.at_s = max(machine.gpu_s, machine.host_s)

            def elapsed_time(self, other: Event) -> float:
                return (other.at_s - self.at_s) * 1e3

        cuda = SimpleNamespace(Event=Event, synchronize=self.wait)
        flush = SimpleNamespace(zero_=lambda: self.launch(80e-6))
        self.torch = SimpleNamespace(cuda=cuda, empty=lambda *_, **__: flush, int8=None)

    def launch(self, kernel_s: float) -> None:
        self.host_s += 20e-6
        self.gpu_s = max(self.gpu_s, self.host_s) + kernel_s

    def wait(self) -> None:
        self.host_s = max(self.host_s, self.gpu_s)


def test_a_chain_that_a_host_issues_slowly_is_timed_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten kernels of 2 us take 20 us, though the host needs 200 us to issue them."""
    machine = _SlowHost()
    monkeypatch.setattr(timing_module, "load_torch", lambda: machine.torch)
    monkeypatch.setattr("time.perf_counter", lambda: machine.host_s)

    def chain() -> None:
        for _ in range(10):
            machine.launch(2e-6)

    found = timing_module.time_run(chain, "cuda")
    assert found.p10_s == pytest.approx(20e-6, rel=1e-6)
    assert found.p90_s == pytest.approx(20e-6, rel=1e-6)


def test_an_h100_computes_products_as_its_curve_says() -> None:
    """A sweep of our own (docs/kernels.md, measured on an H100), which no fit has seen."""
    path = Path(__file__).parent / "data" / "h100_kernels.csv"
    shipped, points = load_profile("H100-SXM5-80GB"), {point.id: point for point in sweep("cuda", fp8=True)}
    profile = replace(shipped, clock_fraction=shipped.measured_clock_fraction)
    errors: dict[str, list[float]] = {"bf16": [], "fp8": []}
    for row in read_rows([path]):
        if row.columns["family"] == "gemm":
            predicted_s = kernel_seconds(points[row.id].kernel, get_gpu(shipped.gpu), profile)
            errors[row.dtype].append(predicted_s / row.seconds - 1)
    assert {dtype: len(found) for dtype, found in errors.items()} == {"bf16": 97, "fp8": 68}
    assert abs(median(errors["bf16"])) < 0.02
    assert median(abs(error) for error in errors["bf16"]) < 0.04
    assert median(abs(error) for error in errors["fp8"]) < 0.07
