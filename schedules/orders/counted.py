"""Orders written down as what a rank does on which stage, the microbatches left to be counted.

Handcrafted schedules are published so: ``F_a × 3, [F_z, I_z, W_z] × 2``. Knows no schedule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator

from .action import Action, ActionKind


def counted(work: Iterable[tuple[int, ActionKind]], microbatches: float = math.inf) -> Iterator[Action]:
    """An action for each (stage, kind), its microbatches counting up from 0 for each of them apart.

    Those beyond the first ``microbatches`` are left out.
    """
    next_one: Counter[tuple[int, ActionKind]] = Counter()
    for piece in work:
        number = next_one[piece]
        next_one[piece] = number + 1
        if number < microbatches:
            yield Action(*piece, number)
