"""The trace: what the Trace Event Format asks for, and what Kineto's readers look up by name."""

from __future__ import annotations

import gzip
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pytest
from results import fake_result
from small_scenarios import scenario
from trace_documents import trace_document

from stepsim import simulate
from stepsim.sim.report.trace import write_trace, write_traces
from stepsim.sim.result.result import Result
from stepsim.sim.result.step import Span

Event = dict[str, Any]
HOST = ("cuda_runtime", "user_annotation")


@pytest.fixture(scope="module")
def result() -> Result:
    return fake_result(pp=4, vpp=2, microbatches=8)


@pytest.fixture(scope="module")
def events(result: Result) -> list[Event]:
    found: list[Event] = trace_document(result)["traceEvents"]
    return found


def threads(events: list[Event]) -> dict[tuple[int, int], list[Event]]:
    """Slices of the schedule and of the streams; those of the host lie within the step."""
    found = defaultdict(list)
    for event in events:
        if event["ph"] == "X" and event["cat"] not in HOST:
            found[event["pid"], event["tid"]].append(event)
    return found


def test_slices_of_a_thread_are_in_order_and_never_overlap(events: list[Event]) -> None:
    for slices in threads(events).values():
        for before, after in pairwise(slices):
            assert before["dur"] >= 0
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6


def test_slices_that_touch_to_a_rounding_do_not_overlap() -> None:
    """Times that are not whole nanoseconds, end to end."""
    base = fake_result(pp=1, microbatches=1)
    third = 1e-6 / 3
    spans = [
        Span(0, "compute", "GEMM", "compute", "", k * third, (k + 1) * third, 0.0, 0.0) for k in range(50)
    ]
    document = trace_document(replace(base, actions=(), spans_source=lambda: iter(spans)))
    (slices,) = threads(document["traceEvents"]).values()
    for before, after in pairwise(slices):
        assert before["ts"] + before["dur"] == pytest.approx(after["ts"], abs=1e-9)


def test_messages_under_way_together_get_lanes_of_their_own() -> None:
    """Point-to-point messages that no stream orders may overlap; slices of one thread may not."""
    base = fake_result(pp=1, microbatches=1)
    spans = [
        Span(0, "free", "Send", "pp", "", start, end, 0.0, 0.0)
        for start, end in ((0.0, 3e-6), (1e-6, 4e-6), (3e-6, 5e-6))
    ]
    document = trace_document(replace(base, actions=(), spans_source=lambda: iter(spans)))
    names = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    assert {"stream free", "stream free 2"} <= names
    assert sorted(len(slices) for slices in threads(document["traceEvents"]).values()) == [1, 2]


def test_nothing_is_lost_and_times_are_microseconds(result: Result, events: list[Event]) -> None:
    slices = [event for event in events if event["ph"] == "X" and event["cat"] not in HOST]
    assert len(slices) == len(result.actions) + sum(1 for _ in result.iter_spans())
    last_us = max(event["ts"] + event["dur"] for event in slices)
    assert last_us == pytest.approx(result.step_time_s * 1e6)
    for key in ("bytes", "flops"):
        written = sum(event["args"].get(key, 0.0) for event in slices)
        assert written == pytest.approx(sum(getattr(span, key) for span in result.iter_spans()))


def test_every_process_and_thread_has_a_name_and_a_place(result: Result, events: list[Event]) -> None:
    named: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "M":
            named[event["name"]][event["pid"], event["tid"]] = next(iter(event["args"].values()))
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"}
    assert set(named["thread_name"]) == set(named["thread_sort_index"]) == used
    names = [named["process_name"][pid, 0] for pid in range(len(result.ranks))]
    assert names[1] == "rank 16 and 15 like it (pp 1)"
    assert [named["process_sort_index"][pid, 0] for pid in range(4)] == [0, 1, 2, 3]
    assert [named["thread_name"][0, tid] for tid in range(5)] == [
        "schedule",
        "stream compute",
        "stream tp",
        "stream dp",
        "host",
    ]


def test_every_kernel_has_one_launch_that_ends_before_it_begins() -> None:
    """A real step: its host issues kernels far ahead, call after call, within the step that it marks."""
    step = simulate(scenario(tp=2, pp=1, dp=4, global_batch=16))
    events = trace_document(step)["traceEvents"]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") in ("kernel", "gpu_memcpy")}
    calls = [e for e in events if e.get("cat") == "cuda_runtime"]
    launches = {e["args"]["correlation"]: e for e in calls if "Synchronize" not in e["name"]}
    assert launches.keys() == kernels.keys()
    assert len(kernels) > 1000
    for number, kernel in kernels.items():
        assert launches[number]["ts"] + launches[number]["dur"] <= kernel["ts"] + 1e-3
    for before, after in pairwise(sorted(calls, key=lambda e: (e["ts"], e["ts"] + e["dur"]))):
        assert before["ts"] + before["dur"] <= after["ts"] + 1e-3
    (marked,) = [e for e in events if e["name"] == "ProfilerStep#0"]
    assert marked["dur"] == pytest.approx(step.step_time_s * 1e6)


def test_collectives_state_ranks_sizes_and_type() -> None:
    step = simulate(scenario(tp=2, pp=1, dp=4, global_batch=16))
    found = {}
    for event in trace_document(step)["traceEvents"]:
        if "Collective name" in event.get("args", {}):
            found[event["args"]["Process Group Description"]] = event["args"]
    assert found["tp"]["Process Group Ranks"] == [0, 1]
    assert found["dp"]["Process Group Ranks"] == [0, 2, 4, 6]
    for args in found.values():
        element = {"BFloat16": 2, "Float": 4}[args["dtype"]]
        largest = max(args["In msg nelems"], args["Out msg nelems"])
        assert largest * element == pytest.approx(args["bytes"], abs=element)


def test_collectives_have_the_names_that_readers_look_for(events: list[Event]) -> None:
    by_group = defaultdict(set)
    for event in events:
        if "Collective name" in event.get("args", {}):
            assert event["cat"] == "kernel"
            by_group[event["args"]["Process Group Name"]].add(
                (event["name"], event["args"]["Collective name"])
            )
    assert by_group == {
        "tp": {("ncclDevKernel_AllReduce (tp: all_reduce activations)", "allreduce")},
        "dp": {("ncclDevKernel_ReduceScatter (dp: reduce_scatter gradients)", "reducescatter")},
    }


def test_kernels_know_their_stage_and_microbatch(events: list[Event]) -> None:
    kernels = [e for e in events if e.get("name") == "GEMM" and e["pid"] == 2]
    assert (kernels[0]["args"]["stage"], kernels[0]["args"]["microbatch"]) == (2, 0)
    assert {kernel["args"]["stage"] for kernel in kernels} == {2, 6}


def test_memory_is_a_counter_in_order(result: Result, events: list[Event]) -> None:
    for pid, stage in enumerate(result.memory):
        points = [event for event in events if event["ph"] == "C" and event["pid"] == pid]
        assert [point["ts"] for point in points] == sorted(point["ts"] for point in points)
        assert points[0]["args"]["GB"] == pytest.approx(stage.static_bytes / 1e9)
        held_bytes = stage.static_bytes + stage.terms["activations"]
        assert max(point["args"]["GB"] for point in points) == pytest.approx(held_bytes / 1e9)


def test_arrows_join_each_action_to_the_one_that_waits_for_it(events: list[Event]) -> None:
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    slices = {
        (s["pid"], s["ts"]): s["name"] for (_, tid), row in threads(events).items() if tid == 0 for s in row
    }
    assert starts.keys() == ends.keys()
    assert len(starts) == 2 * 7 * 8  # both ways over the 7 boundaries of 8 stages, 8 microbatches
    joined = set()
    for number, start in starts.items():
        end = ends[number]
        assert start["ts"] < end["ts"]
        assert start["pid"] != end["pid"]
        assert end["bp"] == "e"
        joined.add((slices[start["pid"], start["ts"]], slices[end["pid"], end["ts"]]))
    assert ("0F3", "1F3") in joined
    assert ("1B3", "0B3") in joined


def test_no_arrows_where_classes_share_a_stage(result: Result) -> None:
    shared = replace(result, ranks=(*result.ranks, result.ranks[0]))
    assert not [e for e in trace_document(shared)["traceEvents"] if e["ph"] in "sf"]


def test_files_hold_the_document_and_are_the_same_every_time(result: Result, tmp_path: Path) -> None:
    plain, packed, again = (tmp_path / name for name in ("t.json", "t.json.gz", "again.json.gz"))
    for path in (plain, packed, again):
        write_trace(result, path)
    assert orjson.loads(plain.read_bytes()) == orjson.loads(orjson.dumps(trace_document(result)))
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert packed.read_bytes() == again.read_bytes()


def test_one_class_alone_for_tools_that_want_a_file_a_rank(result: Result) -> None:
    document = trace_document(result, rank=3)
    assert document["distributedInfo"] == {"backend": "nccl", "rank": 48, "world_size": 64}
    assert {event["pid"] for event in document["traceEvents"]} == {3}
    with pytest.raises(ValueError, match=r"class 4: .*4"):
        trace_document(result, rank=4)


def test_a_folder_gets_a_file_for_each_class(result: Result, tmp_path: Path) -> None:
    files = write_traces(result, tmp_path)
    assert [path.name for path in files] == [f"rank-{n}.json.gz" for n in (0, 16, 32, 48)]
    alone = orjson.loads(gzip.decompress(files[2].read_bytes()))
    assert alone == orjson.loads(orjson.dumps(trace_document(result, rank=2)))


def test_other_suffixes_are_refused(result: Result, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"trace\.txt.*\.json or \.json\.gz"):
        write_trace(result, tmp_path / "trace.txt")
    assert not list(tmp_path.iterdir())
