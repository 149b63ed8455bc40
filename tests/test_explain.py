"""Explaining a step: the parts make the whole, our own traces differ by nothing, and hand-made traces by what
was put into them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_jobs import OWN, SMALL, command, told, written

from stepsim.calibration.explain.breakdown import breakdown
from stepsim.calibration.explain.step_record import DeviceOp, RankStep
from stepsim.calibration.readers.kernel_kinds import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("name", OWN)
def test_our_own_trace_is_as_predicted(name: str, tmp_path: Path) -> None:
    """Every class of ranks, through files: no part differs by more than a nanosecond an op."""
    scenario, traces = written(tmp_path / "job.yaml", OWN[name]), tmp_path / "traces"
    traces.mkdir()
    command("run", scenario, "--trace", traces)
    found = told(traces, scenario)
    assert found["step_s"] == pytest.approx(found["predicted_step_s"], abs=2e-9)
    for ops in found["ops"]:
        assert ops["measured"] == ops["predicted"]
    count = sum(ops["measured"] for ops in found["ops"])
    for part in found["parts"]:
        assert abs(part["difference_s"]) <= 1e-9 * count, part
    assert {trace["predicted"] for trace in found["traces"]} == {True}
    assert command("explain", traces, scenario)


def test_a_slower_machine_is_told_by_its_parts(tmp_path: Path) -> None:
    """The trace of one GPU beside the prediction of a slower network: only messages and waiting differ."""
    hosts = {"preset": SMALL["software"], "host": {"launches_per_attention": 1}}  # ahead of layers this small
    scenario, trace = written(tmp_path / "job.yaml", {"software": hosts}), tmp_path / "trace.json"
    command("run", scenario, "--trace", trace)
    picture = tmp_path / "fall.svg"
    slower = ("--set", "cluster.interconnect=roce-100-x1", "--waterfall", picture)
    found = json.loads(command("explain", trace, scenario, "--json", *slower))
    parts = {part["name"]: part["difference_s"] for part in found["parts"]}
    assert sum(parts.values()) == pytest.approx(found["step_s"] - found["predicted_step_s"], abs=1e-9)
    assert found["step_s"] < found["predicted_step_s"]
    assert parts["GEMM"] == pytest.approx(0.0, abs=1e-6)
    assert min(parts, key=lambda name: parts[name]) in ("exposed dp", "exposed pp", "waiting")
    assert "<svg" in picture.read_text()
    first = command("explain", trace, scenario, *slower[:2]).splitlines()[1]
    shorter = 1 - found["step_s"] / found["predicted_step_s"]
    assert first.endswith(f"; measured is {100 * shorter:.1f} % shorter")


def test_a_kernel_that_prepares_a_message_is_no_message(tmp_path: Path) -> None:
    """Gradients are scaled before they are reduced, by a kernel that counts as compute."""
    changes = {"parallelism": {"tp": 1, "pp": 1, "zero": 1}}
    scenario, trace = written(tmp_path / "job.yaml", changes), tmp_path / "trace.json"
    command("run", scenario, "--trace", trace)
    events = json.loads(trace.read_text())["traceEvents"]
    scaled = [one for one in events if "scale gradients" in one.get("name", "")]
    assert scaled
    assert {one["args"]["category"] for one in scaled} == {"compute"}
    assert not any("nccl" in one["name"] for one in scaled)


def test_another_machine_than_the_traced_one_is_said(tmp_path: Path) -> None:
    scenario, trace = written(tmp_path / "job.yaml", {}), tmp_path / "trace.json"
    command("run", scenario, "--trace", trace)
    same = json.loads(command("explain", trace, scenario, "--json"))
    assert same["machines"] is None
    other = command("explain", trace, scenario, "--set", "cluster.gpu=H200-SXM-141GB")
    assert "not the same machine" in other
    assert "H200-SXM-141GB" in other


@st.composite
def steps(draw: st.DrawFn) -> RankStep:
    """A step of up to 20 ops on a grid of microseconds, some of them before, behind or beside others."""
    ops = []
    for _ in range(draw(st.integers(0, 20))):
        begin, length = draw(st.integers(-5, 50)), draw(st.integers(0, 30))
        ops.append(
            DeviceOp(
                name="op",
                kind=draw(st.sampled_from(KINDS)),
                start_s=begin * 1e-6,
                end_s=(begin + length) * 1e-6,
                issued_s=draw(st.sampled_from((None, (begin - 3) * 1e-6, begin * 1e-6))),
                axis=draw(st.sampled_from(("", "dp", "tp"))),
            )
        )
    return RankStep(
        name="0", took_s=6e-5, begin_s=0.0, end_s=draw(st.integers(10, 60)) * 1e-6, ops=tuple(ops)
    )


@given(steps())
def test_the_parts_make_the_step(step: RankStep) -> None:
    found = breakdown(step)
    assert sum(found.parts.values()) == pytest.approx(step.took_s, abs=1e-12)
    assert 0 <= found.hidden_s <= found.sent_s + 1e-15
    for name, seconds in found.parts.items():
        assert name == "outside" or seconds >= -1e-15


def event(name: str, cat: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    thread = 7 if cat in ("kernel", "gpu_memcpy") else 1
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": thread, "ts": ts, "dur": dur, "args": args}


def kineto(rank: int, late_us: float = 0.0) -> dict[str, Any]:
    """A step of 100 us: a GEMM of 30 from 10 on, an all-reduce from 40 (and ``late_us``) to 80, of which the
    last 10 lie beside a pointwise kernel of 15 that ends at 85; copies of the mark on the GPU's row.
    """
    group = {"Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2, "dtype": "Float"}
    calls = [
        event("cudaLaunchKernel", "cuda_runtime", 1.0 + 2 * n, 1.0, correlation=n, device=0)
        for n in (1, 2, 3)
    ]
    kernels = [
        event("sm90_xmma_gemm_f16", "kernel", 10, 30 + late_us, correlation=1, device=0, stream=7),
        event(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            "kernel",
            40 + late_us,
            40 - late_us,
            correlation=2,
            device=0,
            stream=9,
            **group,
        ),
        event("vectorized_elementwise_kernel", "kernel", 70, 15, correlation=3, device=0, stream=7),
    ]
    return {
        "distributedInfo": {"rank": rank, "world_size": 2},
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000}],
        "traceEvents": [
            event("ProfilerStep#3", "user_annotation", 0.0, 100.0),
            event("ProfilerStep#3", "gpu_user_annotation", 10.0, 75.0),
            *calls,
            *kernels,
        ],
    }


def test_a_trace_made_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.json"
    path.write_bytes(orjson.dumps(kineto(0)))
    found = told(path)
    parts = {part["name"]: part["measured_s"] * 1e6 for part in found["parts"]}
    assert parts == pytest.approx(
        {"GEMM": 30, "pointwise": 15, "exposed messages": 30, "host": 4, "waiting": 21}, abs=1e-3
    )
    assert found["step_s"] == pytest.approx(100e-6)
    assert found["overlap"] == pytest.approx(0.25)
    assert found["traces"][0]["gpu"] == "H100-SXM5-80GB"


def test_the_rank_that_came_late_is_named(tmp_path: Path) -> None:
    """Rank 1 comes 20 us late to the all-reduce: rank 0 waits 20 of its 40 us for it."""
    for rank, late_us in ((0, 0.0), (1, 20.0)):
        (tmp_path / f"r{rank}.json").write_bytes(orjson.dumps(kineto(rank, late_us)))
    found = told(tmp_path)
    by_rank = {one["rank"]: one for one in found["ranks"]}
    assert by_rank[0]["waited_s"] == pytest.approx(20e-6, abs=1e-9)
    assert by_rank[1]["caused_s"] == pytest.approx(20e-6, abs=1e-9)
    parts = {part["name"]: part["measured_s"] * 1e6 for part in found["parts"]}
    assert parts["exposed late peers"] == pytest.approx(10, abs=1e-3)  # 20 of one rank, 0 of the other


def test_bare_lists_of_events_are_read(tmp_path: Path) -> None:
    path = tmp_path / "bare.json"
    path.write_bytes(orjson.dumps(kineto(0)["traceEvents"]))
    assert told(path)["step_s"] == pytest.approx(100e-6)


def test_what_cannot_be_explained_is_refused(tmp_path: Path) -> None:
    path, again = tmp_path / "a.json", tmp_path / "b.json"
    for one in (path, again):
        one.write_bytes(orjson.dumps(kineto(0)))
    assert "rank 0" in command("explain", path, again, code=2)
    assert "--set" in command("explain", path, "--set", "parallelism.tp=2", code=2)
    assert "llama3-8b-h100" in command("explain", "llama3-8b-h100", "gpt-22b-a100", path, code=2)
    empty = tmp_path / "empty.json"
    empty.write_text('{"traceEvents": []}')
    assert "empty.json" in command("explain", empty, code=2)
    far = tmp_path / "far.json"
    far.write_bytes(orjson.dumps(kineto(8)))
    scenario = written(tmp_path / "job.yaml", {})
    assert "rank 8" in command("explain", far, scenario, code=2)
    beside = told(path, empty)
    assert len(beside["refused"]) == 1
