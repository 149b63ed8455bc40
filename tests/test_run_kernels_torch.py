"""Triton kernels against float64 references, forward and gradients, over drawn and often ragged shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import TOLERANCE, error, exact, load_torch, normal
from oracles.kernel_costs import attention_chain, backward_of

from stepsim.kernels.kernel import Gemm
from stepsim.kernels.run import activation, adam, cross_entropy, gemm, norm, stream
from stepsim.kernels.run.attention import attention, shape_of
from stepsim.kernels.run.attention_backward import attention_backward
from stepsim.kernels.run.attention_tile import attention_tile

pytestmark = pytest.mark.torch

seeds = st.integers(0, 2**20)
dtypes = st.sampled_from(("fp32", "fp16", "bf16"))
rows = st.integers(1, 7)
few = settings(max_examples=20)


@pytest.fixture(scope="module")
def torch() -> Any:
    return load_torch()


@given(seeds, dtypes, st.integers(1, 5000))
@few
def test_copy_and_triad(torch: Any, seed: int, dtype: str, elements: int) -> None:
    a, b = (normal(torch, seed + i, elements, dtype=dtype) for i in range(2))
    assert torch.equal(stream.copy(a, torch.empty_like(a)), a)
    expected = a.double() + 3.0 * b.double()
    assert error(stream.triad(a, b, 3.0), expected) <= TOLERANCE[dtype]
    assert error(stream.triad_chain(a, b, 3.0), expected) <= TOLERANCE[dtype]


@given(seeds, st.sampled_from(("fp32", "fp16", "bf16", "fp8")), st.data())
@few
def test_gemm(torch: Any, seed: int, dtype: str, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, 2))
    m, n, k = (data.draw(st.integers(1, 150)) for _ in range(3))
    accumulate, transposed = data.draw(st.booleans()), data.draw(st.booleans())
    a = normal(torch, seed, batch, m, k, dtype=dtype)
    b = normal(torch, seed + 1, batch, n, k, dtype=dtype).transpose(1, 2) if transposed else normal(
        torch, seed + 1, batch, k, n, dtype=dtype
    )  # fmt: skip
    out = normal(torch, seed + 2, batch, m, n)
    expected = 0.5 * (a.double() @ b.double()) + (out.double() if accumulate else 0.0)
    tile = gemm.gemm_tile(
        Gemm(m=m, n=n, k=k, batch=batch, dtype=dtype), data.draw(st.sampled_from((2e4, 2e5)))
    )
    gemm.gemm(a, b, out, tile=tile, accumulate=accumulate, scale=0.5)
    # Sums are in FP32 over exact products, whatever the operands' type.
    assert error(out, expected) <= TOLERANCE["fp32"] * (1 if dtype != "fp8" else 100)


@given(seeds, dtypes, st.data())
@few
def test_attention(torch: Any, seed: int, dtype: str, data: st.DataObject) -> None:
    batch, kv_heads, group = (data.draw(st.integers(1, 2)) for _ in range(3))
    head_dim = data.draw(st.sampled_from((16, 64)))
    causal, seq_q = data.draw(st.booleans()), data.draw(st.integers(1, 90))
    seq_kv = seq_q if causal else data.draw(st.integers(1, 90))
    _check_attention(torch, seed, dtype, (batch, kv_heads * group, seq_q, head_dim), kv_heads, seq_kv, causal)


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_head_dimension(torch: Any, head_dim: int, causal: bool) -> None:
    _check_attention(torch, head_dim, "fp16", (1, 4, 80, head_dim), 2, 80, causal)


def _check_attention(
    torch: Any, seed: int, dtype: str, shape: tuple[int, ...], kv_heads: int, seq_kv: int, causal: bool
) -> None:
    q, do = (normal(torch, seed + i, *shape, dtype=dtype) for i in range(2))
    k, v = (normal(torch, seed + i, shape[0], kv_heads, seq_kv, shape[3], dtype=dtype) for i in (2, 3))
    kernel = shape_of(q, k, causal=causal)
    sram_bytes = 3 * 32 * shape[3] * 4.0  # small enough that several tiles pass
    o, lse = attention(q, k, v, causal=causal, tile=attention_tile(kernel, sram_bytes))
    gradients = attention_backward(
        q, k, v, o, lse, do, causal=causal, tile=attention_tile(backward_of(kernel), sram_bytes)
    )
    leaves = exact(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
    expected.backward(do.double())
    assert error(o, expected) <= TOLERANCE[dtype]
    assert error(attention_chain(q, k, v, causal=causal), expected) <= TOLERANCE[dtype]
    largest = max(float(leaf.grad.abs().max()) for leaf in leaves)
    for found, leaf in zip(gradients, leaves, strict=True):
        # A gradient may vanish (one key: dQ and dK do), so errors are in units of the largest of the three.
        assert float((found.double() - leaf.grad).abs().max()) <= TOLERANCE[dtype] * largest


@given(seeds, dtypes, rows, st.integers(1, 300), st.booleans(), st.integers(1, 4))
@few
def test_norms(
    torch: Any, seed: int, dtype: str, lines: int, columns: int, centred: bool, programs: int
) -> None:
    x, dy = (normal(torch, seed + i, lines, columns, dtype=dtype) for i in range(2))
    weight, bias = (normal(torch, seed + i, columns, dtype=dtype) for i in (2, 3))
    y, mean, rstd = norm.norm(x, weight, bias if centred else None, programs=programs)
    found = norm.norm_backward(dy, x, weight, mean, rstd, centred=centred, programs=programs)
    leaves = exact(x, weight, bias)
    expected = _norm(torch, *leaves, centred=centred)
    expected.backward(dy.double())
    assert error(y, expected) <= TOLERANCE[dtype]
    chain = norm.layer_norm_chain(x, weight, bias) if centred else norm.rms_norm_chain(x, weight)
    assert error(chain, expected) <= TOLERANCE[dtype]
    largest = max(float(leaf.grad.abs().max()) for leaf in leaves if leaf.grad is not None)
    for one, leaf in zip(found, leaves, strict=True):
        assert (one is None) == (leaf.grad is None)
        if one is not None:
            assert float((one.double() - leaf.grad).abs().max()) <= 10 * TOLERANCE[dtype] * largest


def _norm(torch: Any, x: Any, weight: Any, bias: Any, *, centred: bool) -> Any:
    if centred:
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, norm.EPS)
    return torch.nn.functional.rms_norm(x, x.shape[1:], weight, norm.EPS)


@given(seeds, dtypes, rows, st.integers(1, 400))
@few
def test_swiglu(torch: Any, seed: int, dtype: str, lines: int, width: int) -> None:
    x, dy = normal(torch, seed, lines, 2 * width, dtype=dtype), normal(torch, seed, lines, width, dtype=dtype)
    (leaf,) = exact(x)
    expected = torch.nn.functional.silu(leaf[:, :width]) * leaf[:, width:]
    expected.backward(dy.double())
    assert error(activation.swiglu(x), expected) <= TOLERANCE[dtype]
    assert error(activation.swiglu_chain(x), expected) <= TOLERANCE[dtype]
    assert error(activation.swiglu_backward(x, dy), leaf.grad) <= TOLERANCE[dtype]


@given(seeds, dtypes, rows, st.integers(1, 800))
@few
def test_gelu(torch: Any, seed: int, dtype: str, lines: int, width: int) -> None:
    x, dy = (normal(torch, seed + i, lines, width, dtype=dtype) for i in range(2))
    (leaf,) = exact(x)
    expected = torch.nn.functional.gelu(leaf)
    expected.backward(dy.double())
    assert error(activation.gelu(x), expected) <= TOLERANCE[dtype]
    assert error(activation.gelu_chain(x), expected) <= TOLERANCE[dtype]
    assert error(activation.gelu_backward(x, dy), leaf.grad) <= TOLERANCE[dtype]


@given(seeds, dtypes, rows, st.integers(1, 9000))
@few
def test_cross_entropy(torch: Any, seed: int, dtype: str, lines: int, vocabulary: int) -> None:
    logits = normal(torch, seed, lines, vocabulary, dtype=dtype)
    targets = (torch.arange(lines) * 7919 + seed) % vocabulary
    dloss = normal(torch, seed, lines)
    (leaf,) = exact(logits)
    expected = torch.nn.functional.cross_entropy(leaf, targets, reduction="none")
    expected.backward(dloss.double())
    loss, lse = cross_entropy.cross_entropy(logits, targets)
    expected = expected.detach()
    assert float((loss.double() - expected).abs().max()) <= 1e-5
    assert float((cross_entropy.cross_entropy_chain(logits, targets).double() - expected).abs().max()) <= 1e-5
    gradient = cross_entropy.cross_entropy_backward(logits, targets, lse, dloss)
    assert float((gradient.double() - leaf.grad).abs().max()) <= TOLERANCE[dtype] * float(dloss.abs().max())


@given(seeds, st.integers(1, 3000), st.integers(1, 1000), st.booleans())
@few
def test_adam(torch: Any, seed: int, elements: int, step: int, copied: bool) -> None:
    weight, gradient, first, second = (normal(torch, seed + i, elements) for i in range(4))
    second = second.abs()
    expected = [one.clone().double() for one in (weight, first, second)]
    options = adam.AdamW(step=step)
    low = torch.empty(elements, dtype=torch.bfloat16) if copied else None
    adam.adam_chain(expected[0], gradient.double(), expected[1], expected[2], options)
    adam.adam(weight, gradient, first, second, options, low)
    for found, wanted in zip((weight, first, second), expected, strict=True):
        assert error(found, wanted) <= TOLERANCE["fp32"]
    if low is not None:
        assert error(low, expected[0]) <= TOLERANCE["bf16"]


def test_adam_is_torch_adamw(torch: Any) -> None:
    weight, options = normal(torch, 5, 100), adam.AdamW(step=1)
    theirs = torch.nn.Parameter(weight.clone())
    theirs.grad = normal(torch, 6, 100)
    torch.optim.AdamW(
        [theirs],
        lr=options.learning_rate,
        betas=(options.beta1, options.beta2),
        weight_decay=options.weight_decay,
    ).step()
    adam.adam(weight, theirs.grad, torch.zeros(100), torch.zeros(100), options)
    assert error(weight, theirs.detach()) <= TOLERANCE["fp32"]


def test_what_the_kernels_refuse(torch: Any) -> None:
    q, k = normal(torch, 0, 1, 1, 4, 16), normal(torch, 0, 1, 1, 5, 16)
    with pytest.raises(ValueError, match="4 queries over 5 keys"):
        attention(q, k, k, causal=True, tile=attention_tile(shape_of(q, q, causal=True), 1e5))
