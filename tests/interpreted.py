"""Triton's interpreter for tests: kernels on the CPU, and a count of the bytes that they load and store.

STEPSIM_KERNELS_ON=cuda has tests of their results (test_run_kernels_torch.py) run them compiled, on a GPU.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
ON_GPU = os.environ.get("STEPSIM_KERNELS_ON") == "cuda"
# Of the largest value: some ulp of the result's type, and of the 16-bit factors of a GEMM before it.
TOLERANCE = {"fp32": 2e-6, "fp16": 4e-3, "bf16": 3e-2}


def load_torch() -> Any:
    """torch, with Triton's interpreter on or its GPU; skips where one is missing or Triton came first."""
    torch = pytest.importorskip("torch")
    if ON_GPU:
        pytest.importorskip("triton")
        torch.set_default_device("cuda")
        return torch
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("triton was loaded without its interpreter (set TRITON_INTERPRET=1)")
    os.environ["TRITON_INTERPRET"] = "1"
    pytest.importorskip("triton")
    return torch


def normal(torch: Any, seed: int, *shape: int, dtype: str = "fp32") -> Any:
    """Normally distributed values, the same for the same seed and shape."""
    generator = torch.Generator("cpu").manual_seed(seed * 1009 + sum(shape))
    drawn = torch.randn(*shape, generator=generator, device="cpu").to(getattr(torch, DTYPES[dtype]))
    return drawn.cuda() if ON_GPU else drawn


def error(found: Any, expected: Any) -> float:
    """Largest difference in units of the largest expected value; infinite for a value that is no number."""
    found, expected = found.detach().double(), expected.detach().double()
    worst = float((found - expected).abs().max()) / (float(expected.abs().max()) or 1.0)
    return worst if math.isfinite(worst) else math.inf


def exact(*tensors: Any) -> list[Any]:
    """Float64 leaves with gradients, of the same values."""
    return [tensor.double().requires_grad_() for tensor in tensors]


@dataclass
class Traffic:
    """Bytes that kernels moved, by what masks leave of each load and store; an atomic addition is both."""

    loaded: float = 0.0
    stored: float = 0.0

    @property
    def total(self) -> float:
        return self.loaded + self.stored


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    """Counts what the interpreter moves meanwhile."""
    from triton.runtime.interpreter import InterpreterBuilder

    traffic = Traffic()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    atomic = InterpreterBuilder.create_atomic_rmw

    def size(ptrs: Any, mask: Any) -> float:
        return float(mask.data.sum()) * ptrs.get_element_ty().primitive_bitwidth / 8

    def counting_load(self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        traffic.loaded += size(ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def counting_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        traffic.stored += size(ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    def counting_atomic(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        traffic.loaded += size(ptr, mask)
        traffic.stored += size(ptr, mask)
        return atomic(self, op, ptr, value, mask, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(InterpreterBuilder, "create_masked_load", counting_load)
        patch.setattr(InterpreterBuilder, "create_masked_store", counting_store)
        patch.setattr(InterpreterBuilder, "create_atomic_rmw", counting_atomic)
        yield traffic


@contextmanager
def counted_chain() -> Iterator[list[tuple[str, float]]]:
    """Collects (operation, bytes that it moved) of each kernel that torch runs; views are free."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    ran: list[tuple[str, float]] = []

    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if not func.is_view:
                leaves = [one for one in tree_leaves((args, kwargs)) if hasattr(one, "data_ptr")]
                read = {one.data_ptr(): one.numel() * one.element_size() for one in leaves}
                written = [one for one in tree_leaves(out) if hasattr(one, "data_ptr")]
                moved = sum(read.values()) + sum(one.numel() * one.element_size() for one in written)
                ran.append((str(func), float(moved)))
            return out

    with Counter():
        yield ran
