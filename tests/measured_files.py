"""Files of measurements as tools write them: nccl-tests, profilers of torch, Nsight."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from stepsim.calibration.readers.measured import Measured, MeasuredCollective
from stepsim.calibration.readers.nccl_bus import BUS_FACTORS
from stepsim.calibration.readers.read import read_measured

REDUCES = ("all_reduce", "reduce_scatter", "reduce", "sendrecv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
UNCHECKED = ("all_to_all", "sendrecv")


@dataclass(frozen=True)
class Layout:
    """How a version of the tool prints its rows."""

    prefix: str
    root: bool
    error_column: str | None
    hashes: bool
    extra: bool


times = st.lists(st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)), min_size=1, max_size=12)


def bus_factor(kind: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth."""
    times = BUS_FACTORS[kind]
    return times * (ranks - 1) / ranks if times else 1.0


def rendered(kind: str, ranks: int, rows: list[tuple[int, float, float]], layout: Layout) -> list[str]:
    """A log as the tool would print it: rows are (bytes, microseconds out of place, in place)."""
    half = ["time", "algbw", "busbw", *([layout.error_column] if layout.error_column else [])]
    half += ["i_min", "i_max"] if layout.extra else []
    named = ["size", "count", "type", "redop", *(["root"] if layout.root else [])]
    mark = "#" if layout.hashes else " "
    lines = [f"{mark} Collective test starting: {kind}_perf", f"{mark} nThread 1 nGpus 1 minBytes 8", mark]
    lines += [
        f"{mark}  Rank {rank:2d} Group  0 Pid   {6000 + rank} on host-{rank // 8} device  {rank % 8} "
        f"[0000:0{rank % 8}:00] NVIDIA H100 80GB HBM3"
        for rank in range(ranks)
    ]
    lines += ["host-0:6000:6100 [0] NCCL INFO Using network IB", "NCCL version 2.26.2+cuda12.8"]
    lines.append(f"{mark}      " + "   ".join([*named, *half, *half]))
    lines.append(f"{mark}       (B)    (elements)                  (us)  (GB/s)  (GB/s)")
    for size, out_us, in_us in rows:
        words = [str(size), str(size // 4), "float", "sum" if kind in REDUCES else "none"]
        words += [("0" if kind in ROOTED else "-1")] if layout.root else []
        for us, place in ((out_us, "out"), (in_us, "in")):
            rate = size / us / 1e3
            words += [f"{us:.2f}", f"{rate:.2f}", f"{rate * bus_factor(kind, ranks):.2f}"]
            if layout.error_column == "error":
                words.append("1e-06")
            elif layout.error_column:
                words.append("N/A" if place == "in" and kind in UNCHECKED else "0")
            words += [f"{us * 0.9:.2f}", f"{us * 1.2:.2f}"] if layout.extra else []
        lines.append("    ".join(words))
    lines += [f"{mark} Out of bounds values : 0 OK", f"{mark} Avg bus bandwidth    : 139.56"]
    return [layout.prefix + line for line in lines]


GPU = "H100-SXM5-80GB"
KERNELS = f"""family,gpu,dtype,seconds,m,n,k,seq_q,heads,head_dim,hbm_bytes,causal,operation
gemm,{GPU},bf16,0.001,4096,8192,1024,,,,,,
attention,{GPU},bf16,0.002,,,,4096,32,128,,1,
memory,{GPU},bf16,0.003,,,,,,,1e9,,copy
launch,{GPU},bf16,1e-6,,,,,,,,,
"""
COLLECTIVES = "kind,ranks,hosts,bytes,seconds,gpu\nall_reduce,16,2,1024,2e-5,H100-SXM5-80GB\n"


def read(path: Path, gpu: str | None = None) -> Measured:
    return read_measured([path], gpu)[0][0]


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args}


def operator(
    name: str, identity: int, dims: list[Any], dtype: str = "c10::BFloat16", **more: Any
) -> dict[str, Any]:
    args = {"External id": identity, "Input Dims": dims, "Input type": [dtype] * len(dims), **more}
    return event(name, "cpu_op", 0, 1, **args)


def trace(device: str = "NVIDIA H100 80GB HBM3") -> dict[str, Any]:
    """Two equal GEMMs, an attention, an all_reduce partly beside the second, a kernel without shapes."""
    q = [1, 32, 4096, 128]
    message = {
        "Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "Group size": 8,
        "dtype": "BFloat16",
    }  # fmt: skip
    causal: dict[str, Any] = {"Concrete Inputs": ["", "", "", "0.", "True", "False", ""]}
    return {
        "deviceProperties": [{"name": device}] * 8,
        "traceEvents": [
            {"ph": "M", "name": "process_name"},
            event("ProfilerStep#5", "user_annotation", 0, 1000),
            event("ProfilerStep#6", "user_annotation", 1000, 3000),
            operator("aten::mm", 1, [[4096, 1024], [1024, 8192]]),
            operator("aten::mm", 2, [[4096, 1024], [1024, 8192]]),
            operator("aten::_scaled_dot_product_flash_attention", 3, [q, q, q, [], []], **causal),
            operator("aten::add", 4, [[8], [8]]),
            event("nvjet_tst_128x256", "kernel", 100, 10, **{"External id": 1}),
            event("nvjet_tst_128x256", "kernel", 200, 20, **{"External id": 2}),
            event("flash_fwd_kernel", "kernel", 300, 50, **{"External id": 3}),
            event("vectorized_elementwise", "kernel", 400, 5, **{"External id": 4}),
            event("memcpy_like", "kernel", 500, 5),
            event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "kernel", 210, 20, **message),
            event("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)", "kernel", 710, 40, **message),
        ],
    }


def report(path: Path, device: str = "NVIDIA H100 80GB HBM3") -> Path:
    """A report with a GEMM launched inside NVTX ranges, a kernel outside, and a collective."""
    strings = {1: "nvjet_bf16_gemm", 2: "copy_kernel", 3: "ncclDevKernel_AllGather_RING_LL"}
    nvtx = "aten::mm, op_id = 7, sizes = [[4096, 1024], [1024, 8192]]"
    with sqlite3.connect(path) as base:
        base.executescript(
            "CREATE TABLE StringIds (id INTEGER, value TEXT);"
            "CREATE TABLE TARGET_INFO_GPU (name TEXT);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL"
            " (start INTEGER, end INTEGER, demangledName INTEGER, correlationId INTEGER);"
            "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME"
            " (correlationId INTEGER, globalTid INTEGER, start INTEGER);"
            "CREATE TABLE NVTX_EVENTS"
            " (start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, textId INTEGER);"
        )
        base.executemany("INSERT INTO StringIds VALUES (?, ?)", strings.items())
        base.execute("INSERT INTO TARGET_INFO_GPU VALUES (?)", (device,))
        kernels = [(1000, 11000, 1, 1), (20000, 25000, 2, 2), (5000, 15000, 3, 3)]
        base.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?)", kernels)
        base.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?)", [(1, 9, 500), (2, 9, 900)]
        )
        ranges = [
            (400, 600, 9, nvtx, None),
            (100, 700, 9, "aten::linear, op_id = 6, sizes = [[1], [2]]", None),
        ]
        base.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)", ranges)
    return path


GEMM = {
    "id": "a", "source": "made", "gpu": GPU, "op": "gemm", "pass": "fwd", "dtype": "bf16", "impl": "torch",
    "shape": {"m": 4096, "n": 4096, "k": 4096, "groups": None}, "tflops": 240.0, "upper_bound": False,
    "assumed": ["dtype"], "accumulate": False, "out_dtype": "fp32",
}  # fmt: skip
ATTENTION = {
    "id": "b", "source": "made", "gpu": GPU, "op": "attention", "pass": "fwd_bwd", "dtype": "bf16",
    "impl": "FlashAttention-2", "tflops": 240.0,
    "shape": {"batch": 1, "seq_length": 2048, "num_heads": 32, "num_kv_heads": 8, "qk_head_dim": 128,
              "v_head_dim": 128, "causal": True},
}  # fmt: skip


def collectives(
    alpha: float, gamma: float, rate: float, kind: str = "all_reduce"
) -> list[MeasuredCollective]:
    sizes = [8 * 4**i for i in range(14)]
    return [
        MeasuredCollective(kind=kind, ranks=8, domains=1, bytes=s, seconds=alpha + gamma * s**0.5 + s / rate)
        for s in sizes
    ]
