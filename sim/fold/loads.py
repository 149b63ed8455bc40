"""How busy every link of the fabric was over a step: the share of its capacity that the step's bytes took.

A mean over the whole step, for pictures and reports; whether and when a link was full is the engine's to
know. Bytes count where they go, whatever a link's capacity. Knows programs and routes; knows no time but the
step's.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from ..program.program import Collective, Exchange, Program
from .fabric import uses
from .ranks import HEALTHY, ranks_of
from .weak_links import topology_for

if TYPE_CHECKING:
    from ..lowering.lower import Lowered


def link_loads(lowered: Lowered, step_s: float) -> dict[str, float]:
    """The mean load of each link that carries anything, from 0 to 1 over the step, by the link's name. Trunks
    under an even spread count as one link (``leaf 0 -> spines 0``)."""
    ranks, cluster = ranks_of(lowered), lowered.plan.cluster
    if not cluster.interconnect.connects_hosts:
        return {}
    topology = topology_for(cluster)
    sent = [_sent(program) for program in lowered.programs.classes]
    carried = np.zeros(len(topology.links))
    for use, flows in uses(lowered, ranks, topology, HEALTHY, ports=True):
        a, b = use
        by_stage = np.array(
            [amounts[b if isinstance(b, int) else (a, b)] for amounts in sent], dtype=np.float64
        )
        if isinstance(b, int):
            by_stage[np.arange(len(by_stage)) != a] = 0.0
        bytes_ = flows.weight * by_stage[ranks.signature[flows.sender]]
        carried += np.bincount(flows.link, bytes_, len(carried))
    busy = np.flatnonzero(carried)
    loads = carried[busy] / (topology.links.usable_bytes_per_s(busy) * step_s)
    names = (topology.links.name(link) for link in busy.tolist())
    return dict(zip(names, np.minimum(loads, 1.0).tolist(), strict=True))


def _sent(program: Program) -> defaultdict[object, float]:
    """Bytes through the NIC of a rank by (communicator, pattern), and of messages by receiving class."""
    found: defaultdict[object, float] = defaultdict(float)
    for op, times in program.counted_ops():
        if isinstance(op.work, Collective):
            transfer = op.work.transfer
            found[op.work.communicator, transfer.pattern] += times * transfer.bytes * transfer.nic
        elif isinstance(op.work, Exchange):
            for part in op.work.parts:
                if part.send:
                    found[part.peer] += part.transfer.bytes * part.transfer.nic
    return found
