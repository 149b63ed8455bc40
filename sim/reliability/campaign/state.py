"""The state of one replication, and how faults reach the job: arrivals, effects that come and go, the inbox.

The job itself is stepping.py (while it runs) and recovering.py (while it does not).
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count
from math import inf, nan

import simpy

from ...scenario.faults.kinds import get_kind
from ...scenario.faults.targets import Target
from .chance import Streams
from .fault import Fault, strike
from .ledger import Ledger
from .outcome import LogEntry, Outcome
from .plan import MOST_EVENTS, CampaignPlan, Effect, Known
from .pool import Events, Pool
from .replicas import Standing, standing
from .sources import Arrivals, Source, Weights, arrivals
from .timeline import CampaignTimeline
from .writer import Writer


@dataclass(eq=False)
class ReplicationState:
    """Everything that changes during one replication. Seconds are wall-clock time since its beginning."""

    plan: CampaignPlan
    number: int
    log: bool = field(kw_only=True)

    # Where the job stands.
    mode: str = "down"
    now: float = 0.0
    step: int = 0
    last_restored: int = -1
    no_progress: int = 0  # restarts in a row without a new checkpoint
    progress_s: float = 0.0  # when there last was one
    storage_step: int = 0  # the last checkpoint on storage
    storage_ledger: Ledger = field(default_factory=Ledger)  # the ledger as it stood then
    base_tier: str = "storage"
    writer: Writer | None = None
    drain_step: int | None = None
    waits: tuple[str, float] = ("", nan)  # for what the job waits, and since when
    job: simpy.Process | None = None
    poked: bool = False
    events: int = 0

    # Who is there.
    empty: list[int] = field(default_factory=list)  # slots without a host, the first lost first
    quiet: frozenset[int] = frozenset()  # where nothing fails: empty, or idle on the job's clock
    down_replicas: dict[int, float] = field(default_factory=dict)  # per_step_ft: when a replica is back
    cold_taken: int = 0

    # What has failed, and what will.
    exposure: float = 0.0  # seconds that the job has run, on which failures of its own clock depend
    inbox: list[Fault] = field(default_factory=list)
    handled: list[Fault] = field(default_factory=list)  # of the recovery under way
    waiting: list[simpy.Process] = field(default_factory=list)  # for arrivals on the wall clock
    effects: dict[int, tuple[Effect, range]] = field(default_factory=dict)
    storage_down: int = 0
    storage_factor: list[float] = field(default_factory=list)
    repeat_at: float = inf
    straggler_at: float = inf
    silent: list[tuple[float, int, Ledger, Fault]] = field(default_factory=list)
    """Corruptions that nobody knows of: when each is noticed, the last clean step, and the ledger then."""

    def __post_init__(self) -> None:
        self.env = simpy.Environment()
        self.streams = Streams(self.plan.seed, self.number)
        self.pool = Pool(self.plan, self.env, self.streams, self.poke)
        self.ledger = Ledger()
        self.outcome = Outcome(number=self.number)
        self.timeline = CampaignTimeline(0.0, 0)
        self.standing = Standing(self.plan.machine.replicas)  # of an elastic job, as it last started
        self.effect_numbers = count()
        self.false_left = self.next_false()
        self._expect_failures()

    def _expect_failures(self) -> None:
        """What will strike: arrivals of sources, units with a lasting fault, and faults at known times."""
        plan = self.plan
        self.weights: Weights | None = None
        if plan.frailty_cv:
            self.weights = Weights([self.pool.frailty(slot) for slot in range(plan.machine.nodes)])
        live = [source for source in plan.sources if source.kind not in plan.off]
        self.arrivals: list[tuple[Arrivals, Source]] = [
            (arrivals(source, self.streams, self.weights), source) for source in live if not source.prevalence
        ]
        self.afflicted = [source for source in live if source.prevalence]
        for source in self.afflicted:
            self._afflict(source)
        self.known = [event for event in plan.events if event.kind.name not in plan.off]
        self.by_step = sorted(
            (event for event in self.known if event.at_step is not None), key=lambda event: event.at_step or 0
        )

    def sleep(self, until_s: float) -> Generator[simpy.Event, None, bool]:
        """Wait; whether the time was reached. False: something has come in before."""
        self.events += 1
        try:
            if until_s > self.now:
                yield self.env.timeout(until_s - self.env.now)
        except simpy.Interrupt:
            self.poked = False
            self.now = self.env.now
            return False
        self.now = until_s
        return True

    def start(self) -> None:
        """Processes that run on the wall clock."""
        if self.plan.on_wall:
            for source in self.arrivals:
                self.waiting.append(self.env.process(self._on_wall(*source)))
        for event in self.known:
            if event.at_step is None:
                self.env.process(self._at(event))

    def _on_wall(self, arriving: Arrivals, source: Source) -> Events:
        while arriving.next < inf:
            try:
                yield self.env.timeout(max(0.0, arriving.next - self.env.now))
            except simpy.Interrupt:  # another host, another time
                continue
            self.deliver(self.fault_of(source, arriving.pop()))

    @property
    def exhausted(self) -> bool:
        """Whether more has happened than anyone wants to wait for."""
        return self.events > MOST_EVENTS

    # Who is there
    # ---------------------------------------------------------------------------------------

    @property
    def live(self) -> int:
        """Replicas that work."""
        return self.standing.live - len(self.down_replicas)

    def absent(self, slot: int) -> bool:
        """Whether the host of a slot takes no part in steps: none there, idle, or its replica is away."""
        if slot in self.standing.idle or slot in self.empty:
            return True
        away = self.down_replicas
        return bool(away) and all(replica in away for replica in self.plan.machine.replicas_of(slot))

    def strikes(self, fault: Fault) -> bool:
        """Whether a fault finds anything: hosts that are out cannot fail again, nor idle ones on the clock of
        the job. On the wall clock idle hosts fail, too.
        """
        if not fault.nodes or not (self.empty or self.standing.idle or self.down_replicas):
            return True
        idle = self.standing.idle if self.plan.on_wall else frozenset()
        return any((slot in idle and slot not in self.empty) or not self.absent(slot) for slot in fault.nodes)

    def settle(self) -> None:
        """The job starts with the hosts that are there: which replicas work, whose clocks stand still."""
        plan, rules = self.plan, self.plan.recovering
        if rules.policy == "elastic_dp":
            self.standing = standing(plan.machine, self.empty, regroup=rules.regroup)
        quiet = frozenset(self.empty) | (frozenset() if plan.on_wall else self.standing.idle)
        if quiet != self.quiet:
            self._hush(quiet - self.quiet, self.quiet - quiet)
            self.quiet = quiet

    def _hush(self, stops: frozenset[int], goes_on: frozenset[int]) -> None:
        """The ages of these hosts stand still, and of those go on."""
        now = self.env.now if self.plan.on_wall else self.exposure
        for number, (arriving, _) in enumerate(self.arrivals):
            before = arriving.next
            for slot in sorted(stops):
                arriving.rest(slot, now)
            for slot in sorted(goes_on):
                arriving.go_on(slot, now)
            self._look_again(number, before)

    def _look_again(self, number: int, before: float) -> None:
        """Have the process that waits for an arrival on the wall clock look again when that is."""
        if (
            self.plan.on_wall
            and self.arrivals[number][0].next != before
            and self.waiting[number].is_alive
            and self.waiting[number] is not self.env.active_process
        ):
            self.waiting[number].interrupt()

    def _at(self, event: Known) -> Events:
        yield self.env.timeout(event.at_s or 0.0)
        self.deliver(self.fault_at(event))

    def fault_of(self, source: Source, unit: int) -> Fault:
        """A fault of a source at a unit; its numbers come from the source's own streams."""
        kind = get_kind(source.kind)
        target = Target(source.scope, None if source.scope in ("job", "storage") else unit)
        duration = kind.duration_s
        if source.duration:
            duration = source.duration.draw(self.streams.get(f"{source.name}/duration"))
        effect = Effect(kind.name, target, source.slow_factor, source.bandwidth_factor, source.latency_add)
        return strike(self.plan, kind, source.name, effect, duration, source.repair, source.notice)

    def fault_at(self, event: Known) -> Fault:
        """A fault at a known time."""
        duration = event.kind.duration_s
        if event.duration:
            duration = event.duration.draw(self.streams.get(f"event/{event.order}"))
        effect = Effect(
            event.kind.name, event.target, event.slow_factor, event.bandwidth_factor, event.latency_add
        )
        return strike(self.plan, event.kind, "event", effect, duration, None, event.notice)

    def again(self) -> Fault:
        """The software crash that comes again after a restart."""
        kind = get_kind("software_crash")
        fault = strike(self.plan, kind, "crash_loop", Effect(kind.name, Target("job")))
        self._count(fault)
        return fault

    def deliver(self, fault: Fault) -> None:
        """A fault strikes now, if it finds anything."""
        self.events += 1
        if self.strikes(fault):
            self._admit(fault)
            self.poke()

    def _admit(self, fault: Fault) -> None:
        """Count a fault; what lasts begins, all else waits in the inbox for the job."""
        self._count(fault)
        if fault.kind.effect in ("slow", "storage"):
            self.begin(fault)
        else:
            self.inbox.append(fault)

    def poke(self) -> None:
        """Wake the job, once, wherever it waits."""
        job = self.job
        if self.poked or job is None or not job.is_alive or self.env.active_process is job:
            return
        self.poked = True
        job.interrupt()

    def _count(self, fault: Fault) -> None:
        out = self.outcome
        out.failures[fault.kind.name] = out.failures.get(fault.kind.name, 0) + 1
        out.sources[fault.name] = out.sources.get(fault.name, 0) + 1
        if self.log:
            effect = fault.effect
            strength = next((x for x in (effect.slow_factor, effect.bandwidth_factor) if x is not None), nan)
            duration = nan if fault.duration_s is None else fault.duration_s
            fault.entry = LogEntry(
                at_s=self.env.now,
                kind=fault.kind.name,
                target=str(fault.target),
                duration_s=duration,
                magnitude=strength,
                effect=fault.kind.effect,
                source=fault.name,
            )
            out.log.append(fault.entry)

    # Effects that last
    # ---------------------------------------------------------------------------------------

    def _afflict(self, source: Source) -> None:
        """Which units have a lasting fault from the start."""
        stream = self.streams.get(f"{source.name}/prevalence")
        for unit in range(source.units):
            if stream.random() < source.prevalence:
                self._set_effect(source, unit)

    def _set_effect(self, source: Source, unit: int) -> None:
        fault = self.fault_of(source, unit)
        fault.name = source.name
        self._count(fault)
        self.effects[next(self.effect_numbers)] = (fault.effect, fault.nodes)

    def begin(self, fault: Fault) -> None:
        """Begin an effect that lasts."""
        number = next(self.effect_numbers)
        if fault.kind.effect == "storage":
            factor = fault.effect.bandwidth_factor
            if factor is None:
                self.storage_down += 1
            else:
                self.storage_factor.append(factor)
        else:
            self.effects[number] = (fault.effect, fault.nodes)
        if fault.duration_s is not None:
            self.env.process(self._end(number, fault))

    def _end(self, number: int, fault: Fault) -> Events:
        yield self.env.timeout(fault.duration_s or 0.0)
        factor = fault.effect.bandwidth_factor
        if fault.kind.effect != "storage":
            self.effects.pop(number, None)
        elif factor is None:
            self.storage_down -= 1
        else:
            self.storage_factor.remove(factor)
        self.poke()

    def swap(self, slot: int) -> bool | None:
        """Another host takes a slot: whether it was warm; None where there is none."""
        taken = self.pool.take(slot)
        if taken is None:
            return None
        warm, host = taken
        for number in [n for n, (effect, nodes) in self.effects.items() if slot in nodes and len(nodes) == 1]:
            del self.effects[number]
        for source in self.afflicted:
            stream = self.streams.get(f"{source.name}/swapped")
            for unit in range(slot * source.units_per_node, (slot + 1) * source.units_per_node):
                if stream.random() < source.prevalence:
                    self._set_effect(source, unit)
        factor = self.pool.frailty(host)
        if self.weights:
            self.weights.change(slot, factor)
        now = self.env.now if self.plan.on_wall else self.exposure
        rested = slot in self.quiet
        self.quiet -= {slot}
        for number, (arriving, _) in enumerate(self.arrivals):
            before = arriving.next
            if rested:
                arriving.go_on(slot, now)
            arriving.swapped(slot, now, factor)
            self._look_again(number, before)
        return warm

    def next_false(self) -> float:
        """Checkpoints until one is taken for a hang."""
        chance = self.plan.notice.false_positive
        if not chance:
            return inf
        from math import ceil, log

        draw = 1.0 - self.streams.get("false_positive").random()
        return 1 if chance >= 1.0 else max(1, ceil(log(draw) / log(1.0 - chance)))

    # The exposure clock
    # --------------------------------------------------------------------------------------

    def next_exposed(self) -> float:
        """Exposure until the next failure of the job's own clock; inf on the wall clock."""
        if self.plan.on_wall or not self.arrivals:
            return inf
        return min(arriving.next for arriving, _ in self.arrivals) - self.exposure

    def take_exposed(self) -> None:
        """The failure that has just arrived on the job's own clock strikes, if it finds anything."""
        arriving, source = min(self.arrivals, key=lambda pair: pair[0].next)
        self.exposure = max(self.exposure, arriving.next)
        fault = self.fault_of(source, arriving.pop())
        if self.strikes(fault):
            self._admit(fault)
