"""Traces of torch's profiler (Kineto, Chrome's trace format), plain or gzipped.

Knows how a kernel finds the operator that launched it (``External id``), the shapes of that operator's
arguments (``record_shapes=True``), NCCL's records (message sizes, group), and steps (``ProfilerStep#3``).
Traces that this package wrote are predictions: read for people, never as measurements.

Sources: pytorch/kineto libkineto/src/output_json.cpp; torch/csrc/distributed/c10d/ParamCommsUtils.hpp
(collective records); torch/profiler/profiler.py (steps).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...hardware.files import TRACES, load_json, read_bytes, unpacked
from ...kernels.kernel import Kernel
from .events import Events, GpuEvent, Operator, events_of
from .foreign.gpu_named import gpu_named
from .foreign.kinds import named_document
from .foreign.values import LARGEST_BYTES, number, shown, text, whole
from .groups import TraceGroups, groups_of
from .measured import Measured, MeasuredCollective
from .named_gpus import StatedGpu, agreed_gpu, name_of
from .traced import (
    DTYPES,
    Span,
    collective_of,
    facts_of,
    is_collective,
    kernel_of,
    measurements_of,
    payload_bytes,
    shapes_of,
)

_BYTES = {"bfloat16": 2, "half": 2, "float16": 2, "float": 4, "float32": 4, "int": 4, "long": 8, "byte": 1}
_NO_SHAPES = "kernels whose operator has no shapes (record with record_shapes=True)"
_OTHERS = "kernels that no curve prices"
_NO_SIZES = "collectives without message size, type or group (torch 2.4 or newer writes them)"
_NO_RANKS = "collectives of a group of which the trace does not say which ranks it has"
_PREDICTED = "kernels that stepsim predicted: no measurements, so that no fit may learn from them"


def read_trace(path: Path, gpu: StatedGpu | None = None, content: bytes | None = None) -> Measured:
    """Kernels by shape, collectives with their sizes, step time and overlap of a trace in ``path``, or in
    ``content`` of that name.

    Raises ValueError naming the file, and the event where one is wrong: not JSON, no trace, no kernel of a
    GPU, an unknown GPU, or another one than ``gpu``.
    """
    document = document_of(path, read_bytes(path) if content is None else content)
    events = events_of(str(path), document["traceEvents"])
    if not events.kernels:
        raise ValueError(f"{path}: has no kernel of a GPU; profile with ProfilerActivity.CUDA")
    devices = devices_of(path, document)
    traced, device = _gpu(path, devices, events, gpu)
    name = name_of(traced)
    passed: Counter[str] = Counter()
    compute = [one for one in events.kernels if not is_collective(one.name)]
    sent = [one for one in events.kernels if is_collective(one.name)]
    found: list[tuple[Kernel, float]] = []
    collectives: list[MeasuredCollective] = []
    steps_s = [end - begin for begin, end in events.steps.values()]
    if "stepsim" in document:
        passed[_PREDICTED] = len(events.kernels)
        steps_s = _predicted_step(path, document["stepsim"])
    else:
        found = _kernels(compute, events, passed)
        groups = groups_of(path, document, traced, len(devices))
        collectives = [c for one in sent if (c := _collective(one, groups, passed)) is not None]
    return Measured(
        file=str(path),
        gpu=name,
        kernels=measurements_of(found, name, path.name),
        collectives=_quickest(collectives),
        passed_over=dict(passed),
        facts=_facts(events, steps_s) | ({"device": device} if device else {}),
    )


def document_of(path: Path, content: bytes) -> dict[str, Any]:
    """The trace: an object with traceEvents, or the bare list of events that Chrome's format allows, too."""
    if path.name.lower().endswith(".gz"):
        content = unpacked(content, path)
    document = load_json(content, path, TRACES)
    if isinstance(document, list) and all(isinstance(one, dict) and "ph" in one for one in document[:1]):
        return {"traceEvents": document}
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        known = named_document(document)
        why = f"is {known}" if known else "has no list traceEvents"
        raise ValueError(f"{path}: not a trace of torch's profiler: it {why}")
    return document


def devices_of(path: Path, document: Mapping[str, Any]) -> list[tuple[int, str, float]]:
    """Number, name and memory in bytes of every GPU that the trace lists: those of one host."""
    properties = document.get("deviceProperties")
    if properties is None:
        return []
    if not isinstance(properties, list):
        raise ValueError(f"{path}: deviceProperties: {shown(properties)} where a list of GPUs must stand")
    found = []
    for index, one in enumerate(properties):
        where = f"{path}: deviceProperties[{index}]"
        if not isinstance(one, dict):
            raise ValueError(f"{where}: {shown(one)} where a block of fields must stand")
        name = text(f"{where}: name", one["name"]) if one.get("name") is not None else ""
        memory = number(f"{where}: totalGlobalMem", one.get("totalGlobalMem") or 0, high=LARGEST_BYTES)
        found.append((whole(f"{where}: id", one.get("id", index)), name, memory))
    return found


def _gpu(
    path: Path, devices: list[tuple[int, str, float]], events: Events, stated: StatedGpu | None
) -> tuple[StatedGpu, str]:
    """The traced GPU, by deviceProperties or as stated, which must agree; and what the trace calls it.

    A host may hold several kinds: that of the kernels counts.
    """
    used = {one.device[1] for one in events.kernels}
    kinds = {(name, memory) for number_, name, memory in devices if number_ in used} or {
        (name, memory) for _, name, memory in devices[:1]
    }
    named = {gpu_named(name, memory) for name, memory in kinds}
    if len(named) > 1:
        raise ValueError(
            f"{path}: has kernels of {', '.join(sorted(n for n, _ in kinds))}; trace one at a time"
        )
    device = min((name for name, _ in kinds), default="")
    if gpu := agreed_gpu(path, next(iter(named), None), stated, device):
        return gpu, device
    raise ValueError(f"{path}: no GPU of the catalogue in deviceProperties ({shown(device)}); give --gpu")


def _kernels(kernels: Iterable[GpuEvent], events: Events, passed: Counter[str]) -> list[tuple[Kernel, float]]:
    """Operators that a curve prices, each with the seconds of all its kernels."""
    seconds: dict[int, float] = {}
    for one in kernels:
        launched_by = one.launched_by
        if launched_by is None or launched_by not in events.operators:
            passed[_NO_SHAPES] += 1
            continue
        begin, end = one.span
        seconds[launched_by] = seconds.get(launched_by, 0.0) + end - begin
    found: list[tuple[Kernel, float]] = []
    for identity, total_s in seconds.items():
        kernel = priced_kernel(events.operators[identity])
        if kernel is None:
            passed[_OTHERS] += 1
        elif total_s > 0:
            found.append((kernel, total_s))
    return found


def priced_kernel(operator: Operator) -> Kernel | None:
    """The kernel that a curve prices, of an operator with shapes; None for any other."""
    args, place = operator.args, operator.place
    shapes = shapes_of(f"{place}: Input Dims", args.get("Input Dims") or [])
    types, concrete = args.get("Input type") or [], args.get("Concrete Inputs") or []
    for name, value in (("Input type", types), ("Concrete Inputs", concrete)):
        if type(value) is not list:
            raise ValueError(f"{place}: {name}: {shown(value)} where a list must stand")
    matrices = [t for t, shape in zip(types, shapes, strict=False) if len(shape) >= 2]
    dtype = DTYPES.get(str(matrices[0])) if matrices else None
    return None if dtype is None else kernel_of(operator.name, shapes, dtype, concrete)


def _collective(one: GpuEvent, groups: TraceGroups, passed: Counter[str]) -> MeasuredCollective | None:
    args, place = one.args, one.place
    kind = collective_of(str(args.get("Collective name") or "").lstrip("_")) or collective_of(one.name)
    size = _BYTES.get(str(args.get("dtype", "")).lower())
    counts: list[int] = []
    for name in ("In msg nelems", "Out msg nelems", "Group size"):
        value = args.get(name)
        counts.append(0 if value is None else whole(f"{place}: {name}", value))
    sent, received, ranks = counts
    if kind is None or args.get("In msg nelems") is None or size is None or ranks < 2:
        passed[_NO_SIZES] += 1
        return None
    domains = groups.domains(args, ranks)
    if domains is None:
        passed[_NO_RANKS] += 1
        return None
    payload = payload_bytes(kind, float(sent) * size, float(received) * size, ranks)
    begin, end = one.span
    if payload <= 0 or end <= begin:
        passed["collectives of no bytes or no time"] += 1
        return None
    return MeasuredCollective(kind=kind, ranks=ranks, domains=domains, bytes=payload, seconds=end - begin)


def _quickest(found: Iterable[MeasuredCollective]) -> tuple[MeasuredCollective, ...]:
    """The quickest collective of each group and size: kernels of others waited for late peers first."""
    best: dict[tuple[str, int, int, float], MeasuredCollective] = {}
    for one in found:
        key = one.kind, one.ranks, one.domains, one.bytes
        if key not in best or one.seconds < best[key].seconds:
            best[key] = one
    return tuple(best.values())


def _predicted_step(path: Path, header: Any) -> list[float]:
    """The step time that this package wrote into the head of its trace."""
    where = f"{path}: stepsim"
    if not isinstance(header, dict):
        raise ValueError(f"{where}: {shown(header)} where a block of fields must stand")
    return [number(f"{where}: step_time_s", header.get("step_time_s"))]


def _facts(events: Events, steps_s: list[float]) -> dict[str, str]:
    """Facts on the kernels that the steps launched, where the trace has steps; each device by itself."""
    devices: dict[object, tuple[list[Span], list[Span]]] = {}
    for one in events.launched_in_steps() if events.steps else events.kernels:
        devices.setdefault(one.device, ([], []))[is_collective(one.name)].append(one.span)
    return facts_of(devices.values(), steps_s, events.step_count or len(steps_s))
