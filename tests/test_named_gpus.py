"""GPUs by the names that people give them, where measurements name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepsim.calibration.readers.named_gpus import named_gpu
from stepsim.calibration.readers.read import read_measured
from stepsim.hardware.catalogue import UnknownName
from stepsim.hardware.gpus import gpu_called

ROWS = [(4096, 4096, 4096), (8192, 4096, 4096), (4096, 8192, 4096)]


def table(path: Path, gpus: list[str]) -> Path:
    lines = [f"gemm,{gpu},bf16,0.001,{m},{n},{k}" for gpu, (m, n, k) in zip(gpus, ROWS, strict=True)]
    path.write_text("\n".join(["family,gpu,dtype,seconds,m,n,k", *lines, ""]), encoding="utf-8")
    return path


def test_a_table_names_one_gpu_in_several_ways(tmp_path: Path) -> None:
    (read,), _ = read_measured([table(tmp_path / "a.csv", ["H100", "h100-sxm5", "H100-SXM5-80GB"])])
    assert read.gpu == "H100-SXM5-80GB"
    assert [point.gpu for point in read.kernels] == ["H100-SXM5-80GB"] * len(ROWS)


def test_several_gpus_of_one_name_are_no_gpu() -> None:
    with pytest.raises(ValueError, match=r"t.csv:2: gpu: A100 is 5 GPUs"):
        named_gpu("t.csv:2", "A100")


@pytest.mark.parametrize(
    ("slip", "meant"), [("H10O", "H100-SXM5-80GB"), ("B20", "B200-SXM-180GB"), ("GB20", "GB200-NVL72")]
)
def test_a_slip_is_answered_with_the_name_that_people_use(slip: str, meant: str) -> None:
    with pytest.raises(UnknownName) as refusal:
        gpu_called(slip)
    assert refusal.value.nearest == meant
