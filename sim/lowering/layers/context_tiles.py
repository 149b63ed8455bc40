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
    """Step 0 is the rank's own diagonal; of the others it sees half the keys, or half its queries see all.

    Rank r has r steps of the first kind and cp - 1 - r of the second; here they alternate on all ranks.
    """
    own = local.sequence // local.cp
    half_keys = ContextTile(queries=own, keys=own // 2, causal=False)
    half_queries = ContextTile(queries=own // 2, keys=own, causal=False)
    later = [half_keys if step % 2 else half_queries for step in range(1, local.cp)]
    return [ContextTile(queries=own, keys=own, causal=True), *later]
