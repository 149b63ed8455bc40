"""The communicators that a rank belongs to, and the buffers that NCCL has for each.

Which groups there are follows from the layout; a framework makes one communicator for each that it uses.
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

if TYPE_CHECKING:
    from .plan import Plan

MESSAGES = ("pp", "ep")
"""Groups whose ranks send to and receive from one another: an all-to-all is that too."""


def communicators(plan: Plan) -> tuple[CommunicatorBuffers, ...]:
    """Of every group of a rank with more than one member; the world's for what goes over all ranks."""
    cluster = plan.cluster
    known = cluster.gpu.architecture in ARCHITECTURES
    usual = USUAL.get(cluster.gpu.architecture, RUNTIME_CONNECT)
    version = plan.scenario.software.nccl.version or usual
    found = []
    for name, seat in _seats(plan):
        even = seat.per_domain * seat.domains  # NCCL's tables know as many ranks on every node
        comm = (
            communicator_on(cluster, ranks=even, domains=seat.domains, version=version)
            if known and even > 1
            else None
        )
        if name in MESSAGES:
            found.append(message_buffers(name, seat.ranks, comm))
        else:
            found.append(collective_buffers(name, seat.ranks, comm, trees=version < RUNTIME_CONNECT))
    return tuple(found)


def _seats(plan: Plan) -> Iterator[tuple[str, Seat]]:
    groups, pp = plan.groups, plan.shape.ranks
    near = groups.world.domains == 1
    named = {
        "world": groups.world,
        "tp": groups.tp,
        "cp": groups.cp,
        "dp": groups.shards,
        "replicas": groups.replicas,
        "pp": Seat(ranks=pp, domains=1 if near else pp),
        "ep": groups.ep,
        "etp": groups.etp,
    }
    if plan.shard.experts and groups.ep.ranks > 1:
        named |= {"edp": groups.expert_shards, "expert replicas": groups.expert_replicas}
    yield from ((name, seat) for name, seat in named.items() if seat.ranks > 1)
