"""How a rank of context parallelism cuts its attention: one tile for each rank's keys.

Knows the causal mask with two slices for each rank, one from either end; not what moves between tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .layer_builder import LayerBuilder
from .local_shape import LocalShape


@dataclass(frozen=True, kw_only=True)
class ContextTile:
    """One attention kernel's share of a step: rows of queries and of keys, and whether masked."""

    queries: int
    keys: int
    causal: bool


AttentionKernel = Callable[[LayerBuilder, ContextTile], None]
"""Appends the attention kernel of one tile."""


def tiles_of(local: LocalShape) -> list[ContextTile]:
    """The attention kernels of one layer on one rank, in the order in which they run: one for the keys of
    each rank.

    The first is the rank's own slice under the causal mask. In each later one either all its queries see half
    of another rank's keys, or half of its queries see all of them. Rank r has r of the former and cp - 1 - r
    of the latter; here both kinds alternate on every rank, which takes as long.
    """
    own = local.sequence // local.cp
    half_keys = ContextTile(queries=own, keys=own // 2, causal=False)
    half_queries = ContextTile(queries=own // 2, keys=own, causal=False)
    later = [half_keys if step % 2 else half_queries for step in range(1, local.cp)]
    return [ContextTile(queries=own, keys=own, causal=True), *later]
