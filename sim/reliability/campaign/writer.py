"""Copies that are being written to storage while steps go on, where a write may outlast the interval.

What docs/faults.md says of ``on_overlap``, snapshot by snapshot, from an idle storage at every restart. Knows
when snapshots are due and when copies are durable; does not know steps or failures. Where every write ends
before the next snapshot, timeline.py has the same in closed form.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .plan import Tier

BUFFERS = {"skip": 1, "block": 1, "queue": 2}
"""Snapshots in host memory that are not yet durable: one that is written, and in a queue one that waits."""

TIE = 1e-9
"""Share of the clock within which a write that ends when a snapshot is due has ended: clocks add up."""


@dataclass(slots=True)
class WrittenCopy:
    """A checkpoint of the state after ``step``, which is in host memory at ``taken_s`` and durable at
    ``durable_s``."""

    step: int
    taken_s: float
    write_s: float
    durable_s: float


@dataclass(slots=True)
class Writer:
    """The copies of one incarnation of the job that began with ``first`` steps done."""

    tier: Tier
    first: int
    next_due: int = 0
    copies: list[WrittenCopy] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.next_due = (self.first // self.tier.every + 1) * self.tier.every

    @property
    def until_s(self) -> float:
        """When the last copy is durable."""
        return self.copies[-1].durable_s if self.copies else 0.0

    def busy(self, now: float) -> bool:
        """Whether a copy is being written, or waits for it."""
        return self.until_s > now * (1 + TIE)

    def pass_by(self) -> None:
        """No snapshot this time."""
        self.next_due += self.tier.every

    def snapshot(self, now: float, speed: float) -> float:
        """Take the checkpoint that is due; ``speed`` is that of the storage. Returns for how long steps
        stall."""
        tier, step = self.tier, self.next_due
        self.next_due += tier.every
        wait = 0.0
        if tier.overlap == "skip":
            if self.busy(now):
                return 0.0
        elif len(self.copies) >= BUFFERS[tier.overlap]:
            wait = max(0.0, self.copies[-BUFFERS[tier.overlap]].durable_s - now)
        taken = now + wait + tier.stall_s
        write = tier.lag_s / speed
        durable = max(taken, self.until_s) + write
        self.copies = [*self.copies[-3:], WrittenCopy(step, taken, write, durable)]
        return wait + tier.stall_s

    def pause(self, now: float, seconds: float) -> None:
        """The job pauses: a snapshot in the middle of its stall is taken so much later."""
        if self.copies and self.copies[-1].taken_s > now:
            copy = self.copies[-1]
            copy.taken_s += seconds
            before = self.copies[-2].durable_s if len(self.copies) > 1 else 0.0
            copy.durable_s = max(copy.taken_s, before) + copy.write_s

    def stored(self, now: float) -> int | None:
        """The last step of which a copy is durable; None: none since the restart."""
        durable = (copy.step for copy in reversed(self.copies) if copy.durable_s <= now * (1 + 1e-12))
        return next(durable, None)
