"""Every process group of a layout, axis by axis: what a machine of that layout can measure.

Knows ranks only; which GPUs they run on is in ``seats``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .seats import expert_grid, rank_grid

if TYPE_CHECKING:
    from ..scenario.blocks import Parallelism


def axis_groups(parallelism: Parallelism) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The groups of each axis by its name; together those of an axis are all ranks, each once.

    ``dp`` is of those that hold the same parameters, context-parallel ranks among them.
    """
    grid = rank_grid(parallelism)
    pp, dp, cp, tp = grid.shape
    found = {
        "tp": grid.reshape(-1, tp),
        "cp": grid.transpose(0, 1, 3, 2).reshape(-1, cp),
        "dp": grid.transpose(0, 3, 1, 2).reshape(-1, dp * cp),
        "pp": grid.transpose(1, 2, 3, 0).reshape(-1, pp),
    }
    if parallelism.ep > 1:
        found["ep"] = expert_grid(parallelism).transpose(0, 1, 3, 2).reshape(-1, parallelism.ep)
    return {
        axis: tuple(tuple(int(rank) for rank in members) for members in groups)
        for axis, groups in found.items()
    }
