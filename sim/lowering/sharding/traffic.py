"""Collectives of sharded data parallelism as ops: gathers and reductions of a number of elements.

The ranks of a shard group hold one copy of everything between them. Where these are not all data-parallel
ranks (hybrid sharding, HSDP), the gradients of each shard are also reduced over the replicas after they are
scattered. Experts have two such groups of their own, of the ranks that hold the same experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...network.transfer import Transfer
from ...program.program import Collective, Op
from ...scenario.sharding import ShardingRule
from ..updates.offload import Offload
from .combined import combined
from .units import Unit


@dataclass(frozen=True, kw_only=True)
class ShardGroup:
    """A process group: its communicator, its size, and what its collectives cost."""

    communicator: str
    ranks: int
    transfer: Callable[[str, float], Transfer]


@dataclass(frozen=True, kw_only=True)
class ShardTraffic:
    """What collectives of sharded data parallelism cost.

    ``gather_bytes`` and ``reduce_bytes`` are bytes of an element on the wire, ``parameter_bytes`` of one in
    memory, before a unit's ``narrow``; ``host_s`` is what each call takes the host, and ``turn_s`` each turn
    of a loop of Python that makes its list, where it takes a list of a tensor a rank.
    """

    rule: ShardingRule
    shards: ShardGroup
    replicas: ShardGroup
    experts: ShardGroup
    expert_replicas: ShardGroup
    gather_bytes: int
    reduce_bytes: int
    parameter_bytes: int
    host_s: float
    turn_s: float = 0.0
    offload: Offload | None = None

    def gather(self, unit: Unit, part: float = 1.0) -> tuple[Op, ...]:
        """All-gathers of a share ``part`` of a unit's parameters, and of its experts in their own group."""
        if self.rule.by_matrices:
            return self._gather_combined(unit, part)
        large = unit.name == "layer" and unit.sharded > self.rule.together
        calls, expert_calls = (self.rule.calls, self.rule.expert_calls) if large else (1, 1)
        return tuple(
            self._listed(
                self._op(
                    "parameter all_gather", "all_gather", group, part * elements / calls * self.gather_bytes
                ),
                group,
            )
            for group, elements, calls in (
                (self.shards, unit.elements * unit.narrow, calls),
                (self.experts, unit.experts * unit.narrow_experts, expert_calls),
            )
            if part * elements > 0 and group.ranks > 1
            for _ in range(calls)
        )

    def reduce(self, unit: Unit) -> tuple[Op, ...]:
        """Reduce-scatters of a unit's gradients; all-reduces over replicas where a shard group is a single
        rank.

        Where a single rank has everything, nothing is reduced; with offloaded state its gradients go to the
        host.
        """
        found: tuple[Op, ...] = ()
        bucket = self.rule.reduce_bucket * self.reduce_bytes
        own, layered = unit.elements + unit.whole, unit.name == "layer"
        for group, elements, lists in (
            (self.shards, own, self.rule.calls if layered else 1),
            (self.experts, unit.experts, self.rule.expert_calls),
        ):
            if elements <= 0:
                continue
            if group.ranks > 1:
                found += tuple(
                    self._listed(
                        self._op("gradient reduce_scatter", "reduce_scatter", group, size, bucket),
                        group,
                        lists,
                    )
                    for size in self._reduced_together(unit, elements)
                )
            elif self._copies(group).ranks > 1:
                found += (self._over(self._copies(group), elements),)
            elif self.offload:
                found += (self.offload.gradients_leave(elements),)
        return found

    def follow(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """The ops that follow reductions: all-reduces of equal shards over replicas, then copies to the
        host if the optimizer's state is there."""
        late = tuple(late for op in ops for late in self._after(op))
        return self._joined(late) if self.rule.by_matrices else late

    def held_back(self, ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
        """``ops`` as far as the rule joins them, and apart from them the last reduction over each group of
        replicas, which those of the layers to come may join. All go where layers are a loop."""
        if not self.rule.combine_layers:
            return ops, ()
        joined = self._joined(ops)
        copies = {self.replicas.communicator, self.expert_replicas.communicator}
        last = {op.work.communicator: k for k, op in enumerate(joined) if isinstance(op.work, Collective)}
        held = {k for name, k in last.items() if name in copies}
        gone = tuple(op for k, op in enumerate(joined) if k not in held)
        return gone, tuple(joined[k] for k in sorted(held))

    def joined(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """Reductions over replicas joined as far as the rule joins them; everything else as it is."""
        return self._joined(ops) if self.rule.combine_layers else ops

    def _gather_combined(self, unit: Unit, part: float) -> tuple[Op, ...]:
        """All-gathers of a share ``part`` of each of a unit's matrices, combined up to the rule's size,
        and of its experts."""
        most = self.rule.combine_gathers
        shared = [self.gather_bytes * unit.narrow * each for each in unit.matrices or (unit.elements,)]
        return tuple(
            self._op("parameter all_gather", "all_gather", group, part * size)
            for group, sizes in (
                (self.shards, combined(shared, most)),
                (self.experts, [self.gather_bytes * unit.narrow_experts * unit.experts]),
            )
            if group.ranks > 1
            for size in sizes
            if part * size > 0
        )

    def _reduced_together(self, unit: Unit, elements: float) -> list[float]:
        """Bytes of each reduction of ``elements`` of a unit: one for all, or matrices combined up to the
        rule's size."""
        if not self.rule.by_matrices or elements == unit.experts or not unit.matrices:
            return [elements * self.reduce_bytes]
        return combined([self.reduce_bytes * each for each in unit.matrices], self.rule.combine_scatters)

    def _joined(self, ops: tuple[Op, ...]) -> tuple[Op, ...]:
        """The ops with all-reduces of neighbouring shards combined up to the rule's size; other ops stay
        as they are."""
        copies = {each.communicator: each for each in (self.replicas, self.expert_replicas)}
        sizes: dict[str, list[float]] = {name: [] for name in copies}
        others = []
        for op in ops:
            if isinstance(op.work, Collective) and op.work.communicator in sizes:
                sizes[op.work.communicator].append(op.work.transfer.bytes)
            else:
                others.append(op)
        joined = (
            self._over(copies[name], size / self.reduce_bytes)
            for name, each in sizes.items()
            for size in combined(each, self.rule.combine_reductions)
        )
        return (*joined, *others)

    def _after(self, op: Op) -> tuple[Op, ...]:
        work = op.work
        if not isinstance(work, Collective) or work.kind not in ("reduce_scatter", "all_reduce"):
            return ()
        elements = work.transfer.bytes / self.reduce_bytes
        if work.kind == "reduce_scatter":
            own = self.shards if work.communicator == self.shards.communicator else self.experts
            elements /= own.ranks
            if self._copies(own).ranks > 1:
                return (self._over(self._copies(own), elements),)
        return (self.offload.gradients_leave(elements),) if self.offload else ()

    def copied_out(self, unit: Unit) -> float:
        """Bytes of copying gathered parameters into place: read and written."""
        return 2.0 * unit.gathered * self.parameter_bytes if self.rule.copies_out else 0.0

    def copied_in(self, unit: Unit) -> float:
        """Bytes read and written to copy fresh gradients into the buffer that is reduced, in its type.

        With flat parameters (FSDP1) there are three passes instead of one: gradients are joined in their own
        type, cast if the reduction has another, and divided.
        """
        if not self.rule.copies_in:
            return 0.0
        copied = float(self.parameter_bytes + self.reduce_bytes)
        if self.rule.flat:
            cast = copied if self.reduce_bytes != self.parameter_bytes else 0.0
            copied = 2.0 * self.parameter_bytes + cast + 2.0 * self.reduce_bytes
        return unit.total * copied

    def _copies(self, group: ShardGroup) -> ShardGroup:
        """The group of the ranks whose shards equal those of ``group``."""
        return self.replicas if group is self.shards else self.expert_replicas

    def _over(self, copies: ShardGroup, elements: float) -> Op:
        return self._op("gradient all_reduce", "all_reduce", copies, elements * self.reduce_bytes)

    def _listed(self, op: Op, group: ShardGroup, lists: int = 1) -> Op:
        """The op of a collective with the time before it in which Python makes its ``lists``; copies out of
        and into what they are flattened to run beside NCCL, or are counted by their bytes."""
        if not self.rule.lists or not isinstance(op.work, Collective):
            return op
        transfer = op.work.transfer
        transfer = replace(transfer, latency_s=transfer.latency_s + lists * group.ranks * self.turn_s)
        return op._replace(work=replace(op.work, transfer=transfer))

    def _op(self, name: str, kind: str, group: ShardGroup, size: float, bucket: float = 0.0) -> Op:
        """A collective of ``size`` bytes, or its share of one larger collective of ``bucket`` bytes, which
        it fills together with its neighbours."""
        transfer = group.transfer(kind, max(size, bucket))
        if bucket > size:
            transfer = replace(transfer, bytes=size, latency_s=transfer.latency_s * size / bucket)
        work = Collective(kind, group.communicator, transfer)
        return Op(name, group.communicator, "dp", work, host_s=self.host_s)
