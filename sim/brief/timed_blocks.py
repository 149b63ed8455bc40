"""Seconds of repeated blocks while collectives beside them hold a share of the SMs; each distinct block is
timed once. Knows blocks by themselves; what runs beside them is in floor.py."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..program.solo import solo_ends

if TYPE_CHECKING:
    from ..program.program import Block, RepeatedBlocks

PARTS = 8
"""Equal parts of a layer; it is worked out what the layer takes if SMs are taken up to the end of each."""


@dataclass(kw_only=True)
class TimedBlocks:
    """Seconds of blocks on a GPU with ``sms`` SMs, of which their own collectives take theirs (0: they take
    none); each distinct block is timed once."""

    sms: int
    blocks: dict[tuple[Block, float, int], float] = field(default_factory=dict)
    rows: dict[tuple[int, float], float] = field(default_factory=dict)  # by identity: programs hold them

    def of(self, work: RepeatedBlocks, taken: float) -> float:
        """Seconds of repeated blocks if a share ``taken`` of the SMs is held all the while."""
        found = self.rows.get((id(work), taken))
        if found is None:
            found = sum(count * self._block(block, taken) for block, count in work.blocks)
            self.rows[id(work), taken] = found
        return found

    def beside(self, work: RepeatedBlocks, taken: float, until_s: float) -> float:
        """Seconds of repeated blocks if a share ``taken`` of the SMs is held for the first ``until_s``
        seconds. Never more than that takes, and little less."""
        if until_s <= 0.0:
            return self.of(work, 0.0)
        if until_s >= (all_s := self.of(work, taken)):
            return all_s
        found_s = 0.0
        for block, count in work.blocks:
            slow_s = self._block(block, taken)
            slowed = min(count, int(until_s / slow_s)) if slow_s > 0.0 else count
            found_s, until_s = found_s + slowed * slow_s, until_s - slowed * slow_s
            if slowed < count:
                found_s += self._block(block, taken, int(PARTS * until_s / slow_s))
                found_s += (count - slowed - 1) * self._block(block, 0.0)
                until_s = 0.0
        return found_s

    def _block(self, block: Block, taken: float, parts: int = PARTS) -> float:
        """Seconds of a block if so many of its parts run without those SMs."""
        if not parts:
            taken, parts = 0.0, PARTS
        key = block, taken, parts
        if key not in self.blocks:
            until_s = math.inf if parts >= PARTS else self._block(block, taken) * parts / PARTS
            self.blocks[key] = solo_ends(block, sms=self.sms, taken=taken, until_s=until_s)[0]
        return self.blocks[key]
