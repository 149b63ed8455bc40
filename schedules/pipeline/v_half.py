"""V-Half: about half the activations of 1F1B, and about half its bubble.

Two chunks per rank in a V, backwards split. A fixed order: whatever the costs, the authors make it for equal
times of F, B and W. Any number of microbatches, also fewer than ranks.

Sources: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362); building block
of sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` ``stable_pattern_v_half``.
"""

from __future__ import annotations

from ..orders.action import Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .building_block import Block
from .compact import compacted

check = fixed_chunks("v-half", 2)


def block(ranks: int) -> Block:
    """F_a at 2r, F_z at 3p-2-r, B_z at 3p-1+d+2r, B_a at 6p-2+d-r; d = 3 for even p, else 0."""
    p, d = ranks, 0 if ranks % 2 else 3
    return [(2 * r, 3 * p - 2 - r, 3 * p - 1 + d + 2 * r, 6 * p - 2 + d - r) for r in range(p)]


def orders(shape: Shape) -> Orders:
    """The block, once for each microbatch, its warm-up and cool-down moved up."""
    check(shape)
    return compacted(block(shape.ranks), shape.microbatches)


# No in_flight: min(2m, m+1+r, 2⌊(p+2)/2⌋) is right but for rank 0 at m = p-1, which holds one more where
# p mod 6 is 5 and p is 47 or more.
SCHEDULE = Schedule(
    name="v-half",
    title="V-Half (half the activations of 1F1B)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    chunks=2,
    splits_backward=True,
    ends_meet=True,
    place=120,
)
