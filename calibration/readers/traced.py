"""What profilers' traces have in common: torch's operators as kernels, and what overlaps what.

Knows the operators' arguments by their shapes, as torch's profiler records them and as its NVTX ranges
spell them. Knows no file format.

Sources: PyTorch aten/src/ATen/native/native_functions.yaml (the operators' arguments); NVIDIA/nccl
src/device/generate.py (names of kernels), ROCm/rccl.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from ...kernels.kernel import Attention, Gemm, Implementation, Kernel
from .foreign.values import shown, whole
from .kernel_kinds import kind_of_kernel
from .measurements import Measurement
from .tables import shape_family

DTYPES = {
    "c10::BFloat16": "bf16",
    "c10::Half": "fp16",
    "float": "fp32",
    "c10::Float8_e4m3fn": "fp8",
    "c10::Float8_e5m2": "fp8",
}
_ATTENTION: dict[str, Implementation] = {
    "aten::_scaled_dot_product_flash_attention": "fa2",
    "aten::_scaled_dot_product_cudnn_attention": "cudnn",
    "aten::_scaled_dot_product_flash_attention_backward": "fa2",
    "aten::_scaled_dot_product_cudnn_attention_backward": "cudnn",
}
_CAUSAL = {"forward": 4, "backward": 11}  # place of is_causal among the arguments of flash attention
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "sendrecv",
    "reduce": "reduce",
}

Dims = Sequence[Sequence[int]]
Span = tuple[float, float]

# ncclKernel_..., ncclDevKernel_..., ncclSymkDevKernel_... (2.28), RCCL's ncclDevKernel_Generic_4.
_NCCL_KERNEL = re.compile(r"(?:nccl|rccl)\w*?kernel_?", re.IGNORECASE)


def shapes_of(where: str, value: Any) -> list[list[int]]:
    """The shape of every argument of an operator; empty for what is not a tensor, or a list of tensors.

    ValueError for what is not a list of lists, and for sizes that no tensor has.
    """
    if type(value) is not list:
        raise ValueError(f"{where}: {shown(value)} where a list of shapes must stand")
    found: list[list[int]] = []
    for one in value:
        if type(one) is not list:
            raise ValueError(f"{where}: {shown(one)} where the shape of an argument must stand")
        tensor = not any(type(size) is list for size in one)
        found.append([whole(where, size) for size in one] if tensor else [])
    return found


def kernel_of(operator: str, dims: Dims, dtype: str, arguments: Sequence[Any] = ()) -> Kernel | None:
    """The kernel of an operator by the shapes of its arguments; None for one that no curve prices.

    GEMMs of empty tensors launch nothing to be timed.
    """
    shapes = [tuple(one) for one in dims]
    if operator == "aten::mm" and len(shapes) >= 2:
        return _gemm(shapes[0], shapes[1], dtype)
    if operator in ("aten::addmm", "aten::baddbmm") and len(shapes) >= 3:
        return _gemm(shapes[1], shapes[2], dtype)
    if operator == "aten::bmm" and len(shapes) >= 2:
        return _gemm(shapes[0], shapes[1], dtype)
    if operator in _ATTENTION and len(shapes) >= 4:
        return _attention(operator, shapes, dtype, arguments)
    return None


def _gemm(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> Gemm | None:
    if len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2] or 0 in (*a, *b):
        return None
    return Gemm(m=a[-2], n=b[-1], k=a[-1], dtype=dtype, batch=a[0] if len(a) == 3 else 1)


def _attention(
    operator: str, shapes: Sequence[tuple[int, ...]], dtype: str, arguments: Sequence[Any]
) -> Attention | None:
    """Query, key, value as (batch, heads, length, head dimension); the backward has the gradient first."""
    backward = operator.endswith("_backward")
    query, key = (shapes[1], shapes[2]) if backward else (shapes[0], shapes[1])
    if len(query) != 4 or len(key) != 4 or 0 in (*query, *key):
        return None
    place = _CAUSAL["backward" if backward else "forward"]
    causal = len(arguments) > place and str(arguments[place]).lower() in ("true", "1")
    return Attention(
        batch=query[0],
        seq_q=query[2],
        seq_kv=key[2],
        heads=query[1],
        kv_heads=key[1],
        head_dim=query[3],
        causal=causal,
        dtype=dtype,
        implementation=_ATTENTION[operator],
        direction="backward" if backward else "forward",
    )


def collective_of(name: str) -> str | None:
    """The collective of an NCCL kernel or record, such as ``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``."""
    plain = _NCCL_KERNEL.sub("", name, count=1).lower().replace("_", "")
    return next((kind for word, kind in _COLLECTIVES.items() if plain.startswith(word)), None)


def is_collective(kernel_name: str) -> bool:
    """Whether a kernel moves data between ranks: those of NCCL and RCCL, and of libraries in their place."""
    return kind_of_kernel(kernel_name) == "communication"


def measurements_of(found: Iterable[tuple[Kernel, float]], gpu: str, file: str) -> tuple[Measurement, ...]:
    """A point for each distinct kernel: the median of its durations."""
    durations: dict[Kernel, list[float]] = {}
    for kernel, seconds in found:
        durations.setdefault(kernel, []).append(seconds)
    return tuple(
        Measurement(
            id=f"{file}: {kernel}",
            gpu=gpu,
            source=file,
            kernels=(kernel,),
            seconds=median(times),
            operation="gemm" if isinstance(kernel, Gemm) else "attention",
            family=shape_family(kernel),
        )
        for kernel, times in durations.items()
    )


def facts_of(
    devices: Iterable[tuple[Iterable[Span], Iterable[Span]]], steps_s: Sequence[float], steps: int
) -> dict[str, str]:
    """Step time and overlap as text: what a trace tells people besides its kernels.

    ``devices`` are the spans of compute and of communication of each, within ``steps`` steps if there are
    some.
    """
    total_s = beside_s = 0.0
    count = 0
    for compute, communication in devices:
        sent = merged(communication)
        total_s += sum(end - begin for begin, end in sent)
        beside_s += overlap_s(merged(compute), sent)
        count += 1
    facts: dict[str, str] = {}
    if steps_s:
        facts["step time"] = f"{median(steps_s):.6g} s (median of {steps})"
    if total_s:
        each = "a step" if steps else "in all"
        mean_s = total_s / (count * max(1, steps))
        facts["communication"] = f"{mean_s:.6g} s {each}, {beside_s / total_s:.1%} of it beside kernels"
    return facts


def merged(spans: Iterable[Span]) -> list[Span]:
    """Disjoint spans in order, covering the same time."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def overlap_s(a: Sequence[Span], b: Sequence[Span]) -> float:
    """Time that disjoint, ordered spans share.

    >>> overlap_s([(0.0, 2.0), (3.0, 5.0)], [(1.0, 4.0)])
    2.0
    """
    i = j = 0
    shared = 0.0
    while i < len(a) and j < len(b):
        shared += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return shared


def payload_bytes(kind: str, sent: float, received: float, ranks: int) -> float:
    """The payload as nccl-tests counts it, from the bytes that a rank hands in and gets out."""
    if kind == "all_gather":
        return received or sent * ranks
    return sent if math.isfinite(sent) and sent else received
