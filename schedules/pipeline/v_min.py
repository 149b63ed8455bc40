"""V-Min: about a third of the activations of 1F1B, and about two thirds of its bubble.

Two chunks per rank in a V, backwards split. A fixed order: whatever the costs, the authors make it for equal
times of F, B and W. Where they differ much, every microbatch costs another bubble. Any number of
microbatches, also fewer than ranks.

Sources: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362); building block
of sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` ``stable_pattern_v_min``.
"""

from __future__ import annotations

from ..orders.action import Orders
from ..orders.schedule import Schedule, Shape, fixed_chunks, v_placement
from .building_block import Block
from .compact import compacted

check = fixed_chunks("v-min", 2)


def block(ranks: int) -> Block:
    """F_a at r, F_z at 2p-1-r, B_z at 2p+d+r, B_a at 4p-1+d-r; d = 2 if 3 divides p, else 0."""
    p, d = ranks, 0 if ranks % 3 else 2
    return [(r, 2 * p - 1 - r, 2 * p + d + r, 4 * p - 1 + d - r) for r in range(p)]


def orders(shape: Shape) -> Orders:
    """The block, once for each microbatch, its warm-up and cool-down moved up."""
    check(shape)
    return compacted(block(shape.ranks), shape.microbatches)


# No in_flight: min(2m, m+1+r, 2⌊(p+4)/3⌋) is right but where p mod 3 is 2: there one rank holds one less.
SCHEDULE = Schedule(
    name="v-min",
    title="V-Min (a third of the activations of 1F1B)",
    orders=orders,
    check=check,
    rank_of=v_placement,
    chunks=2,
    splits_backward=True,
    ends_meet=True,
    place=130,
)
