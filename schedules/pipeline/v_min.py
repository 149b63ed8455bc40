"""V-Min: about a third of the activations of 1F1B, and about two thirds of its bubble.

Two chunks per rank in a V, backwards split. A fixed order: whatever the costs, the authors make it for equal
times of F, B and W. Where they differ much, every microbatch costs another bubble. Any number of
microbatches, also fewer than ranks.

Sources: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362); building block
of sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` ``stable_pattern_v_min``.
"""

from __future__ import annotations

from .building_block import Block
from .compact import compacted_schedule


def block(ranks: int) -> Block:
    """F_a at r, F_z at 2p-1-r, B_z at 2p+d+r, B_a at 4p-1+d-r; d = 2 if 3 divides p, else 0."""
    p, d = ranks, 0 if ranks % 3 else 2
    return [(r, 2 * p - 1 - r, 2 * p + d + r, 4 * p - 1 + d - r) for r in range(p)]


# No in_flight: min(2m, m+1+r, 2⌊(p+4)/3⌋) is right but where p mod 3 is 2: there one rank holds one less.
SCHEDULE = compacted_schedule(
    name="v-min", title="V-Min (a third of the activations of 1F1B)", block=block, place=130
)
