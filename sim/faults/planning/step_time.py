"""The time of a step under a set of active effects: simulated once for each set, and kept.

With a given step time, slow parts slow the whole step by the worst of their factors (steps are synchronous),
and a weak link needs its ``slow_factor`` stated. With a model, slow GPUs and weak NICs are replayed by the
step engine.

Two simplifications keep the number of replays small, and both were looked at on Llama 3.1 405B on 16,384
GPUs. Effects in different data-parallel replicas count as the worst of them alone (two slow hosts in two
replicas: 1.026, the worst of them alone: 1.021). An effect alone in its replica counts as if it sat in the
nearest of the first, the middle and the last pipeline stage (between 1.016 and 1.026 over all stages).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...scenario.refusal import NotSupported
from ..campaign.plan import Effect

if TYPE_CHECKING:
    from ...scenario.models import Scenario
    from ..spec.machine import Machine

Trouble = frozenset[tuple[int, str, float]]
"""(rank, "" or the rank's own link, factor): kernels that take so many times as long, or the share of a
link.
"""

KNOWN = ("slow_factor of a GPU, rank or node", "bandwidth_factor of a nic, or of a rail inside a node")


class GivenStep:
    """A step time that a document gives."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

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
        self.simulated: dict[Trouble, float] = {}
        self._lowered: Any = None

    @property
    def healthy_s(self) -> float:
        """The step with nothing wrong."""
        if self.given_s is not None:
            return self.given_s
        return self._simulated(frozenset())

    def __call__(self, effects: frozenset[Effect]) -> float:
        if not effects:
            return self.healthy_s
        worst = max(self._simulated(trouble) for trouble in self.by_replica(effects))
        return self.healthy_s * worst / self._simulated(frozenset())

    def by_replica(self, effects: frozenset[Effect]) -> set[Trouble]:
        """What is wrong in each replica, as if it were the first."""
        replicas: dict[int, dict[tuple[int, str], float]] = {}
        for effect in effects:
            for rank, link, factor in self.ranks(effect):
                stage, replica, offset = self._place(rank)
                own = replicas.setdefault(replica, {})
                key = (stage * self._stage_size + offset, link)
                worst = min if link else max
                own[key] = worst(own.get(key, factor), factor)
        found = set()
        for own in replicas.values():
            stages = {rank // self._stage_size for rank, _ in own}
            moved = self._nearest(stages.pop()) if len(stages) == 1 else None
            found.add(
                frozenset(
                    (
                        rank if moved is None else moved * self._stage_size + rank % self._stage_size,
                        link,
                        factor,
                    )
                    for (rank, link), factor in own.items()
                )
            )
        return found

    @property
    def _stage_size(self) -> int:
        return self.machine.gpus // self.machine.stages

    def _place(self, rank: int) -> tuple[int, int, int]:
        """(stage, replica, place in the replica's part of the stage): order tp, cp, dp, pp."""
        size, group = self._stage_size, self.machine.replica_gpus
        return rank // size, rank % size // group, rank % group

    def _nearest(self, stage: int) -> int:
        last = self.machine.stages - 1
        return min((0, last // 2, last), key=lambda one: abs(one - stage))

    def ranks(self, effect: Effect) -> list[tuple[int, str, float]]:
        """What an effect does to which ranks. NotSupported for what the step model does not know."""
        machine, target = self.machine, effect.target
        field = f"faults: {effect.kind} {target}"
        if self.scenario.parallelism.order != "tp-cp-ep-dp-pp" or self.scenario.cluster.placement:
            raise NotSupported(
                field, "steps with faults need parallelism.order tp-cp-ep-dp-pp and no placement"
            )
        if effect.latency_add:
            raise NotSupported(field, "the step model does not know latency_add yet")
        if effect.slow_factor is not None and effect.bandwidth_factor is None:
            nodes = machine.nodes_of(target)
            if target.scope in ("gpu", "rank") and not target.inside:
                return [(target.index or 0, "", effect.slow_factor)]
            if target.scope == "gpu":
                return [(nodes.start * machine.gpus_per_node + (target.index or 0), "", effect.slow_factor)]
            if target.scope == "node":
                first = nodes.start * machine.gpus_per_node
                return [(first + i, "", effect.slow_factor) for i in range(machine.gpus_per_node)]
        own_nic = machine.nics_per_node == machine.gpus_per_node
        if effect.bandwidth_factor is not None and own_nic:
            share = effect.bandwidth_factor
            index = target.index or 0
            if target.inside and target.inside.scope == "node" and target.scope in ("nic", "rail", "link"):
                index += (target.inside.index or 0) * machine.nics_per_node
                return [(index, link, share) for link in ("nic.out", "nic.in")]
            if target.scope in ("nic", "link"):
                return [(index, link, share) for link in ("nic.out", "nic.in")]
        raise NotSupported(field, f"the step model does not know this yet; it knows {'; '.join(KNOWN)}")

    def _simulated(self, trouble: Trouble) -> float:
        """Makespans are compared: the time from step to step differs from them by what does not slow down."""
        if trouble not in self.simulated:
            if not trouble:
                from ...simulate import simulate

                self.simulated[trouble] = float(simulate(self.scenario).step_time_s)
            else:
                self.simulated[trouble] = self._simulated(frozenset()) * self._slowdown(trouble)
        return self.simulated[trouble]

    def _slowdown(self, trouble: Trouble) -> float:
        from ...engine.collection import collection_paused
        from ...engine.replay import replay
        from ...fold.ranks import Trouble as Wrong
        from ...fold.whole import folded
        from ...simulate import build_cluster
        from ...step.lower import lower

        with collection_paused():
            if self._lowered is None:
                lowered = lower(self.scenario, build_cluster(self.scenario))
                self._lowered = (lowered, replay(folded(lowered).programs).makespan_s)
            lowered, healthy = self._lowered
            wrong = Wrong(
                slow={rank: factor for rank, link, factor in trouble if not link},
                link_share={(rank, link): factor for rank, link, factor in trouble if link},
            )
            return float(replay(folded(lowered, wrong).programs).makespan_s / healthy)

    def prepare(self, effects: list[Effect]) -> None:
        """Replay what is known to be needed, before workers are given copies of this."""
        for effect in effects:
            self(frozenset([effect]))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lowered": None}
