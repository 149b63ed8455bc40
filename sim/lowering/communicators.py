"""The communicators that a rank belongs to, and the buffers that NCCL has for each.

Which groups there are follows from the layout; a framework connects a communicator for each that it uses, and
the world's as it starts. The list is held to what programs call (tests/test_communicators_used.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..network.collectives import GroupPlacement
from ..network.nccl.buffers import (
    RUNTIME_CONNECT,
    CommunicatorBuffers,
    collective_buffers,
    message_buffers,
)
from ..network.nccl.constants import ARCHITECTURES
from ..network.nccl.paths import communicator_on
from ..network.nccl.versions import USUAL
from ..network.place import group_of, on_network
from ..scenario.sharding import sharding_rule
from .layers.amax import amax_group
from .reductions import shares_table

if TYPE_CHECKING:
    from .placed_groups import RankGroups
    from .plan import StepPlan


def communicators_by_rank(plan: StepPlan) -> list[tuple[CommunicatorBuffers, ...]]:
    """``communicators`` of every pipeline rank. Where all ranks are placed alike, only a few pipeline
    ranks differ."""
    if len(plan.placements.first) > 1:
        return [communicators(plan, r) for r in range(plan.shape.ranks)]
    known: dict[tuple[bool, bool], tuple[CommunicatorBuffers, ...]] = {}
    found = []
    for r in range(plan.shape.ranks):
        key = _has_experts(plan, r), shares_table(plan, r)
        if key not in known:
            known[key] = communicators(plan, r)
        found.append(known[key])
    return found


def communicators(plan: StepPlan, r: int) -> tuple[CommunicatorBuffers, ...]:
    """NCCL's buffers of every group over which pipeline rank ``r`` communicates. Collectives over all ranks
    use those of the world group.

    Where its ranks are placed in several ways, those of the ranks with the largest buffers.
    """
    placed = (_communicators(plan, r, groups) for groups in plan.groups_of_stage(r))
    return max(placed, key=lambda found: sum(one.total for one in found))


def _communicators(plan: StepPlan, r: int, groups: RankGroups) -> tuple[CommunicatorBuffers, ...]:
    cluster = plan.cluster
    known = cluster.gpu.collectives_as in ARCHITECTURES
    usual = USUAL.get(cluster.gpu.collectives_as, RUNTIME_CONNECT)
    version = plan.scenario.software.exchange.nccl.version or usual
    messages, longer, found = _messages(plan), cluster.interconnect.longer_chunks, []
    for name, placement in _placements(plan, r, groups):
        group = group_of(placement, on_network=on_network(placement, cluster))
        comm = (
            communicator_on(
                cluster, ranks=group.ranks, domains=group.nodes, fewest=group.local, version=version
            )
            if known and placement.ranks > 1
            else None
        )
        if name in messages:
            found.append(message_buffers(name, placement.ranks, comm, longer_chunks=longer))
        else:
            found.append(collective_buffers(name, placement.ranks, comm, trees=version < RUNTIME_CONNECT))
    return tuple(found)


def _messages(plan: StepPlan) -> set[str]:
    """Groups whose ranks send to and receive from one another, as rings and all-to-alls do."""
    exchange = plan.scenario.software.exchange
    gathers = exchange.cp_comm == "all_gather" and exchange.cp_engine != "torch"  # whose gradients go around
    heads_only = plan.local.cp_a2a == plan.local.cp
    return {"pp", "ep", "cp.heads"} | (set() if gathers and not heads_only else {"cp", "cp.ring"})


def _placements(plan: StepPlan, r: int, groups: RankGroups) -> Iterator[tuple[str, GroupPlacement]]:
    pp = plan.shape.ranks
    near = groups["world"].domains == 1
    named = {"world": groups["world"], "tp": groups["tp"]}
    if plan.local.cp_a2a in (1, plan.local.cp):
        named["cp"] = groups["cp"]
    else:
        named |= {"cp.heads": groups["cp.heads"], "cp.ring": groups["cp.ring"]}
    named |= _data_parallel(plan, groups, "dp", "fsdp", "hsdp")
    named["pp"] = GroupPlacement(ranks=pp, domains=1 if near else pp)
    if amax := amax_group(plan.scenario):
        named[amax] = groups[amax]
    if _has_experts(plan, r):
        named |= {"ep": groups["ep"], "etp": groups["etp"]}
        named |= _data_parallel(plan, groups, "edp", "efsdp", "ehsdp")
    if shares_table(plan, r):
        named["embedding"] = groups["embedding"]
    yield from ((name, placement) for name, placement in named.items() if placement.ranks > 1)


def _has_experts(plan: StepPlan, r: int) -> bool:
    """Whether a layer of that pipeline rank has experts."""
    return any(run.kind.experts for s in plan.held_stages(r) for run in plan.stages[s].runs)


def _data_parallel(
    plan: StepPlan, groups: RankGroups, whole: str, shards: str, replicas: str
) -> dict[str, GroupPlacement]:
    """The data-parallel group, or its parts: the group that shards, and the group of the ranks with equal
    shards.

    It is whole where nothing is replicated, and where an optimizer's state is not sharded: then gradients are
    reduced over all of it at once. FSDP communicates in both parts even if each shard group is a single rank.
    """
    unsharded = groups[shards].ranks == 1 and sharding_rule(plan.scenario) is None
    if groups[replicas].ranks == 1 or unsharded:
        return {whole: groups[whole]}
    return {shards: groups[shards], replicas: groups[replicas]}
