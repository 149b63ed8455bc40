"""What profilers' traces have in common: torch's operators as kernels, and what overlaps what.

Knows the operators' arguments by their shapes, as torch's profiler records them and as its NVTX ranges
spell them. Knows no file format.

Sources: PyTorch aten/src/ATen/native/native_functions.yaml (the operators' arguments).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from ...kernels.kernel import Attention, Gemm, Implementation, Kernel
from ..measurements import Measurement
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
    "alltoall": "alltoall",
    "broadcast": "broadcast",
    "sendrecv": "sendrecv",
    "reduce": "reduce",
}

Dims = Sequence[Sequence[int]]


def kernel_of(operator: str, dims: Dims, dtype: str, arguments: Sequence[Any] = ()) -> Kernel | None:
    """The kernel of an operator by the shapes of its arguments; None for one that no curve prices."""
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
    if len(a) != len(b) or len(a) not in (2, 3) or a[-1] != b[-2]:
        return None
    return Gemm(m=a[-2], n=b[-1], k=a[-1], dtype=dtype, batch=a[0] if len(a) == 3 else 1)


def _attention(
    operator: str, shapes: Sequence[tuple[int, ...]], dtype: str, arguments: Sequence[Any]
) -> Attention | None:
    """Query, key, value as (batch, heads, length, head dimension); the backward has the gradient first."""
    backward = operator.endswith("_backward")
    query, key = (shapes[1], shapes[2]) if backward else (shapes[0], shapes[1])
    if len(query) != 4 or len(key) != 4:
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
    plain = name.lower().replace("_", "").removeprefix("nccldevkernel").removeprefix("ncclkernel")
    return next((kind for word, kind in _COLLECTIVES.items() if plain.startswith(word)), None)


def is_collective(kernel_name: str) -> bool:
    """Whether a kernel is one of NCCL's that moves data between ranks."""
    return kernel_name.startswith("nccl") and collective_of(kernel_name) is not None


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
    compute: Iterable[tuple[float, float]],
    communication: Iterable[tuple[float, float]],
    steps_s: Sequence[float],
) -> dict[str, str]:
    """Step time and overlap as text: what a trace tells people besides its kernels."""
    busy, sent = merged(compute), merged(communication)
    total_s = sum(end - begin for begin, end in sent)
    facts: dict[str, str] = {}
    if steps_s:
        facts["step time"] = f"{median(steps_s):.6g} s (median of {len(steps_s)})"
    if total_s:
        share = overlap_s(busy, sent) / total_s
        facts["communication"] = f"{total_s:.6g} s, {share:.1%} of it beside kernels"
    return facts


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Disjoint spans in order, covering the same time."""
    union: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((begin, end))
    return union


def overlap_s(a: Sequence[tuple[float, float]], b: Sequence[tuple[float, float]]) -> float:
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
