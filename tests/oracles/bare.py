"""A schedule with given times and no model: what the closed forms and pictures of schedules are about."""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepsim.schedules.orders.action import ActionKind, Orders, parts
from stepsim.schedules.orders.schedule import Placement, Schedule, Shape
from stepsim.schedules.p2p.point_to_point import MessageGroup, RunAction, Wait, point_to_point
from stepsim.sim.lowering.messages import Messages
from stepsim.sim.network.transfer import Transfer
from stepsim.sim.program import program
from stepsim.sim.program.program import Program, Programs
from stepsim.sim.program.program_builder import ProgramBuilder


@dataclass(frozen=True, kw_only=True)
class ActionTimes:
    """Seconds of one action of one chunk, and of a message between two ranks."""

    forward_s: float
    input_grad_s: float
    weight_grad_s: float
    latency_s: float = 0.0

    def of(self, kind: ActionKind) -> float:
        return {
            ActionKind.FORWARD: self.forward_s,
            ActionKind.BACKWARD: self.input_grad_s + self.weight_grad_s,
            ActionKind.INPUT_GRAD: self.input_grad_s,
            ActionKind.WEIGHT_GRAD: self.weight_grad_s,
        }[kind]


def bare_programs(schedule: Schedule, shape: Shape, times: ActionTimes, rule: str = "async") -> Programs:
    """Programs in which every action is one kernel of the given time and every message a pure latency."""
    return bare_table(schedule.orders(shape), shape, schedule.rank_of, times, rule)


def bare_table(
    orders: Orders, shape: Shape, rank_of: Placement, times: ActionTimes, rule: str = "async"
) -> Programs:
    """The same of any orders, also of ones that no schedule gives."""
    instructions = point_to_point(orders, shape, rank_of, rule)
    message = Transfer(times.latency_s, 0.0, math.inf)
    classes = []
    for rank in range(shape.ranks):
        writer = ProgramBuilder()
        messages = Messages(writer=writer, rule=rule, transfer=lambda _: message)
        for instruction in instructions[rank]:
            match instruction:
                case RunAction(step):
                    for action in parts(step):
                        kernel = program.Compute(times.of(action.kind), "gemm")
                        writer.compute(action.kind.name.lower(), kernel, action=str(action))
                        messages.done[action] = writer.frontier()
                case MessageGroup():
                    messages.exchange(instruction)
                case Wait(part):
                    messages.wait(part)
        classes.append(Program(ops=tuple(writer.ops)))
    return Programs(
        classes=tuple(classes), communicators={}, links=({},) * shape.ranks, sms=1, corun_slowdown=0.0
    )
