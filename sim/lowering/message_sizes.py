"""What pipeline ranks send one another: activations, their gradients, or logits, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, Kind
from ...schedules.p2p.point_to_point import Exchange, Recv, Send
from ..network.transfer import Transfer
from ..program.program import Collective
from ..program.script import Script
from .layers.shard import boundary_bytes

if TYPE_CHECKING:
    from .plan import Plan


@dataclass(kw_only=True)
class MessageTransfers:
    """Transfers of one pipeline rank's messages; equal ones of all ranks are one (``alike``)."""

    plan: Plan
    index: int
    alike: dict[Transfer, Transfer]
    known: dict[tuple[int, bool, int], Transfer] = field(default_factory=dict)

    def __call__(self, part: Send | Recv) -> Transfer:
        """The transfer of a message."""
        action, plan = part.action, self.plan
        key = (action.stage, action.kind is Kind.FORWARD, part.peer)
        if key not in self.known:
            count, size = plan.scenario.software.p2p_messages, message_bytes(plan, action)
            replica = plan.groups.replica
            distance = plan.placed.distance(replica[self.index], replica[part.peer])
            transfer = plan.communication.message(size, distance, messages=count)
            self.known[key] = self.alike.setdefault(transfer, transfer)
        return self.known[key]


def message_bytes(plan: Plan, action: Action) -> float:
    """Bytes that ``action`` hands on: an activation, or logits where the loss has a stage of its own."""
    shard, stages = plan.shard, plan.stages
    boundary = action.stage if action.kind is Kind.FORWARD else action.stage - 1
    if stages[boundary].head and not stages[boundary].loss:
        return float(shard.tokens * shard.vocabulary * shard.element_bytes)
    return boundary_bytes(shard, plan.scenario.software)


def gather_received(plan: Plan, script: Script, exchange: Exchange, posted: int) -> None:
    """Scatter/gather (Narayanan 2021, section 4.1): the receivers rebuild the activation over NVLink."""
    shard, software = plan.shard, plan.scenario.software
    received = [part for part in exchange.parts if isinstance(part, Recv)]
    if not (software.scatter_gather_p2p and received and shard.tp > 1) or shard.sequence_parallel:
        return
    work = Collective("all_gather", "tp", plan.costs.transfer("tp", "all_gather", shard.hidden_bytes))
    for _ in received:
        host_s = plan.costs.host_collective_s
        script.wait(script.beside("message all_gather", "tp", "pp", work, after=(posted,), host_s=host_s))
