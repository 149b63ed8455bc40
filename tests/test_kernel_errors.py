"""Measured kernels beside predicted ones: nothing is predicted by what it is compared with."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stepsim.calibration.fit.carried import RELATIVES, carried_profile
from stepsim.calibration.fit.kernels import all_measurements
from stepsim.calibration.measure.plan import PLANS
from stepsim.calibration.readers.measurements import Measurement, read_measurements, read_points
from stepsim.calibration.validation.regions import kernel_errors
from stepsim.calibration.validation.regions.kernel_errors import (
    ENOUGH,
    kernel_summary,
    left_out_rows,
    shipped_rows,
)
from stepsim.cli.main import app
from stepsim.hardware.calibrated.overlay import load_profile
from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.cost import kernel_seconds
from stepsim.kernels.kernel import Gemm

POINT = {
    "id": "a", "source": "made", "gpu": "A100-SXM4-80GB", "op": "gemm", "pass": "fwd", "dtype": "bf16",
    "impl": "torch.matmul", "shape": {"m": 4096, "n": 4096, "k": 4096}, "tflops": 240.0,
}  # fmt: skip


ATTENTION = POINT | {
    "id": "b", "op": "attention", "impl": "PyTorch standard attention",
    "shape": {"batch": 1, "seq_length": 2048, "num_heads": 32, "num_kv_heads": 8, "qk_head_dim": 128,
              "v_head_dim": 128, "causal": True},
}  # fmt: skip


def written(folder: Path, *points: dict[str, Any]) -> Path:
    path = folder / "kernels.yaml"
    path.write_text(yaml.safe_dump({"schema": 1, "kind": "kernels", "points": list(points)}))
    return path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["validate", "--kernels", *arguments])


def test_the_json_has_the_fixed_keys(tmp_path: Path) -> None:
    path = written(tmp_path, POINT, ATTENTION)
    document = json.loads(run(str(path), "--json").stdout)
    (row,) = document["rows"]
    assert set(row) == {"id", "gpu", "kernel", "measured_s", "predicted_s", "error", "in_range"}
    assert row["measured_s"] == pytest.approx(2 * 4096**3 / 240e12)
    assert row["error"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    assert (row["kernel"], row["in_range"]) == ("gemm", True)
    assert document["summary"]["A100-SXM4-80GB"]["gemm"]["points"] == 1
    assert document["skipped"] == [{"id": "b", "reason": "no cost model of PyTorch standard attention"}]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tflops": 0.0}, "a: tflops: 0 is too small"),
        ({"shape": {"m": 1, "n": 1}}, "a: shape.k: this field is required"),
        ({"gpu": "A100"}, "a: gpu: no profiled GPU is called 'A100'"),
        ({"impl": None}, "a: impl: text is needed, not null"),
        ({"op": "conv"}, "a: op: no operation is called 'conv'"),
        ({"colour": 1}, "a: colour: no field is called 'colour'"),
    ],
)
def test_a_mistake_names_its_point_and_field(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    result = run(str(written(tmp_path, POINT | change)))
    assert result.exit_code == 2
    assert message in result.stderr


def test_files_of_something_else_are_refused(tmp_path: Path) -> None:
    for text, message in (
        ("", "not a kernel-point file"),
        ("a: [", "not valid YAML"),
        ("kind: kernels\n", "points:"),
    ):
        (tmp_path / "x.yaml").write_text(text)
        result = run(str(tmp_path / "x.yaml"))
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    both = run(str(written(tmp_path, POINT)), "--nccl")
    assert (both.exit_code, "one kind" in both.stderr) == (2, True)
    twice = run(str(written(tmp_path, POINT, POINT)))
    assert (twice.exit_code, "two points have this id" in twice.stderr) == (2, True)


def test_a_family_is_a_weight_under_any_tokens_and_pass(tmp_path: Path) -> None:
    def family(**change: Any) -> str:
        return read_points([written(tmp_path, POINT | change)])[0][0].family

    forward = family(shape={"m": 2048, "n": 512, "k": 128})
    assert family(**{"shape": {"m": 8192, "n": 128, "k": 512}, "pass": "dgrad"}) == forward
    assert family(**{"shape": {"m": 512, "n": 128, "k": 4096}, "pass": "wgrad"}) == forward
    assert family(shape={"m": 2048, "n": 512, "k": 256}) != forward


def test_grouped_points_are_read_in_the_shape_of_their_pass(tmp_path: Path) -> None:
    shape = {"m": 100, "n": 512, "k": 256, "groups": 8}
    grouped = POINT | {"op": "grouped_gemm", "shape": shape, "impl": "Transformer Engine grouped GEMM"}
    for direction, dims in (("fwd", (100, 512, 256)), ("dgrad", (100, 256, 512)), ("wgrad", (512, 256, 100))):
        ((point,), _) = read_points([written(tmp_path, grouped | {"pass": direction})])
        (kernel,) = point.kernels
        assert isinstance(kernel, Gemm)
        assert (kernel.m, kernel.n, kernel.k) == dims
        assert (kernel.batch, kernel.calls) == (8, 8)


def _made_sweep(gpu: str = "A100-PCIe-80GB") -> list[Measurement]:
    """A noiseless sweep over 24 weights, three numbers of tokens each."""
    profile = replace(load_profile(gpu), clock_fraction=1.0, measured_boost=0.0)
    points = []
    for n in (1024, 2048, 3072, 4096, 8192, 12288):
        for k in (512, 1024, 4096, 6144):
            for m in (1024, 4096, 8192):
                gemm = Gemm(m=m, n=n, k=k)
                seconds = kernel_seconds(gemm, get_gpu(gpu), profile)
                family = f"gemm {sorted((n, k))}"
                points.append(
                    Measurement(
                        id=f"{m}x{n}x{k}",
                        gpu=gpu,
                        source="made",
                        kernels=(gemm,),
                        seconds=seconds,
                        family=family,
                    )
                )
    return points


def test_no_family_is_predicted_by_a_fit_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = _made_sweep()
    seen: list[set[str]] = []

    def fitted_on(profile: Any, _: Any, points: Any) -> Any:
        seen.append({point.family for point in points})
        return profile

    monkeypatch.setattr(kernel_errors, "fitted_on", fitted_on)
    rows = left_out_rows(sweep, sweep)
    assert [row.id for row in rows] == [item.id for item in sweep]
    everything = {item.family for item in sweep}
    left = [everything - families for families in seen]
    assert set().union(*left) == everything
    assert sum(map(len, left)) == len(everything)  # each family is left out once


def test_products_of_another_type_are_not_fitted_with_a_family_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of a library, whose rate is a number of its own."""
    sweep = _made_sweep()
    (kernel,) = (k for k in sweep[0].kernels if isinstance(k, Gemm))
    other = replace(sweep[0], id="other", kernels=(replace(kernel, dtype="fp8"),))
    fitted: list[Measurement] = []

    def fitted_on(profile: Any, _: Any, points: Any) -> Any:
        fitted.extend(points)
        return profile

    monkeypatch.setattr(kernel_errors, "fitted_on", fitted_on)
    left_out_rows(sweep, [*sweep, other])
    assert fitted
    assert other not in fitted


@pytest.mark.slow
def test_a_noiseless_sweep_is_predicted_where_it_was_left_out() -> None:
    sweep = _made_sweep()[::2]
    assert len(sweep) >= ENOUGH
    rows = left_out_rows(sweep, sweep)
    summary = kernel_summary(rows)["A100-PCIe-80GB"]["gemm"]
    assert summary.how == "families left out"
    assert summary.median < 0.02


def test_what_is_carried_does_not_depend_on_the_own_points(shared: Path) -> None:
    known = all_measurements([shared / "data" / "kernels.yaml"])
    for gpu, operation in (("H800-SXM5-80GB", "gemm"), ("A100-SXM4-80GB", "attention"), ("B300-SXM", "gemm")):
        wrong = [
            replace(m, seconds=m.seconds * 3) if (m.gpu, m.operation) == (gpu, operation) else m
            for m in known
        ]
        one, other = (carried_profile(gpu, operation, some) for some in (known, wrong))
        assert one == other
    assert {name for names in RELATIVES.values() for name in names} <= {plan.gpu for plan in PLANS}


@pytest.mark.slow
def test_public_timings_left_out(shared: Path) -> None:
    """With whole families left out: A100 and all attention within 8 and 20 %."""
    files = [shared / "data" / "kernels.yaml"]
    asked = [m for m in read_measurements(files) if m.operation == "attention" or m.gpu.startswith("A100")]
    rows = left_out_rows(asked, all_measurements(files))
    for gpu, kernels in kernel_summary(rows).items():
        for kernel, one in kernels.items():
            if one.how == "families left out":
                assert one.median <= 0.08, (gpu, kernel)
                assert one.p90 <= 0.20, (gpu, kernel)


def test_shipped_rows_keep_the_order_and_range(shared: Path) -> None:
    asked = read_measurements([shared / "data" / "kernels.yaml"])
    rows = shipped_rows(asked)
    assert [row.id for row in rows] == [item.id for item in asked]
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.kernel] += row.in_range
    assert counts["gemm"] > 300
    assert counts["attention"] > 100
