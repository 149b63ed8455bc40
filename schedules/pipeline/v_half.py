"""V-Half: about half the activations of 1F1B, and about half its bubble.

Two chunks per rank in a V, backwards split. A fixed order: whatever the costs, the authors make it for equal
times of F, B and W. Any number of microbatches, also fewer than ranks.

Sources: Qi et al. 2024, "Pipeline Parallelism with Controllable Memory" (arXiv 2405.15362); building block
of sail-sg/zero-bubble-pipeline-parallelism 39f2c18 ``zbv_greedy.py`` ``stable_pattern_v_half``.
"""

from __future__ import annotations

from .building_block import Block
from .compact import compacted_schedule


def block(ranks: int) -> Block:
    """F_a at 2r, F_z at 3p-2-r, B_z at 3p-1+d+2r, B_a at 6p-2+d-r; d = 3 for even p, else 0."""
    p, d = ranks, 0 if ranks % 2 else 3
    return [(2 * r, 3 * p - 2 - r, 3 * p - 1 + d + 2 * r, 6 * p - 2 + d - r) for r in range(p)]


# No in_flight: min(2m, m+1+r, 2⌊(p+2)/2⌋) is right but for rank 0 at m = p-1, which holds one more where
# p mod 6 is 5 and p is 47 or more.
SCHEDULE = compacted_schedule(
    name="v-half", title="V-Half (half the activations of 1F1B)", block=block, place=120
)
