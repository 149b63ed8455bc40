"""One step of AdamW: gradient, weight and moments read, weight and moments written, in one kernel.

All in FP32, as mixed-precision training keeps them; with a 16-bit copy of the weights, that is
written in the same pass. The torch chain takes a kernel an operation.

Sources: Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..kernel import MemoryBound
from .lazy_jit import cdiv, jit

tl: Any = None

BLOCK = 1024  # elements of one thread block; they pass through registers
_FLOPS = 14.0  # an element, the square root and the division counted as one each


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Hyperparameters of a step; ``step`` counts from one."""

    step: int
    learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1


def adam_cost(parameters: int, *, copy_bytes: int = 0) -> MemoryBound:
    """Seven FP32 passes, and the copy's elements of ``copy_bytes`` written."""
    return MemoryBound(hbm_bytes=(28.0 + copy_bytes) * parameters, flops=_FLOPS * parameters)


def adam_chain_cost(parameters: int) -> MemoryBound:
    """Passes of ``adam_chain`` by its nine kernels: 2 + 2 + 3 + 2 + 3 + 2 + 2 + 2 + 4, in FP32."""
    return MemoryBound(hbm_bytes=4.0 * 22 * parameters, flops=_FLOPS * parameters, launches=9)


@jit
def _adam(
    weight, gradient, first, second, low,
    elements, learning_rate, beta1, beta2, eps, decay, correction1, correction2,
    copy: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    where = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = where < elements
    w = tl.load(weight + where, mask=inside, other=0.0)
    g = tl.load(gradient + where, mask=inside, other=0.0)
    m = tl.load(first + where, mask=inside, other=0.0)
    v = tl.load(second + where, mask=inside, other=0.0)
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    update = m / correction1 / (tl.sqrt(v / correction2) + eps)
    w = w - learning_rate * (update + decay * w)
    tl.store(weight + where, w, mask=inside)
    tl.store(first + where, m, mask=inside)
    tl.store(second + where, v, mask=inside)
    if copy:
        tl.store(low + where, w, mask=inside)


def adam(weight: Any, gradient: Any, first: Any, second: Any, options: AdamW, low: Any = None) -> None:
    """Update ``weight`` and both moments in place (FP32, contiguous), and ``low``, a 16-bit copy."""
    elements, one = weight.numel(), options
    _adam[(cdiv(elements, BLOCK),)](
        weight, gradient, first, second, weight if low is None else low,
        elements, one.learning_rate, one.beta1, one.beta2, one.eps, one.weight_decay,
        1.0 - one.beta1**one.step, 1.0 - one.beta2**one.step,
        copy=low is not None, block=BLOCK,
    )  # fmt: skip


def adam_chain(weight: Any, gradient: Any, first: Any, second: Any, options: AdamW) -> None:
    """The update in nine torch kernels."""
    one = options
    first.mul_(one.beta1)
    weight.mul_(1.0 - one.learning_rate * one.weight_decay)
    first.add_(gradient, alpha=1.0 - one.beta1)
    second.mul_(one.beta2)
    second.addcmul_(gradient, gradient, value=1.0 - one.beta2)
    spread = (second / (1.0 - one.beta2**one.step)).sqrt() + one.eps
    weight.addcdiv_(first, spread, value=-one.learning_rate / (1.0 - one.beta1**one.step))
