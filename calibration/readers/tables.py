"""Measured kernels and collectives from CSV: ours, and anyone's with the same columns.

A table of kernels needs ``family`` (gemm, attention, memory; others are passed over), ``gpu``,
``dtype``, ``seconds``; a GEMM ``m n k``, attention ``seq_q heads head_dim direction``, a memory-bound
kernel ``hbm_bytes``. A table of collectives needs ``kind ranks hosts bytes seconds gpu``. All other
columns may be left out: batch 1, kv_heads as heads, seq_kv as seq_q, causal 0, out_bytes 2. Further columns
are those of other tools; one of ours that holds something else is an error by file, line and column.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...hardware.calibrated.models import CPU
from ...hardware.catalogue import unknown_name
from ...hardware.collective_kinds import KINDS, known_kind
from ...kernels.kernel import ELEMENT_BYTES, Attention, Gemm, Implementation, Kernel, MemoryBound
from .foreign.csv_table import Line, read_table_of
from .foreign.values import LARGEST_BYTES, LARGEST_SIZE, shown, written_flag, written_seconds, written_whole
from .measured import Measured, MeasuredCollective, domains_of
from .measurements import Measurement, missing_math
from .named_gpus import StatedGpu, agreed_gpu, name_of, named_gpu
from .point_fields import LARGEST_HEAD

_KERNELS = ("family", "gpu", "dtype", "seconds")
_COLLECTIVES = ("kind", "ranks", "hosts", "bytes", "seconds", "gpu")
_FACTS = ("device", "driver", "cuda", "torch", "nccl", "backend", "stepsim", "date", "command")
_STREAMS = ("copy", "triad")
# Ours (triton) is written after FlashAttention-2, and torch's own is it.
_ATTENTION: Mapping[str, Implementation] = {
    "": "fa2", "fa1": "fa1", "fa2": "fa2", "fa3": "fa3", "cudnn": "cudnn", "aiter": "aiter",
    "aiter_fp32": "aiter_fp32", "triton": "fa2",
}  # fmt: skip
_MOST_RANKS = 10**7
_CHAIN = "torch"  # a chain of kernels, not one


def read_table(path: Path, gpu: StatedGpu | None = None, content: bytes | None = None) -> Measured:
    """The measurements of a CSV file, or of ``content`` of that name; ``gpu`` is of lines that name none.

    Raises ValueError naming file, line and column: for an empty file, missing columns, what is no
    number where one belongs, an unknown name, lines of several GPUs.
    """
    table = read_table_of(path, content)
    columns, lines = table.columns, table.lines
    if not columns:
        raise ValueError(f"{path}: is empty; a table of measurements begins with its column names")
    collectives = "kind" in columns and "ranks" in columns
    missing = [name for name in (_COLLECTIVES if collectives else _KERNELS) if name not in columns]
    if missing:
        what = "collectives" if collectives else "kernels"
        raise ValueError(f"{path}: a table of measured {what} lacks the columns {', '.join(missing)}")
    if not lines:
        raise ValueError(f"{path}: has column names but no measurements")
    measured = _gpu(path, lines, gpu)
    name = name_of(measured)
    if collectives:
        return Measured(
            file=str(path),
            gpu=name,
            collectives=tuple(_collective(path, *line, measured) for line in lines),
            facts=_facts(lines[0][1]),
        )
    passed: Counter[str] = Counter()
    kernels = [_kernel_point(path, number, line, measured, passed) for number, line in lines]
    return Measured(
        file=str(path),
        gpu=name,
        kernels=tuple(one for one in kernels if one is not None),
        passed_over=dict(passed),
        facts=_facts(lines[0][1]),
    )


def _facts(line: Line) -> dict[str, str]:
    return {name: line[name] for name in _FACTS if line.get(name)}


def _gpu(path: Path, lines: Sequence[tuple[int, Line]], stated: StatedGpu | None) -> StatedGpu:
    """The one GPU of all lines: ``stated`` where they name none, else theirs, which must be the same."""
    own = {CPU} | ({name_of(stated)} if stated else set())
    named: dict[str, int] = {}
    for number, line in lines:
        if text := (line.get("gpu") or "").strip():
            named.setdefault(text if text in own else named_gpu(f"{path}:{number}", text), number)
    if len(named) > 1:
        (first, _), (second, number), *_ = named.items()
        raise ValueError(f"{path}:{number}: gpu: {second} after {first}; a table must be of one GPU")
    if gpu := agreed_gpu(path, next(iter(named), None), stated):
        return gpu
    if all(line.get("device") and line.get("cuda") == "" for _, line in lines):
        return CPU  # the tables of this package name the device, and CUDA's version where there is a GPU
    raise ValueError(f"{path}: names no GPU of the catalogue; give --gpu")


def _collective(path: Path, number: int, line: Line, gpu: StatedGpu) -> MeasuredCollective:
    where = f"{path}:{number}"
    kind = known_kind(line["kind"])
    if kind is None:
        raise ValueError(f"{where}: kind: {unknown_name('collective', line['kind'].strip(), KINDS)}")
    ranks = _whole(where, line, "ranks", low=2, high=_MOST_RANKS)
    hosts = _whole(where, line, "hosts", high=_MOST_RANKS)
    if ranks % hosts:
        raise ValueError(f"{where}: hosts: {ranks} ranks do not divide over {hosts} hosts equally")
    if line.get("correct", "").strip() and not written_flag(f"{where}: correct", line["correct"]):
        raise ValueError(f"{where}: correct: the result of this collective was wrong; measure it again")
    return MeasuredCollective(
        kind=kind,
        ranks=ranks,
        domains=hosts if gpu == CPU else domains_of(gpu, ranks, hosts),
        bytes=float(_whole(where, line, "bytes", high=LARGEST_BYTES)),
        seconds=written_seconds(where, line["seconds"]),
    )


def _kernel_point(
    path: Path, number: int, line: Line, gpu: StatedGpu, passed: Counter[str]
) -> Measurement | None:
    where, family = f"{path}:{number}", line["family"].strip()
    if family not in ("gemm", "attention", "memory"):
        passed[f"{family or 'no family'}: no curve is fitted on it"] += 1
        return None
    seconds = written_seconds(where, line["seconds"])
    if gpu == CPU:
        passed["kernels of a CPU: there is no cost model of one"] += 1
        return None
    if family == "attention" and line.get("implementation", "").strip() == _CHAIN:
        passed["attention as a chain of kernels: no curve is fitted on it"] += 1
        return None
    kernel = _kernel(where, line, family)
    if lack := missing_math(gpu, [kernel]):
        raise ValueError(f"{where}: dtype: {lack}")
    operation = (line.get("operation") or family) if family == "memory" else family
    return Measurement(
        id=line.get("id") or f"{path.name}:{number}",
        gpu=name_of(gpu),
        source=path.name,
        kernels=(kernel,),
        seconds=seconds,
        operation="stream" if operation in _STREAMS else operation,
        family=line.get("shapes") or shape_family(kernel),
    )


def _kernel(where: str, line: Line, family: str) -> Kernel:
    dtype = line["dtype"].strip()
    if dtype not in ELEMENT_BYTES:
        raise ValueError(f"{where}: dtype: {unknown_name('data type', dtype, ELEMENT_BYTES)}")
    batch = _whole(where, line, "batch", default=1)
    if family == "gemm":
        return Gemm(
            m=_whole(where, line, "m"),
            n=_whole(where, line, "n"),
            k=_whole(where, line, "k"),
            dtype=dtype,
            batch=batch,
            out_bytes=_whole(where, line, "out_bytes", default=2, high=8),
            accumulate=written_flag(f"{where}: accumulate", line.get("accumulate")),
        )
    if family == "memory":
        return MemoryBound(
            hbm_bytes=float(_whole(where, line, "hbm_bytes", high=LARGEST_BYTES)),
            launches=_whole(where, line, "launches", default=1, high=10**6),
        )
    return _attention(where, line, dtype, batch)


def _attention(where: str, line: Line, dtype: str, batch: int) -> Attention:
    direction = line.get("direction", "").strip() or "forward"
    if direction not in ("forward", "backward"):
        raise ValueError(f"{where}: direction: {shown(direction)}; known: forward, backward")
    heads, length = _whole(where, line, "heads"), _whole(where, line, "seq_q")
    implementation = line.get("implementation", "").strip()
    if implementation not in _ATTENTION:
        known = tuple(filter(None, _ATTENTION))
        raise ValueError(f"{where}: implementation: {unknown_name('attention', implementation, known)}")
    return Attention(
        batch=batch,
        seq_q=length,
        seq_kv=_whole(where, line, "seq_kv", default=length),
        heads=heads,
        kv_heads=_whole(where, line, "kv_heads", default=heads),
        head_dim=_whole(where, line, "head_dim", high=LARGEST_HEAD),
        causal=written_flag(f"{where}: causal", line.get("causal")),
        dtype=dtype,
        implementation=_ATTENTION[implementation],
        direction="forward" if direction == "forward" else "backward",
    )


def shape_family(kernel: Kernel) -> str:
    """Shapes that are alike: one weight under any tokens, one attention of all lengths, one traffic."""
    match kernel:
        case Gemm():
            return f"gemm {tuple(sorted((kernel.n, kernel.k)))}"
        case Attention():
            return f"attention {kernel.heads} {kernel.kv_heads} {kernel.head_dim} {kernel.causal}"
        case MemoryBound():
            return f"memory {math.log2(max(kernel.hbm_bytes, 1.0)):.0f}"


def _whole(
    where: str, line: Line, name: str, *, low: int = 1, high: int = LARGEST_SIZE, default: int | None = None
) -> int:
    cell = line.get(name, "").strip()
    if not cell and default is not None:
        return default
    return written_whole(f"{where}: {name}", cell, low=low, high=high)
