"""What pipeline ranks send one another: activations, their gradients, or logits, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind
from ...schedules.p2p.point_to_point import MessageGroup, Recv, Send
from ..network.transfer import Transfer
from ..program.program import Collective
from ..program.program_builder import ProgramBuilder
from .layers.local_shape import boundary_bytes

if TYPE_CHECKING:
    from .plan import StepPlan


FORWARD = ActionKind.FORWARD  # read once: a member of an Enum is looked up by a function


@dataclass(kw_only=True)
class MessageTransfers:
    """Transfers of one pipeline rank's messages; equal ones of all ranks are one (``alike``)."""

    plan: StepPlan
    index: int
    alike: dict[Transfer, Transfer]
    known: dict[tuple[float, int], Transfer] = field(default_factory=dict)

    def __call__(self, part: Send | Recv) -> Transfer:
        """The transfer of a message."""
        plan = self.plan
        size = message_bytes(plan, part.action)
        found = self.known.get((size, part.peer))
        if found is None:
            replica = plan.groups.replica
            distance = plan.placed.distance(replica[self.index], replica[part.peer])
            kinds = plan.placed.kinds_of([replica[self.index], replica[part.peer]])
            count = plan.scenario.software.pipeline.p2p_messages
            transfer = plan.communication.message(size, distance, messages=count, kinds=kinds)
            found = self.known[size, part.peer] = self.alike.setdefault(transfer, transfer)
        return found


def message_bytes(plan: StepPlan, action: Action) -> float:
    """Bytes that ``action`` hands on: an activation, or logits where the loss has a stage of its own."""
    local, stages = plan.local, plan.stages
    boundary = action.stage if action.kind is FORWARD else action.stage - 1
    if stages[boundary].head and not stages[boundary].loss:
        return float(local.tokens * local.vocabulary * local.element_bytes)
    return boundary_bytes(local, plan.scenario.software)


def gathers_received(plan: StepPlan) -> bool:
    """Whether receivers get a share of an activation, and rebuild it."""
    local = plan.local
    scatters = plan.scenario.software.pipeline.scatter_gather_p2p
    return scatters and local.tp > 1 and not local.sequence_parallel


def gather_received(plan: StepPlan, writer: ProgramBuilder, exchange: MessageGroup, posted: int) -> None:
    """Scatter/gather (Narayanan 2021, section 4.1): the receivers rebuild the activation over NVLink."""
    local = plan.local
    received = [part for part in exchange.parts if isinstance(part, Recv)]
    work = Collective("all_gather", "tp", plan.costs.transfer("tp", "all_gather", local.hidden_bytes))
    for _ in received:
        host_s = plan.costs.host_collective_s
        writer.wait(writer.on_stream("message all_gather", "tp", "pp", work, after=(posted,), host_s=host_s))
