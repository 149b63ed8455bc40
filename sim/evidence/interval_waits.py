"""The share of a step's communication that is waiting for the slowest GPU of a group.

Ranks that split tensors or a sequence meet in every layer, but only one another: they wait for the slowest of
their own group, whatever the size of the job. Messages between stages, exchanges of experts and collectives
of gradients connect replicas and stages, so that one late rank delays all of them within the step (Lin et
al. 2025, Understanding Stragglers in Large Model Training Using What-if Analysis, OSDI, arXiv:2505.05713:
delays of one worker spread over pipelines and data-parallel groups). How much each doubling adds is learnt
from measured steps (measured_steps.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..result.step import IntervalPart
from .measured_steps import WAITS, Doubt, MeasuredSteps

if TYPE_CHECKING:
    from ..lowering.plan import StepPlan

OWN_GROUP = {"tp": ("tp", "waiting for tp peers"), "etp": ("etp",), "cp": ("cp", "waiting for cp peers")}
"""By axis whose ranks wait for their own group alone, what the critical path calls that."""


def awaited_doublings(messages: Mapping[str, float], plan: StepPlan) -> float:
    """Doublings of the GPUs that wait for one another, as a mean over what communicates: ``messages`` are
    shares of the critical path by axis. 0 of a step that communicates nothing."""
    together = sum(messages.values())
    if not together:
        return 0.0
    sizes = {name: plan.groups[axis].ranks for axis, names in OWN_GROUP.items() for name in names}
    gpus = plan.scenario.cluster.gpus
    doublings = sum(share * math.log2(sizes.get(name, gpus)) for name, share in messages.items())
    return doublings / together


def waits_of_many(doubt: Doubt, steps: MeasuredSteps) -> Iterator[IntervalPart]:
    """The part of communication by which GPUs wait for the slowest of those that they meet."""
    share, doublings = doubt.communication, doubt.awaited_doublings
    if share > 0 and doublings > 0:
        one = steps.terms[WAITS]
        yield IntervalPart(
            name="communication: waits for the slowest GPU",
            share=share,
            sigma=one.sigma * doublings,
            source=one.source,
            kind=WAITS,
            distance=doublings,
        )
