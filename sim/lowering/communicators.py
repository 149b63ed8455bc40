"""The communicators that a rank belongs to, and the buffers that NCCL has for each.

Which groups there are follows from the layout; a framework connects a communicator for each that it uses, and
the world's as it starts. The list is held to what programs call (tests/test_communicators_used.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..network.collectives import Seat
from ..network.nccl.buffers import (
    RUNTIME_CONNECT,
    CommunicatorBuffers,
    collective_buffers,
    message_buffers,
)
from ..network.nccl.constants import ARCHITECTURES
from ..network.nccl.paths import communicator_on
from ..network.nccl.versions import USUAL
from .reductions import shares_table

if TYPE_CHECKING:
    from .groups import Groups
    from .plan import StepPlan


def communicators(plan: StepPlan, r: int) -> tuple[CommunicatorBuffers, ...]:
    """Of every group that pipeline rank ``r`` communicates over; the world's for what goes over all ranks.

    Where its ranks are seated in several ways, of those whose buffers take the most.
    """
    seated = (_communicators(plan, r, groups) for groups in plan.seats_of_stage(r))
    return max(seated, key=lambda found: sum(one.total for one in found))


def _communicators(plan: StepPlan, r: int, groups: Groups) -> tuple[CommunicatorBuffers, ...]:
    cluster = plan.cluster
    known = cluster.gpu.architecture in ARCHITECTURES
    usual = USUAL.get(cluster.gpu.architecture, RUNTIME_CONNECT)
    version = plan.scenario.software.nccl.version or usual
    messages, found = _messages(plan), []
    for name, seat in _seats(plan, r, groups):
        comm = (
            communicator_on(
                cluster, ranks=seat.ranks, domains=seat.domains, fewest=seat.fewest, version=version
            )
            if known and seat.ranks > 1
            else None
        )
        if name in messages:
            found.append(message_buffers(name, seat.ranks, comm))
        else:
            found.append(collective_buffers(name, seat.ranks, comm, trees=version < RUNTIME_CONNECT))
    return tuple(found)


def _messages(plan: StepPlan) -> set[str]:
    """Groups whose ranks send to and receive from one another: a ring and an all-to-all are that too."""
    gathers = plan.scenario.software.cp_comm == "all_gather"
    heads_only = plan.local.cp_a2a == plan.local.cp
    return {"pp", "ep", "cp.heads"} | (set() if gathers and not heads_only else {"cp", "cp.ring"})


def _seats(plan: StepPlan, r: int, groups: Groups) -> Iterator[tuple[str, Seat]]:
    pp = plan.shape.ranks
    near = groups.world.domains == 1
    named = {"world": groups.world, "tp": groups.tp}
    if plan.local.cp_a2a in (1, plan.local.cp):
        named["cp"] = groups.cp
    else:
        named |= {"cp.heads": groups.cp_heads, "cp.ring": groups.cp_ring}
    named |= {
        "dp": groups.shards,
        "replicas": groups.replicas,
        "pp": Seat(ranks=pp, domains=1 if near else pp),
    }
    if any(run.kind.experts for s in plan.held_stages(r) for run in plan.stages[s].runs):
        named |= {"ep": groups.ep, "etp": groups.etp}
        named |= {"edp": groups.expert_shards, "expert replicas": groups.expert_replicas}
    if shares_table(plan, r):
        named["embedding"] = groups.embedding
    yield from ((name, seat) for name, seat in named.items() if seat.ranks > 1)
