"""Jobs whose hosts leave for repair and come back, from the definitions of docs/faults.md alone.

Elastic data parallelism (hosts wait, or are regrouped), and jobs without spares that need every host (one
replica). Event by event, with every host told apart. Imports nothing of the simulator.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf
from random import Random


@dataclass(frozen=True, kw_only=True)
class Hosts:
    """Seconds. ``need`` replicas must be live. ``rate`` is per host and second of its clock.

    Blocking checkpoints of ``stall`` after every ``every`` steps. ``repair``: exactly, or on average where
    ``exponential``.
    """

    replicas: int
    each: int
    need: int
    rate: float
    repair: float
    detect: float
    restore: float
    step: float
    every: int
    stall: float = 0.0
    wall: bool = False
    exposed: bool = True
    regroup: bool = False
    micro: bool = False
    exponential: bool = False
    spares: int = 0


@dataclass
class Life:
    """One run. ``trace``: faults at known times of the wall clock, in place of random ones."""

    job: Hosts
    horizon: float
    random: Random
    trace: list[tuple[float, int]] | None = None
    now: float = 0.0
    empty: list[int] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    spare: int = 0
    live: int = 0
    idle: set[int] = field(default_factory=set)
    done: int = 0
    stored: int = 0
    useful: float = 0.0
    stored_useful: float = 0.0

    def run(self) -> float:
        """ETTR."""
        self.spare, self.live = self.job.spares, self.job.replicas
        while self.now < self.horizon:
            fault = self._work()
            if self.now >= self.horizon:
                break
            while fault is not None or self.now < self.horizon:
                if fault is not None:
                    self._pass(self.job.detect)
                self._staff()
                fault = self._restore()
                if fault is None:
                    break
        return self.useful / self.horizon

    # Hosts

    def _out(self, host: int) -> None:
        self.empty.append(host)
        away = self.random.expovariate(1 / self.job.repair) if self.job.exponential else self.job.repair
        heapq.heappush(self.back, self.now + away)

    def _returns(self) -> bool:
        """Hosts that are back by now stand by."""
        some = False
        while self.back and self.back[0] <= self.now:
            heapq.heappop(self.back)
            self.spare += 1
            some = True
        return some

    def _lacks(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for host in self.empty:
            found[host // self.job.each] = found.get(host // self.job.each, 0) + 1
        return found

    def _settle(self) -> None:
        job = self.job
        while self.spare and self.empty:
            lacks = self._lacks()
            self.empty.remove(min(self.empty, key=lambda host: lacks[host // job.each]))
            self.spare -= 1
        broken = self._lacks()
        healthy = [h for r in sorted(broken) for h in self._hosts(r) if h not in self.empty]
        self.live = job.replicas - len(broken)
        if job.regroup:
            left = job.replicas * job.each - len(self.empty)
            self.live = left // job.each
            healthy = healthy[len(healthy) - left % job.each :] if left % job.each else []
        self.idle = set(healthy) if job.replicas > 1 else set()  # a job that is not elastic waits as a whole

    def _hosts(self, replica: int) -> range:
        return range(replica * self.job.each, (replica + 1) * self.job.each)

    def _grows(self) -> bool:
        job = self.job
        if not self.spare or not self.empty:
            return False
        if job.regroup:
            hosts = job.replicas * job.each - len(self.empty) + self.spare
            return min(job.replicas, hosts // job.each) > self.live
        return min(self._lacks().values()) <= self.spare

    # Faults

    def _can_fail(self, host: int) -> bool:
        return host not in self.empty and (self.job.wall or host not in self.idle)

    def _next_fault(self, *, exposed: bool) -> tuple[float, int]:
        """The next fault that finds anything, if nothing changes before."""
        job = self.job
        if self.trace is not None:
            while self.trace and self.trace[0][0] < self.now:
                self.trace.pop(0)
            return self.trace[0] if self.trace else (inf, 0)
        if not (exposed or job.wall):
            return inf, 0
        gone = {*self.empty} if job.wall else {*self.empty, *self.idle}
        there = [h for h in range(job.replicas * job.each) if h not in gone]
        if not there:
            return inf, 0
        return self.now + self.random.expovariate(job.rate * len(there)), self.random.choice(there)

    def _quiet_until(self, end: float, *, exposed: bool) -> Iterator[int]:
        """Time passes until ``end``; the hosts that fail meanwhile."""
        while True:
            at, host = self._next_fault(exposed=exposed)
            change = self.back[0] if self.back else inf
            until = min(end, at, change, self.horizon)
            self.now = max(self.now, until)
            if until in (end, self.horizon):
                self._returns()
                return
            if until == change:
                self._returns()
                continue
            if self.trace is not None:
                self.trace.pop(0)
            if self._can_fail(host):
                yield host

    # Phases

    def _pass(self, seconds: float) -> None:
        for host in self._quiet_until(self.now + seconds, exposed=False):
            self._out(host)

    def _staff(self) -> None:
        self._returns()
        self._settle()
        while self.live < self.job.need and self.now < self.horizon:
            for host in self._quiet_until(self.back[0], exposed=False):
                self._out(host)
            self._returns()
            self._settle()

    def _restore(self) -> int | None:
        for host in self._quiet_until(self.now + self.job.restore, exposed=self.job.exposed):
            serves = host not in self.idle
            self._out(host)
            if serves:
                return host
        return None

    def _work(self) -> int | None:
        """Steps, until a fault (returned) or until hosts are back for another replica (None)."""
        began, leave = self.now, inf
        while True:
            if leave == inf and self._grows():
                leave = self._end_of_step(began)
            at, host = self._next_fault(exposed=True)
            change = self.back[0] if self.back else inf
            until = min(at, change, leave, self.horizon)
            self.now = max(self.now, until)
            if until in (leave, self.horizon):
                self._progress(began, whole=until == self.horizon)
                return None
            if until == change:
                self._returns()
                continue
            if self.trace is not None:
                self.trace.pop(0)
            if not self._can_fail(host):
                continue
            serves = host not in self.idle
            self._out(host)
            if serves:
                self._progress(began, whole=False)
                self.done, self.useful = self.stored, self.stored_useful
                return host

    def _step(self) -> tuple[float, float]:
        """How long a step takes, and what it is worth."""
        job = self.job
        if job.micro:
            return job.step, job.step * self.live / job.replicas
        return job.step * job.replicas / self.live, job.step

    def _end_of_step(self, began: float) -> float:
        """When the step in flight is done; now, if there is none."""
        length, _ = self._step()
        at, steps = began, self.done
        while at < self.now:
            at += length
            steps += 1
            if at >= self.now:
                return at
            if steps % self.job.every == 0:
                at += self.job.stall
                if at >= self.now:
                    return self.now
        return at

    def _progress(self, began: float, *, whole: bool) -> None:
        """Steps and checkpoints from ``began`` until now; ``whole``: the step in flight counts."""
        length, worth = self._step()
        at = began
        while True:
            left = self.job.every - self.done % self.job.every
            fit = math.floor((self.now - at) / length + 1e-9)
            if fit < left:
                self.done += fit
                self.useful += fit * worth
                if whole:
                    self.useful += worth * ((self.now - at) / length - fit)
                return
            self.done += left
            self.useful += left * worth
            at += left * length + self.job.stall
            if at > self.now * (1 + 1e-12):
                return
            self.stored, self.stored_useful = self.done, self.useful


def monte_carlo(job: Hosts, horizon: float, runs: int, seed: int = 0) -> tuple[float, float]:
    """Mean ETTR of runs, and its standard error."""
    found = [Life(job, horizon, Random(f"{seed}/{number}")).run() for number in range(runs)]
    mean = math.fsum(found) / runs
    return mean, math.sqrt(math.fsum((one - mean) ** 2 for one in found) / (runs - 1) / runs)
