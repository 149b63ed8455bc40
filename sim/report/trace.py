"""A Result as traces that Perfetto, chrome://tracing and Holistic Trace Analysis (HTA) open.

Trace Event Format (JSON object form) with the names that PyTorch's profiler (Kineto) gives: rank
classes are processes, streams are threads, kernels are complete events (``ph: X``) in
microseconds with the launch on the host that they correlate with, the step is ``ProfilerStep#0``, collectives
are called ``ncclDevKernel_...``, the memory held is a counter, and arrows lead from each pipeline action to
the one that waits for it. Knows the format; knows no cost.

Sources: pytorch/kineto libkineto/src/output_json.cpp; HolisticTraceAnalysis 0.5 (hta/common/trace.py).
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from ...hardware.files import written
from ...schedules.orders.action import parse_step, parts
from ..result.result import Result
from ..result.step import AXES, MOVING, ActionSpan, Span, StageMemory
from .trace_messages import TraceMessages, nccl_names

Event = dict[str, Any]

SCHEDULE_THREAD = 0
STREAM_ORDER = ("compute", *AXES)
_COPY = re.compile(r"\b(copy|offload|memcpy)\b", re.IGNORECASE)


def write_traces(result: Result, folder: Path) -> list[Path]:
    """Write one trace for each class of ranks into ``folder``: ``rank-16.json.gz`` of the first of them.

    That is what HTA wants of a job: a file a rank. Gives the files. FileError where one cannot be written.
    """
    written_files = []
    for index, ranks in enumerate(result.ranks):
        path = folder / f"rank-{ranks.first_rank}.json.gz"
        write_trace(result, path, rank=index)
        written_files.append(path)
    return written_files


def write_trace(result: Result, path: str | Path, *, rank: int | None = None) -> None:
    """Write the trace, one event a line. ``.gz`` at the end of the name compresses it.

    ``rank`` (index of a rank class) keeps that class alone. Raises ValueError when there is no such class,
    and for a name that ends neither in ``.json`` nor in ``.json.gz``.
    """
    path = Path(path)
    if path.name.endswith(".json"):
        with written(path) as unfinished, unfinished.open("wb") as file:
            file.writelines(trace_lines(result, rank=rank))
    elif path.name.endswith(".json.gz"):
        # no name and no time in the header: the same step gives the same bytes
        with (
            written(path) as unfinished,
            unfinished.open("wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as packed,
        ):
            packed.writelines(trace_lines(result, rank=rank))
    else:
        raise ValueError(f"cannot write a trace to {path.name!r}: the name must end in .json or .json.gz")


def trace_lines(result: Result, *, rank: int | None) -> Iterator[bytes]:
    """The trace's bytes, event by event. Arguments and errors as ``write_trace``."""
    import orjson

    yield orjson.dumps(_header(result, rank))[:-1] + b',\n"traceEvents":['
    comma = b"\n"
    for event in trace_events(result, rank=rank):
        yield comma + orjson.dumps(event)
        comma = b",\n"
    yield b"\n]}\n"


def _header(result: Result, rank: int | None) -> Event:
    if rank is not None and not 0 <= rank < len(result.ranks):
        raise ValueError(f"no rank class {rank}: there are {len(result.ranks)}, counted from 0")
    from ... import __version__

    # What tells readers of ours that this is a prediction, and which rank each process stands for.
    own: Event = {"version": __version__, "step_time_s": result.step_time_s}
    own["first_ranks"] = [ranks.first_rank for ranks in result.ranks]
    header: Event = {"stepsim": own}
    if result.scenario:
        header["deviceProperties"] = _devices(result)
    return header | {
        "schemaVersion": 1,
        "displayTimeUnit": "ms",
        "traceName": result.scenario.name if result.scenario else "program",
        "distributedInfo": {
            "backend": "nccl",
            "rank": result.ranks[rank or 0].first_rank,
            "world_size": result.gpus,
        },
    }


def _devices(result: Result) -> list[Event]:
    """The GPU of every process of the trace, in Kineto's words."""
    from ...hardware.gpus import get_gpu, gpu_names

    assert result.scenario is not None
    name = result.scenario.cluster.gpu_name
    device: Event = {"name": name}
    if name in gpu_names():
        gpu = get_gpu(name)
        device |= {"totalGlobalMem": round(gpu.hbm_bytes), "numSms": gpu.sms}
    return [{"id": index} | device for index in range(len(result.ranks))]


def trace_events(result: Result, *, rank: int | None) -> Iterator[Event]:
    """Names first, then per process and thread the events in order of time, then arrows."""
    chosen = range(len(result.ranks)) if rank is None else (rank,)
    spans: dict[int, dict[str, list[Span]]] = {index: {} for index in chosen}
    for span in result.iter_spans():
        if span.rank in spans:
            spans[span.rank].setdefault(span.stream, []).append(span)
    actions: dict[int, list[ActionSpan]] = {index: [] for index in chosen}
    for action in result.actions:
        if action.rank in actions:
            actions[action.rank].append(action)
    memory = {stage.pp: stage for stage in result.memory}
    for index in chosen:
        spans[index] = _in_lanes(spans[index])
        streams = sorted(spans[index], key=_stream_order)
        yield from _names(result, index, streams)
        yield _step_event(result, index, host_thread(streams))
        for action in sorted(actions[index], key=lambda a: (a.start_s, a.end_s)):
            yield _action_event(action)
        yield from _kernels(result, index, {stream: spans[index][stream] for stream in streams})
        if result.ranks[index].pp in memory:
            yield from _memory_events(index, memory[result.ranks[index].pp])
    yield from _arrows(result, [action for index in chosen for action in actions[index]])


def _in_lanes(streams: dict[str, list[Span]]) -> dict[str, list[Span]]:
    """Each stream's spans, those that overlap (messages bound to no stream's order) on lanes of their own."""
    lanes: dict[str, list[Span]] = {}
    for stream, spans in streams.items():
        own: list[list[Span]] = []
        for span in sorted(spans, key=lambda s: (s.start_s, s.end_s)):
            free = next(
                (lane for lane in own if round(lane[-1].end_s * 1e9) <= round(span.start_s * 1e9)), None
            )
            if free is None:
                own.append([span])
            else:
                free.append(span)
        for number, lane in enumerate(own, start=1):
            lanes[stream if number == 1 else f"{stream} {number}"] = lane
    return lanes


def _stream_order(stream: str) -> tuple[int, str]:
    return (STREAM_ORDER.index(stream) if stream in STREAM_ORDER else len(STREAM_ORDER)), stream


def _names(result: Result, index: int, streams: list[str]) -> Iterator[Event]:
    ranks = result.ranks[index]
    stands_for = f"rank {ranks.first_rank}" + (f" and {ranks.count - 1:,} like it" if ranks.count > 1 else "")

    def named(kind: str, thread: int, **arguments: str | int) -> Event:
        return {"ph": "M", "name": kind, "pid": index, "tid": thread, "args": arguments}

    yield named("process_name", SCHEDULE_THREAD, name=f"{stands_for} ({ranks.name})")
    yield named("process_sort_index", SCHEDULE_THREAD, sort_index=index)
    for thread, name in enumerate(("schedule", *(f"stream {stream}" for stream in streams), "host")):
        yield named("thread_name", thread, name=name)
        yield named("thread_sort_index", thread, sort_index=thread)


def _when(start_s: float, end_s: float) -> Event:
    """``ts`` and ``dur`` in microseconds, both cut to whole nanoseconds so that what touches in the
    simulation touches in the file and never overlaps."""
    start_ns, end_ns = round(start_s * 1e9), round(end_s * 1e9)
    return {"ts": start_ns / 1000, "dur": (end_ns - start_ns) / 1000}


def _action_event(action: ActionSpan) -> Event:
    return {
        "ph": "X",
        "cat": "gpu_user_annotation",
        "name": f"{action.stage}{action.kind}{action.microbatch}",
        "pid": action.rank,
        "tid": SCHEDULE_THREAD,
        **_when(action.start_s, action.end_s),
        "args": {"stage": action.stage, "microbatch": action.microbatch},
    }


def host_thread(streams: list[str]) -> int:
    """The thread of the host, behind those of the schedule and of the streams."""
    return len(streams) + 1


def _step_event(result: Result, index: int, thread: int) -> Event:
    """The step as the profiler marks it on the host."""
    return {
        "ph": "X",
        "cat": "user_annotation",
        "name": "ProfilerStep#0",
        "pid": index,
        "tid": thread,
        **_when(0.0, result.step_time_s),
    }


def _kernels(result: Result, index: int, streams: dict[str, list[Span]]) -> Iterator[Event]:
    """The kernels of a class, stream by stream in order of time, and then their launches in order of issue.

    A launch and its kernel have the same ``correlation``, as CUPTI numbers them.
    """
    messages = TraceMessages(scenario=result.scenario, rank=result.ranks[index].first_rank)
    launched: list[tuple[Span, int, str]] = []
    for thread, spans in enumerate(streams.values(), start=1):
        for span in sorted(spans, key=lambda s: (s.start_s, s.end_s)):
            event = _span_event(span, thread, messages)
            if event["cat"] != "cpu_op":
                launched.append((span, len(launched) + 1, str(event["cat"])))
                event["args"]["correlation"] = len(launched)
            yield event
    yield from _launches(launched, index, host_thread(list(streams)), result.step_time_s)


def _launches(
    launched: list[tuple[Span, int, str]], index: int, thread: int, step_time_s: float
) -> Iterator[Event]:
    """The calls of the host: each ends when its kernel is issued and lasts as long as one usually does here.

    The last call waits for the GPU, as the host does at the end of a step.
    """
    launched.sort(key=lambda one: (one[0].issued_s, one[0].start_s, one[1]))
    times = [0.0, *(span.issued_s for span, _, _ in launched)]
    gaps = [after - before for before, after in pairwise(times) if after > before]
    usual_s = median(gaps) if gaps else 0.0
    for before, (span, number, category) in zip(times, launched, strict=False):
        begin = max(before, span.issued_s - usual_s)
        name = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
        yield _call(name, index, thread, (begin, span.issued_s), number)
    if launched:
        yield _call("cudaDeviceSynchronize", index, thread, (times[-1], step_time_s), len(launched) + 1)


def _call(name: str, index: int, thread: int, when: tuple[float, float], correlation: int) -> Event:
    return {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": name,
        "pid": index,
        "tid": thread,
        **_when(*when),
        "args": {"correlation": correlation},
    }


def event_category(span: Span) -> str:
    """What Kineto calls such a span: a kernel of the GPU, a copy on it, or an operator of the host."""
    if span.is_message:
        return "kernel"
    if span.stream == "host":
        return "cpu_op"
    return "gpu_memcpy" if _COPY.search(span.name) and span.category != "optimizer" else "kernel"


def _span_event(span: Span, thread: int, messages: TraceMessages) -> Event:
    arguments: Event = {"device": span.rank, "stream": thread, "bytes": span.bytes, "flops": span.flops}
    name, category = span.name, event_category(span)
    if span.is_message:
        arguments |= messages.arguments(span)
        name = f"{nccl_names(span.name)[0]} ({span.category}: {span.name})"
    elif category == "cpu_op":
        del arguments["stream"]  # what has a stream is of the GPU
    if span.action:
        arguments["stage"], arguments["microbatch"] = _stage_and_microbatch(span.action)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": span.rank,
        "tid": thread,
        **_when(span.start_s, span.end_s),
        "args": arguments | {"category": span.category, "kind": span.kind},
    }


@lru_cache(maxsize=65536)
def _stage_and_microbatch(action: str) -> tuple[int, int]:
    parsed = parts(parse_step(action))[0]
    return parsed.stage, parsed.microbatch


def _memory_events(index: int, stage: StageMemory) -> Iterator[Event]:
    """What is held all through the step plus what comes and goes, in GB; and that by term."""
    points = stage.timeline or ((0.0, 0.0),)
    for time_s, moving_bytes in sorted(points, key=lambda point: point[0]):
        yield _counter(index, "memory GB", time_s, {"GB": (stage.static_bytes + moving_bytes) / 1e9})
    for time_s, sizes in stage.moving:
        terms = {"held": stage.static_bytes, **dict(zip(MOVING, sizes, strict=True))}
        terms["allocator"] = stage.beside_bytes
        yield _counter(index, "memory by term GB", time_s, {name: size / 1e9 for name, size in terms.items()})


def _counter(index: int, name: str, time_s: float, args: dict[str, float]) -> Event:
    return {"ph": "C", "name": name, "pid": index, "ts": round(time_s * 1e9) / 1000, "args": args}


def _arrows(result: Result, actions: list[ActionSpan]) -> Iterator[Event]:
    """Arrows from every forward to that of the next stage, and from every backward to that of the stage
    before."""
    if len({ranks.pp for ranks in result.ranks}) < len(result.ranks):
        return  # several classes share a stage: which of them talk to each other is not said
    found = {(a.kind, a.stage, a.microbatch): a for a in actions}
    number = 0
    for (kind, stage, microbatch), source in found.items():
        target = found.get((kind, stage + (1 if kind == "F" else -1), microbatch))
        if kind == "W" or target is None or target.rank == source.rank:
            continue
        number += 1
        what = "activations" if kind == "F" else "gradients"
        yield _arrow_end("s", what, number, source)
        yield {**_arrow_end("f", what, number, target), "bp": "e"}


def _arrow_end(phase: str, what: str, number: int, action: ActionSpan) -> Event:
    return {
        "ph": phase,
        "cat": "p2p",
        "name": what,
        "id": number,
        "pid": action.rank,
        "tid": SCHEDULE_THREAD,
        "ts": _when(action.start_s, action.end_s)["ts"],
    }
