"""Orders written down as what a rank does on which stage, the microbatches left to be counted.

Handcrafted schedules are published so: ``F_a × 3, [F_z, I_z, W_z] × 2``. Knows no schedule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from .action import Action, ActionKind


def counted(work: Iterable[tuple[int, ActionKind]], microbatches: float = math.inf) -> Iterator[Action]:
    """Number the actions of an order whose microbatches are left to be counted.

    Each (stage, kind) in ``work`` becomes an action on the next microbatch of that stage and kind, from 0 on.
    Actions on microbatches beyond the first ``microbatches`` are left out.
    """
    next_one: Counter[tuple[int, ActionKind]] = Counter()
    for piece in work:
        number = next_one[piece]
        next_one[piece] = number + 1
        if number < microbatches:
            yield Action(*piece, number)
