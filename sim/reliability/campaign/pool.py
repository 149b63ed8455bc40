"""Spare hosts and repairs: who sits in which slot, who stands by, who is being mended.

Knows hosts by number, so that a host that breaks often stays itself after a repair. Idle spares do not fail.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from .chance import Law, Streams
from .plan import CampaignPlan

if TYPE_CHECKING:
    import simpy

Events = Generator["simpy.Event", None, None]


class Pool:
    """``warm`` and ``cold`` hold hosts; both None-like and never empty where ``unlimited``."""

    def __init__(
        self, plan: CampaignPlan, env: simpy.Environment, streams: Streams, returned: Callable[[], None]
    ) -> None:
        rules = plan.recovering
        self.plan, self.env, self.streams, self.returned = plan, env, streams, returned
        self.unlimited = rules.warm is None
        self.wanted = rules.warm or 0
        self.slots = list(range(plan.machine.nodes)) if self.tracked else []
        self.fresh = plan.machine.nodes
        self.warm: deque[int] = deque(self._new() for _ in range(self.wanted))
        self.cold: deque[int] = deque(self._new() for _ in range(0 if self.unlimited else rules.cold))
        self.failures: dict[int, int] = {}
        self.excluded = 0
        self.out = 0
        self.most_out = 0
        self._area, self._since = 0.0, 0.0
        self.series: list[tuple[float, int]] = []

    @property
    def tracked(self) -> bool:
        """Whether single hosts are tracked."""
        rules = self.plan.recovering
        return bool(self.plan.frailty_cv) or rules.exclude_after is not None

    def _new(self) -> int:
        self.fresh += 1
        return self.fresh - 1

    def frailty(self, host: int) -> float:
        """The factor on a host's failure rate, the same whenever it is asked for."""
        cv = self.plan.frailty_cv
        if not cv:
            return 1.0
        return (
            Streams(self.plan.seed, 0)
            .get(f"{self.streams.root}/frailty/{host}")
            .gammavariate(1 / cv**2, cv**2)
        )

    @property
    def ready(self) -> int:
        """Spares that could be taken now."""
        return len(self.warm) + len(self.cold)

    def take(self, slot: int) -> tuple[bool, int] | None:
        """Another host for a slot: whether it was warm, and which; None where there is none."""
        if self.unlimited:
            found, warm = (self._new() if self.tracked else 0), True
        elif self.warm:
            found, warm = self.warm.popleft(), True
            self._promote()
        elif self.cold:
            found, warm = self.cold.popleft(), False
        else:
            return None
        if self.tracked:
            self.slots[slot] = found
        return warm, found

    def _promote(self) -> None:
        if self.cold:
            self.env.process(self._warm_up(self.cold.popleft()))

    def _warm_up(self, host: int) -> Events:
        yield self.env.timeout(self.plan.recovering.promote_s)
        self._put(host)

    def _put(self, host: int) -> None:
        (self.warm if len(self.warm) < self.wanted else self.cold).append(host)
        self.returned()

    def broken(self, slot: int, repair: Law | None, kind: str, *, fixed: bool) -> None:
        """The host of a slot leaves for repair; ``fixed``: it is well again after that time, whatever the
        rule.
        """
        if not self.unlimited:
            self.count(1)
        host = self.slots[slot] if self.tracked else 0
        stream = self.streams.get(f"repair/{kind}")
        rules = self.plan.recovering
        lucky = stream.random() < rules.p_reboot_fixes
        if repair is not None:
            seconds = repair.draw(stream)
        else:
            reboot, replace = rules.reboot.draw(stream), rules.replace.draw(stream)
            seconds = reboot if lucky else reboot + replace
        if self.tracked and not fixed:
            self.failures[host] = self.failures.get(host, 0) + 1
            if rules.exclude_after is not None and self.failures[host] >= rules.exclude_after:
                self.excluded += 1
                host = self._new()
        if not self.unlimited:
            self.env.process(self._mend(host, seconds))

    def _mend(self, host: int, seconds: float) -> Events:
        yield self.env.timeout(seconds)
        self.count(-1)
        self._put(host)

    def count(self, change: int) -> None:
        """Hosts in repair, over time."""
        now = self.env.now
        self._area += self.out * (now - self._since)
        self._since = now
        self.out += change
        self.most_out = max(self.most_out, self.out)
        if not self.unlimited:
            self.series.append((now, self.out))

    def mean_out(self) -> float:
        """Hosts in repair on average until now; nan where repairs are not followed."""
        if self.unlimited or not self.env.now:
            return float("nan")
        self.count(0)
        return self._area / self.env.now
