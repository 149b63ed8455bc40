"""What losses for metrics cost at the end of a step: ranks meet, and each gathers a list of all of theirs.

Knows torchmetrics' way; that the losses are computed in the first place is in layers/loss.py. Each has two
states, a sum and a count, that are synchronised by themselves: a barrier, a buffer for each rank, an
all-gather, and torch's copy of what came into each buffer. The step's loss has been read by then, so that
nothing runs beside it.

Sources: Lightning-AI/torchmetrics utilities/distributed.py (gather_all_tensors, _simple_gather_all_tensors);
mosaicml/composer trainer/trainer.py (_train_loop: train metrics after every batch), metrics/nlp.py
(LanguageCrossEntropy: sum_loss, total_items); PyTorch ProcessGroupNCCL.cpp (allgather into a list).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..program.program import Collective, Compute
from ..program.program_builder import ProgramBuilder
from .updates.gradients import COPY_HOST_S

if TYPE_CHECKING:
    from .plan import StepPlan

STATES = 2
"""States of a metric that are synchronised: a sum and a count."""
BYTES = 4.0
"""Bytes of a state, and of what a barrier reduces."""


def write_logged_losses(plan: StepPlan, writer: ProgramBuilder) -> None:
    """Synchronise the states of all losses that are logged, one after the other."""
    world, losses = plan.groups["world"], plan.scenario.software.kernels.logged_losses
    if world.ranks == 1 or not losses:
        return
    copies_s = world.ranks * COPY_HOST_S * plan.profile.steps.host * plan.cluster.node.launch_factor
    call_s = plan.costs.host_collective_s + plan.communication.check_s(world)
    barrier = plan.communication.collective("all_reduce", BYTES, world, scaled=False)
    gathering = plan.communication.collective("all_gather", BYTES * world.ranks, world, scaled=False)
    for _ in range(STATES * losses):
        work = Collective("all_reduce", "world", barrier)
        writer.wait(writer.on_stream("barrier", "world", "optimizer", work, host_s=call_s, host_sync=True))
        work = Collective("all_gather", "world", gathering)
        gather_s = call_s + copies_s  # a buffer for each rank first
        writer.wait(writer.on_stream("metrics all_gather", "world", "optimizer", work, host_s=gather_s))
        writer.compute("metrics of all ranks", Compute(0.0, "fixed"), category="optimizer", host_s=copies_s)
