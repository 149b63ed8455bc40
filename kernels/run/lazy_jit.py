"""``jit``: Triton kernels in modules that load without Triton.

A kernel is an ordinary function at the top of its module, with ``tl: Any = None`` above it as its
``triton.language``. The first launch imports Triton, fills in ``tl`` and compiles; with
TRITON_INTERPRET=1 set before that, Triton's interpreter runs it on the CPU. Knows no kernel.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

MISSING = (
    "running kernels needs torch and triton, which are not installed; install the extra: "
    "pip install 'stepsim[calibration]' (CUDA builds of torch need a matching GPU driver)"
)


class LazyKernel:
    """A kernel that Triton has not seen yet. ``kernel[grid](...)`` launches it, as Triton's own do."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self._compiled: Any = None

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        launch: Callable[..., Any] = self.compiled[grid]
        return launch

    @property
    def compiled(self) -> Any:
        """What ``triton.jit`` makes of the function. Raises ValueError where Triton is missing."""
        if self._compiled is None:
            try:
                import triton
            except ImportError as missing:
                raise ValueError(MISSING) from missing
            self.function.__globals__["tl"] = triton.language
            self._compiled = triton.jit(self.function)
        return self._compiled


def jit(function: Callable[..., None]) -> LazyKernel:
    """Decorates a Triton kernel without importing Triton."""
    return LazyKernel(function)


def interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def cdiv(value: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-value // by)


def power_of_two(value: int) -> int:
    """The least power of two that is not under ``value``."""
    return 1 << max(0, value - 1).bit_length()
