"""Readers of others' measurements: what they read is what was written, and what is wrong is named."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from pathlib import Path

import pytest
from measured_files import COLLECTIVES, GPU, KERNELS, read, report, trace

from stepsim.calibration.readers.measured import domains_of, one_gpu
from stepsim.calibration.readers.read import read_measured
from stepsim.calibration.readers.traced import collective_of, is_collective, kernel_of, merged, overlap_s
from stepsim.kernels.kernel import Attention, Gemm, MemoryBound


def written(folder: Path, text: str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# --- tables --------------------------------------------------------------------------------------


def test_a_table_of_kernels(tmp_path: Path) -> None:
    measured = read(written(tmp_path, KERNELS))
    assert measured.gpu == GPU
    gemm, attention, copy = (point.kernels[0] for point in measured.kernels)
    assert gemm == Gemm(m=4096, n=8192, k=1024)
    assert attention == Attention(
        batch=1,
        seq_q=4096,
        seq_kv=4096,
        heads=32,
        kv_heads=32,
        head_dim=128,
        causal=True,
        implementation="fa2",
    )
    assert copy == MemoryBound(hbm_bytes=1e9)
    assert [point.operation for point in measured.kernels] == ["gemm", "attention", "stream"]
    assert [point.seconds for point in measured.kernels] == [0.001, 0.002, 0.003]
    assert measured.passed_over == {"launch: no curve is fitted on it": 1}


def test_a_table_of_collectives(tmp_path: Path) -> None:
    (point,) = read(written(tmp_path, COLLECTIVES)).collectives
    assert (point.kind, point.ranks, point.domains, point.bytes, point.seconds) == (
        "all_reduce",
        16,
        2,
        1024,
        2e-5,
    )
    racks = COLLECTIVES.replace(GPU, "GB200-NVL72").replace("16,2", "16,4")
    assert read(written(tmp_path, racks)).collectives[0].domains == 1
    cpu = COLLECTIVES.replace(GPU, "cpu")
    assert read(written(tmp_path, cpu)).gpu == "cpu"


@pytest.mark.parametrize(
    ("gpu", "ranks", "hosts", "domains"),
    [(GPU, 8, 1, 1), (GPU, 16, 2, 2), ("GB200-NVL72", 72, 18, 1), ("GB200-NVL72", 144, 36, 2)],
)
def test_nvlink_domains_of_a_group(gpu: str, ranks: int, hosts: int, domains: int) -> None:
    assert domains_of(gpu, ranks, hosts) == domains


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("\n", "is empty"),
        (KERNELS.splitlines()[0], "no measurements"),
        ("a,b\n1,2\n", "family, gpu, dtype, seconds"),
        ("kind,ranks\nx,1\n", "hosts, bytes, seconds, gpu"),
        (KERNELS.replace("0.001", "fast"), ":2: seconds: 'fast'"),
        (KERNELS.replace("0.001", "-1"), ":2: seconds: '-1'"),
        (KERNELS.replace("0.001", "nan"), ":2: seconds: 'nan'"),
        (KERNELS.replace("8192,1024", "8192,"), ":2: k: ''"),
        (KERNELS.replace("4096,8192", "1.5,8192"), ":2: m: '1.5'"),
        (KERNELS.replace("bf16,0.002", "bf17,0.002"), ":3: dtype: .*'bf17'"),
        (
            KERNELS.replace(f"attention,{GPU}", "attention,A100-SXM4-80GB"),
            "A100-SXM4-80GB after H100-SXM5-80GB",
        ),
        (KERNELS.replace(GPU, "H10O"), ":2: gpu: .*'H10O'"),
        (KERNELS.replace(GPU, ""), "give --gpu"),
        (COLLECTIVES.replace("all_reduce", "all_reduc"), "mean all_reduce"),
        (COLLECTIVES.replace("16,2", "15,2"), ":2: hosts: 15 ranks .*2 hosts"),
        (COLLECTIVES.replace("16,2", "1,1"), ":2: ranks: '1' .*2"),
        (COLLECTIVES.replace("gpu\n", "gpu,correct\n").replace(f"{GPU}\n", f"{GPU},0\n"), "result"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=message) as refusal:
        read(path)
    assert str(path) in str(refusal.value)


def test_a_stated_gpu_fills_in_and_never_overrides(tmp_path: Path) -> None:
    assert read(written(tmp_path, KERNELS.replace(GPU, "")), "B200-SXM-180GB").gpu == "B200-SXM-180GB"
    with pytest.raises(ValueError, match="is of H100-SXM5-80GB, not of B200-SXM-180GB"):
        read(written(tmp_path, KERNELS), "B200-SXM-180GB")


def test_a_table_of_a_cpu_is_known_as_such(tmp_path: Path) -> None:
    lines = [
        f"{line},{extra}"
        for line, extra in zip(KERNELS.splitlines(), ["device,cuda", *["Xeon,"] * 4], strict=True)
    ]
    measured = read(written(tmp_path, "\n".join(lines).replace(GPU, "")))
    assert (measured.gpu, measured.kernels) == ("cpu", ())
    assert measured.passed_over["kernels of a CPU: there is no cost model of one"] == 3
    with pytest.raises(ValueError, match="--gpu"):
        read(written(tmp_path, "\n".join(lines).replace(GPU, "").replace("Xeon,", "Xeon,12.8")))


def test_gpus_are_not_mixed(tmp_path: Path) -> None:
    one = written(tmp_path, KERNELS)
    other = written(tmp_path, KERNELS.replace(GPU, "A100-SXM4-80GB"), "b.csv")
    with pytest.raises(ValueError, match="several GPUs") as refusal:
        one_gpu(read_measured([one, other])[0])
    assert "a.csv" in str(refusal.value)
    assert "b.csv" in str(refusal.value)


def test_logs_of_nccl_tests_and_their_mistakes(tmp_path: Path, shared: Path) -> None:
    log = shared / "data" / "nccl_logs" / "dgxc_h100_1n8g_allreduce.txt"
    measured = read(log)
    assert (measured.gpu, measured.collectives[0].ranks, measured.collectives[0].domains) == (GPU, 8, 1)
    broken = written(tmp_path, log.read_text().replace("float", "float sum extra", 3), "broken.txt")
    with pytest.raises(ValueError, match=re.escape("broken.txt:")):
        read(broken)
    with pytest.raises(ValueError, match="nccl-tests"):
        read(written(tmp_path, "hello\n", "hello.txt"))
    with pytest.raises(ValueError, match="is empty"):
        read(written(tmp_path, "", "nothing.txt"))
    with pytest.raises(ValueError, match="no file"):
        read(tmp_path / "absent.txt")


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_trace_of_torch(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    text = json.dumps(trace()).encode()
    path.write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    measured = read(path)
    assert measured.gpu == GPU
    by_kernel = {point.kernels[0]: point.seconds for point in measured.kernels}
    gemm = Gemm(m=4096, n=8192, k=1024)
    attention = Attention(batch=1, seq_q=4096, seq_kv=4096, heads=32, kv_heads=32, head_dim=128, causal=True)
    assert by_kernel == {gemm: pytest.approx(15e-6), attention: pytest.approx(50e-6)}
    (collective,) = measured.collectives
    assert (collective.kind, collective.ranks, collective.domains, collective.bytes) == (
        "all_reduce",
        8,
        1,
        2000,
    )
    assert collective.seconds == pytest.approx(20e-6)  # the quicker: the other waited
    assert sum(measured.passed_over.values()) == 2
    assert measured.facts["step time"] == "0.002 s (median of 2)"
    assert "16.7% of it beside kernels" in measured.facts["communication"]


def test_wrong_traces_are_named(tmp_path: Path) -> None:
    for text, message in (
        ("{", "not JSON"),
        ("{}", "traceEvents"),
        ("[]", "no kernel"),
        (json.dumps(trace() | {"traceEvents": []}), "no kernel"),
        (json.dumps(trace("NVIDIA GeForce RTX 4090")), "no GPU"),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            read(written(tmp_path, text, "t.json"))
        assert "t.json" in str(refusal.value)
    with pytest.raises(ValueError, match=r"\(H100-SXM5-80GB\), .*A100-SXM4-80GB"):
        read(written(tmp_path, json.dumps(trace()), "t.json"), "A100-SXM4-80GB")
    with pytest.raises(ValueError, match="gzip"):
        read(written(tmp_path, "no gzip", "t.json.gz"))


def test_a_report_of_nsight_systems(tmp_path: Path) -> None:
    measured = read(report(tmp_path / "r.sqlite"))
    (point,) = measured.kernels
    assert point.kernels == (Gemm(m=4096, n=8192, k=1024),)
    assert point.seconds == pytest.approx(10e-6)
    assert sum(measured.passed_over.values()) == 2
    assert "60.0% of it beside kernels" in measured.facts["communication"]


def test_wrong_reports_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="SQLite"):
        read(written(tmp_path, "hello", "r.sqlite"))
    sqlite3.connect(tmp_path / "none.sqlite").execute("CREATE TABLE a (b INTEGER)").connection.close()
    with pytest.raises(ValueError, match="no kernels"):
        read(tmp_path / "none.sqlite")
    with pytest.raises(ValueError, match="not of B200-SXM-180GB"):
        read(report(tmp_path / "h.sqlite"), "B200-SXM-180GB")
    with pytest.raises(ValueError, match="no GPU"):
        read(report(tmp_path / "x.sqlite", "RTX"))


def test_operators_become_kernels() -> None:
    assert kernel_of("aten::addmm", [[8], [4, 2], [2, 8]], "bf16") == Gemm(m=4, n=8, k=2)
    assert kernel_of("aten::bmm", [[3, 4, 2], [3, 2, 8]], "fp16") == Gemm(
        m=4, n=8, k=2, batch=3, dtype="fp16"
    )
    assert kernel_of("aten::mm", [[4, 2], [3, 8]], "bf16") is None
    assert kernel_of("aten::add", [[4, 2], [2, 8]], "bf16") is None
    q = [2, 8, 512, 64]
    backward = kernel_of(
        "aten::_scaled_dot_product_cudnn_attention_backward", [q] * 4, "bf16", [""] * 11 + ["True"]
    )
    assert isinstance(backward, Attention)
    assert (backward.direction, backward.implementation, backward.causal) == ("backward", "cudnn", True)


def test_names_of_collectives_and_overlap() -> None:
    for name, kind in (
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
        ("ncclKernel_ReduceScatter_RING_SIMPLE_Sum_float", "reduce_scatter"),
        ("ncclDevKernel_SendRecv(x)", "sendrecv"),
        ("_allgather_base", "all_gather"),
        ("nvjet_hsh_256x128", None),
    ):
        assert collective_of(name) == kind, name
    assert not is_collective("reduce_1Block_kernel<double>")
    assert merged([(3, 4), (0, 1), (1, 2)]) == [(0, 2), (3, 4)]
    assert overlap_s(merged([(0, 10)]), merged([(2, 3), (9, 12)])) == 2
