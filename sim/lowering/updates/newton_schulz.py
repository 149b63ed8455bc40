"""Newton-Schulz: the GEMMs that orthogonalise a momentum, X <- aX + (bA + cA^2) X with A = X X^T.

Runs in BF16 along the shorter side. Knows one matrix of one rank, or of the ranks that each hold a part of
it; what is gathered before is orthogonalise.py.

References:
    Jordan 2024, kellerjordan.github.io/posts/muon. torch/optim/_muon.py, _zeropower_via_newtonschulz (BF16,
    the shorter side first; its addmm, without which two elementwise kernels go with each GEMM).
    NVIDIA-NeMo/Emerging-Optimizers orthogonalized_optimizers/muon_utils.py, newton_schulz, newton_schulz_tp
    (medium precision is BF16; of a matrix that is cut over ranks A is all-reduced, along its whole side).
"""

from __future__ import annotations

from collections.abc import Callable

from ....kernels.kernel import Gemm, MemoryBound
from ...program.program import Compute

SCALING_BYTES = 6
"""For each element before the first iteration: read for the norm, read and written to scale it, in BF16
(torch/optim/_muon.py)."""

SCALING_LAUNCHES = 3
"""Norm, its largest of itself and a small number, division."""


def iteration(rows: int, columns: int) -> tuple[Gemm, Gemm, Gemm]:
    """The GEMMs of one iteration of a whole matrix: A; bA + cA^2; aX and that times X.

    >>> sum(product.flops for product in iteration(1000, 4000)) / 1e9  # 4 s^2 l + 2 s^3
    18.0
    """
    short, long = sorted((rows, columns))
    return parted_iteration(short, long)


def parted_iteration(whole: int, part: int) -> tuple[Gemm, Gemm, Gemm]:
    """The GEMMs of one iteration where a rank holds ``part`` of one side of the matrix; they run along the
    ``whole`` other side."""
    return (
        Gemm(m=whole, n=whole, k=part),
        Gemm(m=whole, n=whole, k=whole, accumulate=True),
        Gemm(m=whole, n=part, k=whole, accumulate=True),
    )


def newton_schulz_work(
    products: tuple[Gemm, ...], elements: int, calls: int, seconds: Callable[[Gemm | MemoryBound], float]
) -> Compute:
    """One op for all iterations over several matrices, one after the other: ``calls`` of them, each of so
    many ``elements``.

    ``products`` are the GEMMs of all iterations of one matrix.
    """
    scaling = MemoryBound(hbm_bytes=float(SCALING_BYTES * elements), launches=SCALING_LAUNCHES)
    each_s = seconds(scaling) + sum(seconds(product) for product in products)
    moved = scaling.hbm_bytes + sum(product.hbm_bytes for product in products)
    flops = sum(product.flops for product in products)
    return Compute(calls * each_s, "gemm", flops=calls * flops, bytes=calls * moved)
