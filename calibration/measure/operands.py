"""A point as something that runs: its tensors on the device, and the call that is timed.

Knows torch's and our kernels by name. Takes no time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ...kernels.kernel import Attention, Gemm
from ...kernels.run import activation, adam, cross_entropy, gemm, norm, stream
from ...kernels.run import attention as flash
from ...kernels.run.attention_backward import attention_backward
from ...kernels.run.attention_tile import attention_tile
from ...kernels.run.lazy_jit import MISSING
from .points import Point

Run = Callable[[], object]

_DTYPES = {
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "float8_e4m3fn",
}
_BACKENDS = {"fa2": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION"}


def load_torch() -> Any:
    """torch. Raises ValueError, with what to install, where it is missing."""
    try:
        import torch
    except ImportError as missing:
        raise ValueError(MISSING) from missing
    return torch


def reason_of(error: Exception) -> str:
    """The first line of what went wrong; torch's messages go on for pages."""
    return next(iter(str(error).strip().splitlines()), "") or type(error).__name__


def prepare(point: Point, device: str, sram_bytes: float) -> Run:
    """What runs ``point`` once on ``device`` (cuda or cpu), with tensors made and nothing else left to do.

    ``sram_bytes`` is the shared memory that a thread block may use; Triton's tiles are chosen by it.
    Raises ValueError for what has no kernel, and RuntimeError as torch does (out of memory, unsupported).
    """
    kernel = point.kernel
    if isinstance(kernel, Gemm):
        return _gemm(kernel, point.implementation, device, sram_bytes)
    if isinstance(kernel, Attention):
        return _attention(kernel, point.implementation, device, sram_bytes)
    return memory_run(
        point.operation,
        point.rows,
        point.columns,
        point.dtype,
        device,
        fused=point.implementation == "triton",
    )


def _random(device: str, dtype: str, *shape: int) -> Any:
    torch = load_torch()
    # Not zeros: power, and with it the clock, depends on how many bits flip.
    values = torch.randn(shape, device=device, dtype=torch.float32 if dtype == "fp8" else _dtype(dtype))
    return values.to(_dtype(dtype))


def _dtype(name: str) -> Any:
    return getattr(load_torch(), _DTYPES[name])


def _gemm(kernel: Gemm, implementation: str, device: str, sram_bytes: float) -> Run:
    """Operands as a linear layer has them: rows of tokens, and the weight stored (outputs, inputs).

    A grouped GEMM in several calls is so many GEMMs, one after the other.
    """
    torch = load_torch()
    if kernel.calls > 1:
        part = replace(kernel, batch=max(1, kernel.batch // kernel.calls), calls=1)
        parts = [_gemm(part, implementation, device, sram_bytes) for _ in range(kernel.calls)]
        return lambda: [run() for run in parts]
    a = _random(device, kernel.dtype, kernel.batch, kernel.m, kernel.k)
    b = _random(device, kernel.dtype, kernel.batch, kernel.n, kernel.k).transpose(1, 2)
    wide = kernel.out_bytes == 4
    out_dtype = torch.float32 if wide else torch.bfloat16 if kernel.dtype == "fp8" else a.dtype
    out = torch.zeros((kernel.batch, kernel.m, kernel.n), dtype=out_dtype, device=device)
    if implementation == "triton":
        tile = gemm.gemm_tile(kernel, sram_bytes)
        return lambda: gemm.gemm(a, b, out, tile=tile, accumulate=kernel.accumulate)
    if kernel.dtype == "fp8":
        one = torch.ones((), device=device)
        scaled = partial(torch._scaled_mm, scale_a=one, scale_b=one, out_dtype=out_dtype)  # noqa: SLF001
        return lambda: [scaled(left, right) for left, right in zip(a, b, strict=True)]
    if out_dtype == a.dtype and not kernel.accumulate:
        return lambda: torch.bmm(a, b, out=out) if kernel.batch > 1 else torch.mm(a[0], b[0], out=out[0])
    # The weight gradient: FP32 accumulation is cuBLAS's own on CUDA, and an addition of its own elsewhere.
    if device == "cuda" and kernel.batch == 1:
        if kernel.accumulate:
            return lambda: torch.addmm(out[0], a[0], b[0], out_dtype=out_dtype, out=out[0])
        return lambda: torch.mm(a[0], b[0], out_dtype=out_dtype)
    return lambda: gemm.gemm_chain(a, b, out, accumulate=True)


def _attention(kernel: Attention, implementation: str, device: str, sram_bytes: float) -> Run:
    if kernel.window is not None and kernel.window < kernel.seq_kv:
        raise ValueError(f"window={kernel.window}: attention in a window is not measured")
    if kernel.v_head_dim is not None and implementation == "triton":
        raise ValueError(f"v_head_dim={kernel.v_head_dim}: the Triton kernels have one head dimension")
    width = kernel.v_head_dim or kernel.head_dim
    query, key = (kernel.heads, kernel.seq_q), (kernel.kv_heads, kernel.seq_kv)
    q, k, v, do = (
        _random(device, kernel.dtype, max(1, round(kernel.batch)), *shape, dim)
        for shape, dim in ((query, kernel.head_dim), (key, kernel.head_dim), (key, width), (query, width))
    )
    causal, backward = kernel.causal, kernel.direction == "backward"
    if implementation != "triton":
        return _torch_attention(q, k, v, do, causal=causal, backward=backward, backend=implementation)
    tile = attention_tile(kernel, sram_bytes)
    if not backward:
        return lambda: flash.attention(q, k, v, causal=causal, tile=tile)
    forward = attention_tile(flash.shape_of(q, k, causal=causal), sram_bytes)
    o, lse = flash.attention(q, k, v, causal=causal, tile=forward)
    return lambda: attention_backward(q, k, v, o, lse, do, causal=causal, tile=tile)


def _torch_attention(q: Any, k: Any, v: Any, do: Any, *, causal: bool, backward: bool, backend: str) -> Run:
    torch = load_torch()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def forward() -> Any:
        shared = q.shape[1] != k.shape[1]
        attend = torch.nn.functional.scaled_dot_product_attention
        if backend not in _BACKENDS:
            return attend(q, k, v, is_causal=causal, enable_gqa=shared)
        with sdpa_kernel(getattr(SDPBackend, _BACKENDS[backend])):
            return attend(q, k, v, is_causal=causal, enable_gqa=shared)

    if not backward:
        return forward
    for tensor in (q, k, v):
        tensor.requires_grad_()
    o = forward()
    return lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True)


def memory_run(operation: str, rows: int, columns: int, dtype: str, device: str, *, fused: bool) -> Run:
    """What runs an operation of ``points.memory_kernel`` once. Raises ValueError for an unknown one."""
    name, backward = operation.removesuffix("_backward"), operation.endswith("_backward")
    if name == "adam":
        return _adam(rows * columns, device, fused=fused)
    wide = 2 * columns if name == "swiglu" else columns
    x, dy = _random(device, dtype, rows, wide), _random(device, dtype, rows, columns)
    match name:
        case "copy":
            return (lambda: stream.copy(x, dy)) if fused else (lambda: dy.copy_(x))
        case "triad":
            return (lambda: stream.triad(x, dy, 2.0)) if fused else (lambda: stream.triad_chain(x, dy, 2.0))
        case "swiglu" | "gelu":
            if backward:
                run = activation.swiglu_backward if name == "swiglu" else activation.gelu_backward
                return lambda: run(x, dy)
            forward = {
                ("swiglu", True): activation.swiglu,
                ("swiglu", False): activation.swiglu_chain,
                ("gelu", True): activation.gelu,
                ("gelu", False): activation.gelu_chain,
            }[name, fused]
            return lambda: forward(x)
        case "rms_norm" | "layer_norm":
            return _norm(x, dy, centred=name == "layer_norm", fused=fused, backward=backward)
        case "cross_entropy":
            return _cross_entropy(x, device, fused=fused, backward=backward)
    raise ValueError(f"operation {operation!r}: no kernel of that name")


def _norm(x: Any, dy: Any, *, centred: bool, fused: bool, backward: bool) -> Run:
    torch = load_torch()
    weight = torch.ones_like(x[0])
    bias = torch.zeros_like(weight) if centred else None
    if not fused:
        if centred:
            return lambda: norm.layer_norm_chain(x, weight, bias)
        return lambda: norm.rms_norm_chain(x, weight)
    if not backward:
        return lambda: norm.norm(x, weight, bias)
    _, mean, rstd = norm.norm(x, weight, bias)
    return lambda: norm.norm_backward(dy, x, weight, mean, rstd, centred=centred)


def _cross_entropy(logits: Any, device: str, *, fused: bool, backward: bool) -> Run:
    torch = load_torch()
    targets = torch.randint(0, logits.shape[1], (logits.shape[0],), device=device)
    if not fused:
        return lambda: cross_entropy.cross_entropy_chain(logits, targets)
    if not backward:
        return lambda: cross_entropy.cross_entropy(logits, targets)
    loss, lse = cross_entropy.cross_entropy(logits, targets)
    return lambda: cross_entropy.cross_entropy_backward(logits, targets, lse, loss)


def _adam(elements: int, device: str, *, fused: bool) -> Run:
    weight, gradient, first, second = (_random(device, "fp32", elements) for _ in range(4))
    second = second.abs()
    # As at a late step: the corrections are nearly one, and the moments stay what they are.
    options = adam.AdamW(step=1000, learning_rate=1e-6)
    run = adam.adam if fused else adam.adam_chain
    return lambda: run(weight, gradient, first, second, options)
