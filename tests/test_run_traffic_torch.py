"""What the interpreted kernels load and store against what their costs say, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpreted import counted, counted_chain, load_torch, normal
from oracles.kernel_costs import (
    attention_chain,
    attention_chain_cost,
    backward_loaded_bytes,
    backward_of,
    gemm_loaded_bytes,
)

from stepsim.kernels.attention import tile_rows, tiled_hbm_bytes
from stepsim.kernels.kernel import Attention, Gemm, MemoryBound
from stepsim.kernels.run import activation, adam, attention_backward, cross_entropy, gemm, norm, stream
from stepsim.kernels.run.attention import attention
from stepsim.kernels.run.attention_tile import attention_sram_bytes, attention_tile

pytestmark = pytest.mark.torch

DTYPES = ("fp32", "fp16", "bf16")


@pytest.fixture(scope="module")
def torch() -> Any:
    return load_torch()


# Attention: traffic by SRAM -------------------------------------------------------------------------------


def _tensors(torch: Any, kernel: Attention) -> tuple[Any, Any, Any]:
    sequences = int(kernel.batch)
    query = (sequences, kernel.heads, kernel.seq_q, kernel.head_dim)
    key = (sequences, kernel.kv_heads, kernel.seq_kv, kernel.head_dim)
    q, k, v = (normal(torch, i, *shape, dtype=kernel.dtype) for i, shape in enumerate((query, key, key)))
    return q, k, v


def forward_bytes(torch: Any, monkeypatch: pytest.MonkeyPatch, kernel: Attention, sram_bytes: float) -> float:
    q, k, v = _tensors(torch, kernel)
    with counted(monkeypatch) as traffic:
        attention(q, k, v, causal=kernel.causal, tile=attention_tile(kernel, sram_bytes))
    return traffic.total


def backward_bytes(
    torch: Any, monkeypatch: pytest.MonkeyPatch, kernel: Attention, sram_bytes: float
) -> float:
    q, k, v = _tensors(torch, kernel)
    forward = replace(kernel, direction="forward")
    o, lse = attention(q, k, v, causal=kernel.causal, tile=attention_tile(forward, 1e5))
    tile = attention_tile(kernel, sram_bytes)
    with counted(monkeypatch) as traffic:
        attention_backward.attention_backward(q, k, v, o, lse, q, causal=kernel.causal, tile=tile)
    return traffic.total


KERNEL = Attention(
    batch=1, seq_q=256, seq_kv=256, heads=2, kv_heads=2, head_dim=16, causal=False, dtype="fp16"
)
SRAM_BYTES = [attention_sram_bytes(KERNEL, rows) for rows in (16, 32, 64, 128)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_the_model_predicts_forward_traffic_by_sram(
    torch: Any, monkeypatch: pytest.MonkeyPatch, causal: bool, kv_heads: int
) -> None:
    kernel = replace(KERNEL, causal=causal, kv_heads=kv_heads)
    moved = []
    for sram_bytes in SRAM_BYTES:
        moved.append(forward_bytes(torch, monkeypatch, kernel, sram_bytes))
        model = tiled_hbm_bytes(kernel, sram_bytes=sram_bytes, l2_bytes=0.0, concurrent_tiles=1)
        assert moved[-1] == model
    # Theorem 2: what is read again halves as SRAM doubles; compulsory bytes stay.
    assert moved == sorted(moved, reverse=True)
    assert moved[0] - moved[1] == 2 * (moved[1] - moved[2]) == 4 * (moved[2] - moved[3]) > 0


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_the_model_predicts_backward_traffic_by_sram(
    torch: Any, monkeypatch: pytest.MonkeyPatch, causal: bool, kv_heads: int
) -> None:
    kernel = backward_of(replace(KERNEL, causal=causal, kv_heads=kv_heads))
    rest = set()
    for sram_bytes in SRAM_BYTES:
        moved = backward_bytes(torch, monkeypatch, kernel, sram_bytes)
        assert moved == backward_loaded_bytes(kernel, attention_tile(kernel, sram_bytes).rows)
        model = tiled_hbm_bytes(kernel, sram_bytes=sram_bytes, l2_bytes=0.0, concurrent_tiles=1)
        rest.add(moved - model)
    # The model's compulsory part has dO once and dQ's additions in L2; that does not depend on SRAM.
    assert rest == {kernel.query_bytes * 3}


@given(
    st.integers(1, 300), st.integers(1, 300), st.sampled_from((16, 32)), st.sampled_from(DTYPES),
    st.sampled_from(SRAM_BYTES),
)  # fmt: skip
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_forward_traffic_of_ragged_shapes(
    torch: Any,
    monkeypatch: pytest.MonkeyPatch,
    seq_q: int,
    seq_kv: int,
    head_dim: int,
    dtype: str,
    sram_bytes: float,
) -> None:
    kernel = replace(KERNEL, seq_q=seq_q, seq_kv=seq_kv, head_dim=head_dim, dtype=dtype)
    sram_bytes = max(sram_bytes, attention_sram_bytes(kernel, 16))
    model = tiled_hbm_bytes(kernel, sram_bytes=sram_bytes, l2_bytes=0.0, concurrent_tiles=1)
    assert attention_tile(kernel, sram_bytes).rows == tile_rows(kernel, sram_bytes)
    assert forward_bytes(torch, monkeypatch, kernel, sram_bytes) == model


def test_the_unfused_chain_writes_the_scores(torch: Any) -> None:
    kernel = replace(KERNEL, causal=True, seq_q=64, seq_kv=64)
    q, k, v = _tensors(torch, kernel)
    with counted_chain() as ran:
        attention_chain(q, k, v, causal=True)
    gemms = [moved for name, moved in ran if "bmm" in name or "matmul" in name]
    assert gemms == [one.hbm_bytes for one in attention_chain_cost(kernel) if isinstance(one, Gemm)]
    passes = sum(
        moved for name, moved in ran if any(n in name for n in ("mul.", "masked_fill", "softmax", "copy"))
    )
    (softmax,) = (one for one in attention_chain_cost(kernel) if isinstance(one, MemoryBound))
    mask = kernel.seq_q * kernel.seq_kv
    # On the CPU softmax casts to FP32 in a kernel of its own, CUDA's reads the 16 bits itself.
    cast = 8.0 * kernel.heads * mask
    assert passes == softmax.hbm_bytes + mask + cast


# The other kernels ----------------------------------------------------------------------------------------


@given(st.integers(1, 2), *(st.integers(1, 150) for _ in range(3)), st.booleans())
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_gemm_tiles_load_their_operands(
    torch: Any, monkeypatch: pytest.MonkeyPatch, batch: int, m: int, n: int, k: int, accumulate: bool
) -> None:
    shape = Gemm(m=m, n=n, k=k, batch=batch, dtype="fp16", out_bytes=4, accumulate=accumulate)
    tile = gemm.gemm_tile(shape, 3e4)
    a, b = normal(torch, 0, batch, m, k, dtype="fp16"), normal(torch, 1, batch, k, n, dtype="fp16")
    with counted(monkeypatch) as traffic:
        gemm.gemm(a, b, torch.zeros(batch, m, n), tile=tile, accumulate=accumulate)
    assert traffic.total == gemm_loaded_bytes(shape, tile)
    if tile.m >= m and tile.n >= n:
        assert traffic.total == shape.hbm_bytes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("lines", "columns"), [(3, 128), (5, 100), (8, 257)])
def test_memory_bound_kernels_move_what_they_cost(
    torch: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, lines: int, columns: int
) -> None:
    x, dy = (normal(torch, i, lines, columns, dtype=dtype) for i in range(2))
    wide = normal(torch, 2, lines, 2 * columns, dtype=dtype)
    weight, targets = normal(torch, 3, columns, dtype=dtype), torch.arange(lines) % columns
    y, mean, rstd = norm.norm(x, weight, weight, programs=1)
    lse, moments = (
        cross_entropy.cross_entropy(x, targets)[1],
        [normal(torch, i, columns).abs() for i in range(4)],
    )
    low = torch.empty(columns, dtype=torch.bfloat16)
    update: Callable[..., None] = adam.adam
    norm_bytes = {
        (direction, centred): norm.norm_cost(
            lines, columns, dtype, direction, centred=centred, programs=1
        ).hbm_bytes
        for direction in ("forward", "backward")
        for centred in (False, True)
    }
    sums = 4.0 * columns  # a second kernel reads the partial sums and writes the weight's gradient
    second = {c: (2 if c else 1) * (sums + columns * x.element_size()) for c in (False, True)}
    cases = [
        (lambda: stream.copy(x, y), stream.copy_cost(x.numel(), dtype).hbm_bytes),
        (lambda: stream.triad(x, dy, 2.0), stream.triad_cost(x.numel(), dtype).hbm_bytes),
        (lambda: norm.norm(x, weight, programs=1), norm_bytes["forward", False]),
        (lambda: norm.norm(x, weight, weight, programs=1), norm_bytes["forward", True]),
        *(
            (
                lambda c=c: norm.norm_backward(dy, x, weight, mean, rstd, centred=c, programs=1),
                norm_bytes["backward", c] - second[c],
            )
            for c in (False, True)
        ),
        (lambda: activation.swiglu(wide), activation.swiglu_cost(lines, columns, dtype, "forward").hbm_bytes),
        (
            lambda: activation.swiglu_backward(wide, dy),
            activation.swiglu_cost(lines, columns, dtype, "backward").hbm_bytes,
        ),
        (lambda: activation.gelu(x), activation.gelu_cost(lines, columns, dtype, "forward").hbm_bytes),
        (
            lambda: activation.gelu_backward(x, dy),
            activation.gelu_cost(lines, columns, dtype, "backward").hbm_bytes,
        ),
        (
            lambda: cross_entropy.cross_entropy(x, targets),
            cross_entropy.cross_entropy_cost(lines, columns, dtype, "forward").hbm_bytes,
        ),
        (
            lambda: cross_entropy.cross_entropy_backward(x, targets, lse, lse),
            cross_entropy.cross_entropy_cost(lines, columns, dtype, "backward").hbm_bytes,
        ),
        (lambda: update(*moments, adam.AdamW(step=2)), adam.adam_cost(columns).hbm_bytes),
        (
            lambda: update(*moments, adam.AdamW(step=2), low),
            adam.adam_cost(columns, copy_bytes=2).hbm_bytes,
        ),
    ]
    for number, (run, expected) in enumerate(cases):
        with counted(monkeypatch) as traffic:
            run()
        assert traffic.total == expected, number


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_torch_chains_move_what_they_cost(torch: Any, dtype: str) -> None:
    lines, columns = 64, 512
    x, y = (normal(torch, i, lines, columns, dtype=dtype) for i in range(2))
    wide, weight = normal(torch, 2, lines, 2 * columns, dtype=dtype), normal(torch, 3, columns, dtype=dtype)
    moments, targets = [normal(torch, i, columns).abs() for i in range(4)], torch.arange(lines) % columns
    update_chain: Callable[..., None] = adam.adam_chain
    cases = [
        (lambda: stream.triad_chain(x, y, 2.0), stream.triad_chain_cost(x.numel(), dtype)),
        (lambda: norm.rms_norm_chain(x, weight), norm.rms_norm_chain_cost(lines, columns, dtype)),
        (
            lambda: norm.layer_norm_chain(x, weight, weight),
            norm.layer_norm_chain_cost(lines, columns, dtype),
        ),
        (lambda: activation.gelu_chain(x), activation.gelu_cost(lines, columns, dtype, "forward")),
        (lambda: activation.swiglu_chain(wide), activation.swiglu_chain_cost(lines, columns, dtype)),
        (
            lambda: cross_entropy.cross_entropy_chain(x, targets),
            cross_entropy.cross_entropy_chain_cost(lines, columns, dtype),
        ),
        (lambda: update_chain(*moments, adam.AdamW(step=1)), adam.adam_chain_cost(columns)),
    ]
    for run, cost in cases:
        with counted_chain() as ran:
            run()
        assert len(ran) == cost.launches, ran
        # nll_loss picks one entry of each row; the counter sees its whole input.
        moved = sum(16.0 * lines if "nll" in name else size for name, size in ran)
        assert moved == pytest.approx(cost.hbm_bytes, rel=0.005), ran
