"""Where hosts meet at the end of a step beside its reductions: checks of small collectives, and a barrier.

Knows which small collectives a trainer calls around its update; what a check costs is the network's.

Sources: huggingface/nanotron src/nanotron/trainer.py (training_step: the norm over one copy of the model, the
loss over data parallelism where it is computed; train_step_logs: a barrier before the time is taken),
optim/clip_grads.py; PyTorch ProcessGroupWrapper.cpp (a barrier is checked too).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.program import Collective
from ..program.program_builder import ProgramBuilder

if TYPE_CHECKING:
    from .plan import StepPlan


def update_checks_s(plan: StepPlan, index: int) -> float:
    """Seconds that checking the collectives of the norm and the loss holds up the hosts of pipeline rank
    ``index``."""
    groups, check_s = plan.groups, plan.communication.check_s
    loses = any(plan.stages[stage].heads for stage in plan.held_stages(index))
    return check_s(groups["model"]) + (check_s(groups["dp"]) if loses else 0.0)


def write_barrier(plan: StepPlan, writer: ProgramBuilder) -> None:
    """Append a barrier of all ranks, for which their hosts wait: NCCL's is an all_reduce of one element."""
    transfer = plan.communication.collective("all_reduce", 4.0, plan.groups["world"], scaled=False)
    host_s = plan.costs.host_collective_s + plan.communication.check_s(plan.groups["world"])
    work = Collective("all_reduce", "world", transfer)
    writer.wait(writer.on_stream("barrier", "world", "optimizer", work, host_s=host_s, host_sync=True))
