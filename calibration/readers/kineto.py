"""Traces of torch's profiler (Kineto, Chrome's trace format), plain or gzipped.

Knows how a kernel finds the operator that launched it (``External id``), the shapes of that operator's
arguments (``record_shapes=True``), NCCL's records (message sizes, group), and steps (``ProfilerStep#3``).

Sources: pytorch/kineto libkineto/src/output_json.cpp; torch/csrc/distributed/c10d/ParamCommsUtils.hpp
(collective records); torch/profiler/profiler.py (steps).
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...kernels.kernel import Kernel
from ..nccl_system import gpu_named
from .measured import Measured, MeasuredCollective, domains_of
from .traced import DTYPES, collective_of, facts_of, is_collective, kernel_of, measurements_of, payload_bytes

_MICRO = 1e-6
_BYTES = {"bfloat16": 2, "half": 2, "float16": 2, "float": 4, "float32": 4, "int": 4, "long": 8, "byte": 1}
_NO_SHAPES = "kernels whose operator has no shapes (record with record_shapes=True)"
_OTHERS = "kernels that no curve prices"

Event = Mapping[str, Any]


def read_trace(path: Path, gpu: str | None = None) -> Measured:
    """Kernels by shape, collectives with their sizes, step time and overlap of a trace.

    Raises ValueError naming the file: not JSON, no trace, no kernel of a GPU, an unknown GPU, or another
    one than ``gpu``.
    """
    document = _document(path)
    events = [one for one in document["traceEvents"] if isinstance(one, dict) and one.get("ph") == "X"]
    name = _gpu(path, document, gpu)
    kernels = [one for one in events if str(one.get("cat", "")).lower() == "kernel"]
    if not kernels:
        raise ValueError(f"{path}: has no kernel of a GPU; profile with ProfilerActivity.CUDA")
    operators = _operators(events)
    passed: Counter[str] = Counter()
    found = _kernels([one for one in kernels if not is_collective(str(one["name"]))], operators, passed)
    sent = [one for one in kernels if is_collective(str(one["name"]))]
    hosts = _hosts(document)
    collectives = [c for one in sent if (c := _collective(one, name, hosts, passed)) is not None]
    compute = [_span(one) for one in kernels if not is_collective(str(one["name"]))]
    steps = [_span(one) for one in events if str(one.get("name", "")).startswith("ProfilerStep#")]
    return Measured(
        file=str(path),
        gpu=name,
        kernels=measurements_of(found, name, path.name),
        collectives=_quickest(collectives),
        passed_over=dict(passed),
        facts=facts_of(compute, map(_span, sent), [end - begin for begin, end in steps])
        | {"device": _device(document)},
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.name.endswith(".gz"):
            with gzip.open(path, "rt", encoding="utf-8") as file:
                document = json.load(file)
        else:
            document = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: not a trace: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise ValueError(f"{path}: not a trace of torch's profiler: it has no list traceEvents")
    return document


def _device(document: Mapping[str, Any]) -> str:
    properties = document.get("deviceProperties") or []
    return str(properties[0].get("name", "")) if properties else ""


def _gpu(path: Path, document: Mapping[str, Any], stated: str | None) -> str:
    """The catalogue's name of the traced GPU, by deviceProperties or as stated; both must agree."""
    device = _device(document)
    found = gpu_named(device)
    if found and stated and found != stated:
        raise ValueError(f"{path}: is of {device} ({found}), not of {stated} as --gpu says")
    if found or stated:
        return found or str(stated)
    raise ValueError(f"{path}: no GPU of the catalogue in deviceProperties ({device!r}); give --gpu")


def _hosts(document: Mapping[str, Any]) -> int:
    """GPUs of one host, as far as the trace says: those that it lists."""
    return max(1, len(document.get("deviceProperties") or [0]))


def _operators(events: Iterable[Event]) -> dict[int, Event]:
    """The outermost priced operator with shapes of each External id: a linear layer holds its product."""
    found: dict[int, Event] = {}
    for one in events:
        if one.get("cat") == "cpu_op" and "External id" in one.get("args", {}):
            found[int(one["args"]["External id"])] = one
    return found


def _kernels(
    kernels: Iterable[Event], operators: Mapping[int, Event], passed: Counter[str]
) -> list[tuple[Kernel, float]]:
    """Operators that a curve prices, each with the seconds of all its kernels."""
    seconds: dict[int, float] = {}
    for one in kernels:
        launched_by = one.get("args", {}).get("External id")
        if launched_by is None or int(launched_by) not in operators:
            passed[_NO_SHAPES] += 1
            continue
        begin, end = _span(one)
        seconds[int(launched_by)] = seconds.get(int(launched_by), 0.0) + end - begin
    found = []
    for identity, total_s in seconds.items():
        kernel = _priced(operators[identity])
        if kernel is None:
            passed[_OTHERS] += 1
        elif total_s > 0:
            found.append((kernel, total_s))
    return found


def _priced(operator: Event) -> Kernel | None:
    args = operator.get("args", {})
    dims, types = args.get("Input Dims") or [], args.get("Input type") or []
    matrices = [t for t, d in zip(types, dims, strict=False) if isinstance(d, list) and len(d) >= 2]
    dtype = DTYPES.get(str(matrices[0])) if matrices else None
    if dtype is None or not all(isinstance(d, list) for d in dims):
        return None
    # An argument that is no tensor has an empty list; a list of tensors has lists within.
    shapes = [d if all(isinstance(size, int) for size in d) else [] for d in dims]
    return kernel_of(str(operator["name"]), shapes, dtype, args.get("Concrete Inputs") or ())


def _collective(one: Event, gpu: str, per_host: int, passed: Counter[str]) -> MeasuredCollective | None:
    args = one.get("args", {})
    kind = collective_of(str(args.get("Collective name") or one["name"]).lstrip("_")) or collective_of(
        str(one["name"])
    )
    sent, received, ranks = (args.get(name) for name in ("In msg nelems", "Out msg nelems", "Group size"))
    size = _BYTES.get(str(args.get("dtype", "")).lower())
    if kind is None or sent is None or ranks is None or size is None or int(ranks) < 2:
        passed["collectives without message size, type or group (torch 2.4 or newer writes them)"] += 1
        return None
    ranks = int(ranks)
    payload = payload_bytes(kind, float(sent) * size, float(received or 0) * size, ranks)
    begin, end = _span(one)
    hosts = max(1, -(-ranks // per_host)) if per_host > 1 else 1
    if payload <= 0 or end <= begin or ranks % hosts:
        passed["collectives of no bytes or no time"] += 1
        return None
    return MeasuredCollective(
        kind=kind, ranks=ranks, domains=domains_of(gpu, ranks, hosts), bytes=payload, seconds=end - begin
    )


def _quickest(found: Iterable[MeasuredCollective]) -> tuple[MeasuredCollective, ...]:
    """Of each group and size the quickest: the kernels of others waited for late peers before they began."""
    best: dict[tuple[str, int, int, float], MeasuredCollective] = {}
    for one in found:
        key = one.kind, one.ranks, one.domains, one.bytes
        if key not in best or one.seconds < best[key].seconds:
            best[key] = one
    return tuple(best.values())


def _span(one: Event) -> tuple[float, float]:
    begin = float(one["ts"]) * _MICRO
    return begin, begin + float(one.get("dur", 0.0)) * _MICRO
