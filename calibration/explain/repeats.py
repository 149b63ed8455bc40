"""How often a step repeats the same row of kernels: its layers and microbatches, seen from outside.

Knows names of kernels in their order. Does not know what a layer is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from .step_record import RankStep

MOST_KERNELS = 20_000
LONGEST = 2_000
"""Longest row of kernels that is looked for; a layer's forward and backward have some 100."""


@dataclass(frozen=True, kw_only=True)
class RepeatedKernels:
    """``times`` rows of ``kernels`` like kernels each, from kernel ``first`` on."""

    kernels: int
    times: int
    first: int


def repeats(names: Sequence[str]) -> RepeatedKernels | None:
    """The row of kernels that covers most of ``names`` by repeating itself, at least three times.

    >>> repeats(["head", *(["gemm", "norm"] * 5), "tail"])
    RepeatedKernels(kernels=2, times=5, first=1)
    """
    import numpy as np

    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    row = np.array([numbers[name] for name in names[:MOST_KERNELS]])
    best: RepeatedKernels | None = None
    for period in range(1, min(LONGEST, len(row) // 3) + 1):
        same = row[:-period] == row[period:]
        found = _longest(same, period)
        if found is None:
            continue
        if best is None or found.times * found.kernels > 1.05 * best.times * best.kernels:
            best = found
    return best


def _longest(same: object, period: int) -> RepeatedKernels | None:
    """The longest stretch of equal kernels one period later."""
    import numpy as np

    equal = np.asarray(same)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], equal.astype(np.int8), [0]))))
    if not len(edges):
        return None
    lengths = edges[1::2] - edges[::2]
    at = int(np.argmax(lengths))
    times = int(lengths[at]) // period + 1
    return RepeatedKernels(kernels=period, times=times, first=int(edges[2 * at])) if times >= 3 else None


def repeats_of(step: RankStep) -> RepeatedKernels | None:
    """The stream that runs the most kernels which compute."""
    ops = [op for op in step.ops if op.kind not in ("communication", "copy")]
    if not ops:
        return None
    stream = Counter(op.stream for op in ops).most_common(1)[0][0]
    row = sorted((op for op in ops if op.stream == stream), key=lambda op: op.start_s)
    return repeats([op.name for op in row])


def microbatches_of(step: RankStep) -> int | None:
    """Microbatches that the trace names; None where it names none."""
    found = {op.microbatch for op in step.ops if op.microbatch is not None}
    return len(found) or None
