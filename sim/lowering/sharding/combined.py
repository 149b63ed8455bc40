"""Collectives of neighbouring tensors as one, up to a size: how XLA's combiners join them.

Knows sizes alone.

Source: openxla/xla xla/service/collective_combiner_utils.h (CombineInstructionsByKey: a group takes the next
    tensor while their bytes together stay within the threshold).
"""

from __future__ import annotations

from collections.abc import Iterable


def combined(sizes: Iterable[float], most: float) -> list[float]:
    """The sizes of what is sent together: each group takes the next neighbours while it holds at most
    ``most``.

        >>> combined([1.0, 1.0, 2.0, 5.0, 1.0], 4.0)
        [4.0, 5.0, 1.0]
    """
    groups: list[float] = []
    for size in sizes:
        if groups and groups[-1] + size <= most:
            groups[-1] += size
        else:
            groups.append(size)
    return groups
