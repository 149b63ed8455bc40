"""Compiles the kernels for real GPUs, none being needed, and prints the shared memory of each as JSON.

A script of its own, because Triton's interpreter and compiler do not live in one process. Prints a list of
{gpu, kernel, compiled_bytes} and, of GEMMs and attention, model_bytes, sram_bytes and tensor_cores.
"""

from __future__ import annotations

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from stepsim.hardware.gpus import get_gpu
from stepsim.kernels.kernel import Attention, Gemm
from stepsim.kernels.run import (
    activation,
    adam,
    attention,
    attention_backward,
    cross_entropy,
    gemm,
    norm,
    stream,
)
from stepsim.kernels.run.attention_tile import attention_sram_bytes, attention_tile

TARGETS = {"A100-SXM4-80GB": 80, "H100-SXM5-80GB": 90, "B200-SXM-180GB": 100}
# A tile of fewer rows than the newer instructions take falls back to the first.
TENSOR_CORES = ("mma.sync", "wgmma", "tcgen05.mma")
COMMON = {"heads": "i32", "group": "i32", "seq_q": "i32", "seq_kv": "i32", "scale": "fp32"}
STRIDES = {f"{tensor}_{axis}": "i32" for tensor in "abc" for axis in ("batch", "row", "column")}


def compiled(kernel: Any, types: dict[str, str], constants: dict[str, Any], gpu: str, **options: int) -> Any:
    """``kernel`` for ``gpu``, pointers and sizes aligned to 16 as a launch would find them."""
    function = kernel.compiled
    stated = {one.name for one in function.params if one.is_constexpr}
    assert stated <= set(constants), f"a launch would miss {stated - set(constants)}"
    assert set(constants) - stated <= set(STRIDES), "Triton must see by annotation what is a constant"
    signature = {name: "constexpr" if name in constants else types[name] for name in function.arg_names}
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind == "i32" or kind.startswith("*")
    }
    source = ASTSource(function, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", TARGETS[gpu], 32), options=options)


def attention_row(gpu: str, head_dim: int, direction: Any) -> dict[str, Any]:
    sram_bytes = get_gpu(gpu).sram_bytes_per_sm
    shape = Attention(
        batch=1,
        seq_q=4096,
        seq_kv=4096,
        heads=8,
        kv_heads=8,
        head_dim=head_dim,
        causal=True,
        direction=direction,
    )
    tile = attention_tile(shape, sram_bytes)
    types = dict.fromkeys(("q", "k", "v", "o", "do", "dk", "dv"), "*bf16") | COMMON
    types |= {"lse": "*fp32", "sums": "*fp32", "dq": "*fp32", "log2_e": "fp32"}
    constants: dict[str, Any] = {
        "head_dim": head_dim,
        "rows": tile.rows,
        "columns": tile.streamed,
        "causal": True,
    }
    constants |= {"precision": "tf32", "widen": False}
    kernel = attention._forward if direction == "forward" else attention_backward._main
    done = compiled(kernel, types, constants, gpu, num_warps=tile.warps, num_stages=tile.stages)
    return row(gpu, f"attention {direction} {head_dim}", done, attention_sram_bytes(shape, tile.rows))


def gemm_row(gpu: str, dtype: str) -> dict[str, Any]:
    tile = gemm.gemm_tile(Gemm(m=4096, n=4096, k=4096, dtype=dtype), get_gpu(gpu).sram_bytes_per_sm)
    operand = {"bf16": "*bf16", "fp8": "*fp8e4nv"}[dtype]
    types = {"a": operand, "b": operand, "c": "*bf16", "m": "i32", "n": "i32", "k": "i32"} | COMMON | STRIDES
    constants: dict[str, Any] = {
        "tile_m": tile.m,
        "tile_n": tile.n,
        "tile_k": tile.k,
        "group": 8,
        "accumulate": False,
    }
    constants |= {"precision": "tf32", "widen": False, "a_column": 1, "b_row": 1}
    done = compiled(gemm._gemm, types, constants, gpu, num_warps=tile.warps, num_stages=tile.stages)
    return row(gpu, f"gemm {dtype}", done, tile.sram_bytes(dtype))


def memory_rows(gpu: str) -> list[dict[str, Any]]:
    """Kernels that pass through registers: what shared memory they have is their reductions'."""
    wide = "source target a b c x y dx dy weight bias logits dlogits o do low"
    exact = "mean rstd dweight dbias loss lse dloss gradient first second sums"
    numbers = "scale eps learning_rate beta1 beta2 decay correction1 correction2"
    types = dict.fromkeys(wide.split(), "*bf16") | dict.fromkeys(exact.split(), "*fp32")
    types |= dict.fromkeys(numbers.split(), "fp32") | {"targets": "*i64"}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (stream._copy, {"block": 1024}),
        (stream._copy_by_few, {"block": 8192}),
        (stream._triad, {"block": 1024}),
        *((kernel, {"block": 1024}) for kernel in (activation._swiglu, activation._swiglu_backward)),
        *((kernel, {"block": 1024}) for kernel in (activation._gelu, activation._gelu_backward)),
        *((kernel, {"block": 4096}) for kernel in (cross_entropy._forward, cross_entropy._backward)),
        *((norm._forward, {"block": 8192, "centred": centred}) for centred in (False, True)),
        *((norm._backward, {"block": 8192, "centred": centred}) for centred in (False, True)),
        *((adam._adam, {"block": 1024, "copy": copied}) for copied in (False, True)),
        (attention_backward._row_sums, {"head_dim": 128, "rows": 16}),
    ]
    found = []
    for kernel, constants in cases:
        others = {name: "i32" for name in kernel.compiled.arg_names if name not in types}
        done = compiled(kernel, others | types, constants, gpu, num_warps=8)
        found.append({"gpu": gpu, "kernel": kernel.function.__name__, "compiled_bytes": done.metadata.shared})
    return found


def row(gpu: str, kernel: str, done: Any, model_bytes: float) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "kernel": kernel,
        "compiled_bytes": done.metadata.shared,
        "model_bytes": model_bytes,
        "sram_bytes": get_gpu(gpu).sram_bytes_per_sm,
        "tensor_cores": any(one in done.asm["ptx"] for one in TENSOR_CORES),
    }


def rows() -> list[dict[str, Any]]:
    found = [
        attention_row(gpu, head_dim, direction)
        for gpu in TARGETS
        for head_dim in (64, 128, 256)
        for direction in ("forward", "backward")
    ]
    found += [gemm_row(gpu, "bf16") for gpu in TARGETS]
    return [*found, gemm_row("H100-SXM5-80GB", "fp8"), *memory_rows("H100-SXM5-80GB")]


if __name__ == "__main__":
    print(json.dumps(rows()))  # noqa: T201
