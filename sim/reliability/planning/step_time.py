"""The time of a step under a set of active effects: simulated once for each set, and kept.

With a given step time, slow parts slow the whole step by the worst of their factors (steps are synchronous),
and a weak link needs its ``slow_factor`` stated. With a model, what is slow, weak or lost is replayed by
the step engine, by the same words as ``stepsim run --fault`` (degradation/of_faults.py).

Replicas are alike, so which of them has what makes no difference, and two with the same wrong are as slow as
one. What is wrong in one replica is replayed where it is: a lone effect slows as in ``stepsim run``. Replicas
with different things wrong are slower together than the worst of them, since stages of different replicas
are late at different times. To keep replays few, they are replayed together with each in the nearest of a
few stages (``stand_ins``), the TOGETHER worst of them. Against replays of all of them where they are, 2 to
10 slow hosts of Llama 3.1 405B on 16,384 GPUs (1.027 on average) come out 0.0004 high on average and 0.0023
off (root mean square of 18 draws). Bounds of the whole step (sim/bounded) take five to eight times as long a
set, which replicas that stand for one another no longer share between replications, and of five sets of ten
slow hosts say within 0.0007 the same. They are for jobs whose replicas are not alike: where ranks are placed,
numbered in another order, or on GPUs of different kinds, everything is replayed where it is.

A fault never makes a run faster. A replay may say so: of Llama 3.1 405B on 16,384 GPUs a weak NIC in the
first stage delays warm-up messages, which then share the NIC of the second stage less with the parameters
that it waits for (an all-gather of 22.7 ms in place of 29.4 ms). That hangs on the order of a few transfers
within milliseconds, which no run of weeks can count on: such a step counts as a healthy one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...scenario.faults.faults import Event
from ...scenario.refusal import NotSupported
from ..campaign.plan import Effect

if TYPE_CHECKING:
    from ...engine.record import Record
    from ...fold.ranks import Degradation as Wrong
    from ...lowering.lower import Lowered
    from ...scenario.faults.machine import Machine
    from ...scenario.models import Scenario

DegradationKey = frozenset[tuple[int, str, float]]
"""(rank, "" or the rank's own link, factor): kernels that take so many times as long, or the share of a
link; (link, FABRIC, share) for a link between switches.
"""

FABRIC = "fabric"

TOGETHER = 3
"""Replicas with different things wrong that are replayed at once: as many as there are stages to sit in."""


class GivenStep:
    """A step time that a document gives."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def during_writes(self, share: float) -> float:
        """How much slower a step is when writes take ``share`` of every NIC. ValueError: nothing says so."""
        raise ValueError(
            "checkpoint.storage.persist_slow_factor: from_bytes needs a model, and step_time is given; give "
            "a factor"
        )

    def __call__(self, effects: frozenset[Effect]) -> float:
        return self.step_s * max((self.factor(effect) for effect in effects), default=1.0)

    @staticmethod
    def factor(effect: Effect) -> float:
        """How much one effect slows a step. ValueError where nothing says so."""
        if effect.slow_factor is None:
            raise ValueError(
                f"{effect.kind} {effect.target}: with a given step_time nothing says how much slower steps "
                f"are; "
                "give slow_factor"
            )
        return effect.slow_factor


class SimulatedStep:
    """A step time that the step engine finds. ``simulated`` holds what has been replayed."""

    def __init__(self, scenario: Scenario, machine: Machine, healthy_s: float | None = None) -> None:
        self.scenario, self.machine = scenario, machine
        self.given_s = healthy_s
        self.simulated: dict[DegradationKey, float] = {}
        self._lowered: Any = None
        self._job: Any = None
        self._record: Record | None = None
        self._wrong: dict[Effect, Wrong] = {}
        self._last: tuple[frozenset[Effect], float] | None = None  # stretch after stretch asks for the same

    @property
    def healthy_s(self) -> float:
        """The step with nothing wrong."""
        if self.given_s is not None:
            return self.given_s
        return self._simulated(frozenset())

    def __call__(self, effects: frozenset[Effect]) -> float:
        if not effects:
            return self.healthy_s
        if self._last is None or self._last[0] != effects:
            self._last = effects, self._under(effects)
        return self._last[1]

    def _under(self, effects: frozenset[Effect]) -> float:
        if not self._replicas_alike:
            return self.healthy_s * max(1.0, self._as_placed(effects))
        alone = sorted(self.by_replica(effects), key=lambda one: (-self._simulated(one), sorted(one)))
        if not alone:
            return self.healthy_s
        worst = max(self._simulated(alone[0]), self._together(alone))
        return self.healthy_s * max(1.0, worst / self._simulated(frozenset()))

    @property
    def _replicas_alike(self) -> bool:
        """Whether which replica has what makes no difference, and ranks are where their numbers say."""
        scenario = self.scenario
        placed = scenario.cluster.placement or scenario.cluster.other_gpus
        return scenario.parallelism.order == "tp-cp-ep-dp-pp" and not placed

    def _as_placed(self, effects: frozenset[Effect]) -> float:
        """How many times as long a step takes with all of it where it is: between bounds where many ranks
        differ, else by all ranks.
        """
        found: dict[tuple[int, str], float] = {}
        for effect in effects:
            for rank, port, factor in _flat_of(self.wrong(effect)):
                found[rank, port] = found.get((rank, port), 1.0) * factor**effect.times
        return self._simulated(_flat(found)) / self._simulated(frozenset())

    def _together(self, replicas: list[DegradationKey]) -> float:
        """The step with several replicas struck, each in the nearest stage that stands for its own."""
        moved = sorted(
            {self._moved(one) for one in replicas}, key=lambda one: (-self._simulated(one), sorted(one))
        )
        return self._simulated(self._at_once(moved[:TOGETHER])) if len(moved) > 1 else 0.0

    def _at_once(self, replicas: list[DegradationKey]) -> DegradationKey:
        """What is wrong in several replicas, in the first, the second, ... of the job."""
        group = self.machine.replica_gpus
        return frozenset(
            (place if port == FABRIC else place + number * group, port, factor)
            for number, own in enumerate(sorted(replicas, key=sorted))
            for place, port, factor in own
        )

    def during_writes(self, share: float) -> float:
        """How much slower a step is when writes take ``share`` of every NIC, towards the network."""
        wrong = frozenset((rank, "nic.out", 1.0 - share) for rank in range(self.machine.gpus))
        return max(1.0, self._simulated(wrong) / self._simulated(frozenset()))

    def by_replica(self, effects: frozenset[Effect]) -> set[DegradationKey]:
        """What is wrong in each replica, as if it were the first, and between switches; none: nothing is.
        Several on the same part multiply, as in a step.
        """
        replicas: dict[int, dict[tuple[int, str], float]] = {}
        fabric: dict[int, float] = {}
        for effect in effects:
            wrong = self.wrong(effect)
            for link, share in wrong.fabric_share.items():
                fabric[link] = fabric.get(link, 1.0) * share**effect.times
            for (rank, port), factor in (
                *(((rank, ""), factor) for rank, factor in wrong.slow.items()),
                *wrong.link_share.items(),
            ):
                stage, replica, offset = self._place(rank)
                own = replicas.setdefault(replica, {})
                key = (stage * self._stage_size + offset, port)
                own[key] = own.get(key, 1.0) * factor**effect.times
        between = frozenset((link, FABRIC, share) for link, share in fabric.items())
        found = {_flat(own) | between for own in replicas.values()}
        return found or ({between} if between else set())

    def _moved(self, degradation: DegradationKey) -> DegradationKey:
        """A replica's degradation, each stage's at the nearest that stands for all, unless they meet."""
        size = self._stage_size
        stages = {place // size for place, port, _ in degradation if port != FABRIC}
        to = {stage: self._nearest(stage) for stage in stages}
        if len(set(to.values())) < len(to):
            return degradation
        return frozenset(
            (place if port == FABRIC else to[place // size] * size + place % size, port, factor)
            for place, port, factor in degradation
        )

    @property
    def _stage_size(self) -> int:
        return self.machine.gpus // self.machine.stages

    def _place(self, rank: int) -> tuple[int, int, int]:
        """(stage, replica, place in the replica's part of the stage): order tp, cp, dp, pp."""
        size, group = self._stage_size, self.machine.replica_gpus
        return rank // size, rank % size // group, rank % group

    def _nearest(self, stage: int) -> int:
        return min(stand_ins(self.machine.stages), key=lambda one: abs(one - stage))

    def wrong(self, effect: Effect) -> Wrong:
        """What an effect does to ranks and links. NotSupported for what the step model does not know."""
        from ...degradation.of_faults import Job, degradation_of

        if self.scenario.cluster.neighbours:
            raise NotSupported(
                "cluster.neighbours", "weeks of faults are those of a job by itself; leave it out"
            )
        if effect not in self._wrong:
            if self._job is None:
                from ...lowering.placed_groups import gpus
                from ...simulate import build_cluster

                cluster = build_cluster(self.scenario)
                where = gpus(self.scenario.cluster, cluster)
                self._job = Job(cluster=cluster, gpu=where, machine=self.machine)
            event = Event(
                kind=effect.kind,
                target=str(effect.target),
                slow_factor=effect.slow_factor,
                bandwidth_factor=effect.bandwidth_factor,
                latency_add=effect.latency_add or None,
            )
            self._wrong[effect] = degradation_of([event], self._job)
        return self._wrong[effect]

    def _simulated(self, degradation: DegradationKey) -> float:
        """Seconds of a step with the degradation: those of the healthy step times a ratio of makespans. The
        time from step to step differs from a makespan by a part that does not slow down."""
        if degradation not in self.simulated:
            if not degradation:
                from ...simulate import simulate

                self.simulated[degradation] = float(simulate(self.scenario, faults=()).step_time_s)
            else:
                self.simulated[degradation] = self._simulated(frozenset()) * self._slowdown(degradation)
        return self.simulated[degradation]

    def _slowdown(self, degradation: DegradationKey) -> float:
        from ...bounded.bounds import bounded
        from ...bounded.collectives_apart import collectives_apart
        from ...bounded.conditions import differing
        from ...engine.collection import collection_paused
        from ...engine.replay import replay
        from ...fold.fold import folded
        from ...fold.ranks import Degradation as Whole
        from ...lowering.lower import lower
        from ...simulate import build_cluster

        with collection_paused():
            if self._lowered is None:
                lowered = collectives_apart(lower(self.scenario, build_cluster(self.scenario)))
                self._lowered = (lowered, replay(folded(lowered).programs).makespan_s)
            lowered, healthy = self._lowered
            wrong = Whole(
                slow={rank: factor for rank, port, factor in degradation if not port},
                link_share={
                    (rank, port): share for rank, port, share in degradation if port not in ("", FABRIC)
                },
                fabric_share={link: share for link, port, share in degradation if port == FABRIC},
            )
            classes = 0 if self._replicas_alike else differing(lowered, wrong)
            found = bounded(lowered, wrong, self._healthy(lowered), classes=classes) if classes else None
            if found is not None:
                return float(found.record.makespan_s / healthy)
            return float(replay(folded(lowered, wrong).programs).makespan_s / healthy)

    def _healthy(self, lowered: Lowered) -> Record:
        """The replay of the healthy step, which bounds start from."""
        from ...engine.replay import replay
        from ...fold.fold import folded

        if self._record is None:
            self._record = replay(folded(lowered).programs)
        return self._record

    def prepare(self, effects: list[Effect]) -> None:
        """Replay what is known to be needed, before workers are given copies of this."""
        for effect in effects:
            self(frozenset([effect]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lowered": None, "_job": None, "_record": None, "_wrong": {}}


def stand_ins(stages: int) -> list[int]:
    """The stages that stand for all where replicas meet: both ends, those beside them, and the middle.

    >>> stand_ins(16), stand_ins(4), stand_ins(1)
    ([0, 1, 7, 14, 15], [0, 1, 2, 3], [0])
    """
    last = stages - 1
    return sorted({0, min(1, last), last // 2, max(0, last - 1), last})


def _flat_of(wrong: Wrong) -> DegradationKey:
    return frozenset(
        (
            *((rank, "", factor) for rank, factor in wrong.slow.items()),
            *((rank, port, share) for (rank, port), share in wrong.link_share.items()),
            *((link, FABRIC, share) for link, share in wrong.fabric_share.items()),
        )
    )


def _flat(wrong: dict[tuple[int, str], float]) -> DegradationKey:
    return frozenset((rank, port, factor) for (rank, port), factor in wrong.items())
