"""Costs and tiles of the running kernels, without torch: they fit on chip, and fusing never moves more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.kernel_costs import (
    accumulate_chain_cost,
    attention_chain_cost,
    cross_entropy_sram_bytes,
    gemm_loaded_bytes,
    norm_sram_bytes,
)

from stepsim.calibration.measure.points import memory_kernel
from stepsim.calibration.measure.scale import GPU
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.kernels.attention import tile_rows, tiled_hbm_bytes
from stepsim.kernels.kernel import Attention, Direction, Gemm
from stepsim.kernels.run.attention_tile import HEAD_DIMS, attention_sram_bytes, attention_tile
from stepsim.kernels.run.gemm import gemm_tile

REGISTER_BYTES = 64 * 1024 * 4  # of an SM (CUDA programming guide, compute capabilities 8 to 10)
CHAINS = ("triad", "rms_norm", "layer_norm", "swiglu", "cross_entropy", "adam")

gpus = st.sampled_from(gpu_names())
sizes = st.integers(1, 20000)


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    kv_heads = draw(st.sampled_from((1, 2, 8)))
    seq = draw(st.integers(1, 40000))
    direction: Direction = draw(st.sampled_from(("forward", "backward")))
    return Attention(
        batch=1, seq_q=seq, seq_kv=seq, heads=kv_heads * draw(st.sampled_from((1, 4))), kv_heads=kv_heads,
        head_dim=draw(st.sampled_from(HEAD_DIMS)), causal=draw(st.booleans()),
        dtype=draw(st.sampled_from(("bf16", "fp32"))), direction=direction,
    )  # fmt: skip


@given(attentions(), gpus)
def test_attention_tiles_fit_in_sram(kernel: Attention, name: str) -> None:
    sram_bytes = get_gpu(name).sram_bytes_per_sm
    tile = attention_tile(kernel, sram_bytes)
    assert attention_sram_bytes(kernel, tile.rows) <= sram_bytes
    assert 16 <= tile.streamed <= tile.rows <= tile_rows(kernel, sram_bytes)
    # Registers: FP32 accumulators of all threads, at most 255 of them a thread.
    accumulators = (1 if kernel.direction == "forward" else 2) * 4 * tile.rows * kernel.head_dim
    assert accumulators <= 255 * 4 * 32 * tile.warps


@given(attentions(), st.floats(5e4, 3e5))
def test_more_sram_gives_no_smaller_tile(kernel: Attention, sram_bytes: float) -> None:
    # 16 rows of three FP32 tiles of 256 columns need 49,152 bytes.
    assert attention_tile(kernel, 2 * sram_bytes).rows >= attention_tile(kernel, sram_bytes).rows


@given(attentions())
def test_a_tile_that_holds_all_moves_only_what_it_must(kernel: Attention) -> None:
    if kernel.heads == kernel.kv_heads:
        moved = tiled_hbm_bytes(kernel, sram_bytes=1e12, l2_bytes=0.0, concurrent_tiles=1)
        assert moved == kernel.hbm_bytes


def test_attention_without_a_kernel_is_refused() -> None:
    shape: dict[str, Any] = {
        "batch": 1,
        "seq_q": 64,
        "seq_kv": 64,
        "heads": 1,
        "kv_heads": 1,
        "causal": False,
    }
    with pytest.raises(ValueError, match=r"head_dim=80: .*16, 32, 64, 128, 256"):
        attention_tile(Attention(**shape, head_dim=80), 1e5)
    with pytest.raises(ValueError, match="sram_bytes=1000: tiles of 16 rows need 6144"):
        attention_tile(Attention(**shape, head_dim=64), 1000.0)
    with pytest.raises(ValueError, match="sram_bytes=1000"):
        gemm_tile(Gemm(m=64, n=64, k=64), 1000.0)


@given(sizes, sizes, sizes, st.sampled_from(("bf16", "fp32", "fp8")), gpus)
def test_gemm_tiles_fit_and_load_all_they_need(m: int, n: int, k: int, dtype: str, name: str) -> None:
    gemm, sram_bytes = Gemm(m=m, n=n, k=k, dtype=dtype), get_gpu(name).sram_bytes_per_sm
    tile = gemm_tile(gemm, sram_bytes)
    assert tile.sram_bytes(dtype) <= sram_bytes
    assert gemm_loaded_bytes(gemm, tile) >= gemm.hbm_bytes
    assert 4 * tile.m * tile.n <= 128 * 4 * 32 * tile.warps  # accumulators: 128 registers a thread at most


@given(sizes, sizes, st.sampled_from(CHAINS), st.sampled_from(("bf16", "fp16")))
def test_fusing_never_moves_more(rows: int, columns: int, operation: str, dtype: str) -> None:
    fused = memory_kernel(operation, rows, columns, dtype, fused=True)
    chain = memory_kernel(operation, rows, columns, dtype, fused=False)
    assert fused.hbm_bytes < chain.hbm_bytes
    assert fused.launches < chain.launches


@given(sizes, sizes, sizes)
def test_accumulating_in_the_gemm_never_moves_more(m: int, n: int, k: int) -> None:
    fused = Gemm(m=m, n=n, k=k, out_bytes=4, accumulate=True)
    assert fused.hbm_bytes <= sum(kernel.hbm_bytes for kernel in accumulate_chain_cost(fused))


@given(attentions())
def test_unfused_attention_computes_the_same_and_moves_more(kernel: Attention) -> None:
    if kernel.direction == "forward" and kernel.kv_heads == kernel.heads:
        chain = attention_chain_cost(kernel)
        products = sum(one.flops for one in chain if isinstance(one, Gemm))
        assert products == pytest.approx(kernel.flops / kernel.visible)
        assert sum(one.hbm_bytes for one in chain) > kernel.query_bytes + kernel.kv_bytes


def test_rows_fit_in_registers() -> None:
    for width in GPU.widths:
        assert norm_sram_bytes(width, "forward") <= norm_sram_bytes(width, "backward") <= REGISTER_BYTES
    assert max(cross_entropy_sram_bytes(one) for one in GPU.vocabularies) <= REGISTER_BYTES / 4
