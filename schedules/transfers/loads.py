"""What a cost needs to know of a plan, in closed form: steps, and the payloads that the busiest links carry.

A plan of thousands of ranks is never unrolled to price it: each algorithm gives its loads for any group,
and the tests hold them against its transfers and flows. Knows neither seconds nor bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby

from .plan import TransferPlan


@dataclass(frozen=True, kw_only=True)
class Loads:
    """``steps`` latencies one after another, ``network_steps`` of them between nodes.

    ``local`` and ``network`` are payloads through the busiest rank's link inside its node and out of it,
    in the busier direction.
    """

    steps: int
    network_steps: int
    local: Fraction
    network: Fraction


def steps_between_nodes(plan: TransferPlan) -> int:
    """Number of steps in which any transfer crosses between nodes."""
    group = plan.group
    ordered = sorted(plan.transfers(), key=lambda transfer: transfer.step)
    return sum(
        any(group.network_switch in (t.source, t.target) or _apart(plan, t.source, t.target) for t in now)
        for _, now in groupby(ordered, key=lambda transfer: transfer.step)
    )


def _apart(plan: TransferPlan, source: int, target: int) -> bool:
    group = plan.group
    if group.is_switch(source) or group.is_switch(target):
        return False
    return group.node_of(source) != group.node_of(target)


def counted(plan: TransferPlan, network_steps: int) -> Loads:
    """The loads of a plan that has no closed form of them: steps, and the payloads that the busiest rank
    sends or receives within its node and over the network. ``network_steps``: how many of its steps cross
    nodes."""
    local, network = plan.busiest("local"), plan.busiest("network")
    return Loads(
        steps=plan.steps,
        network_steps=network_steps,
        local=max(local.sent, local.received),
        network=max(network.sent, network.received),
    )
