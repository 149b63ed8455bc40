"""How much of the hosts' time in a step is checks of collectives, and not launches.

Knows that programs with and without checks differ in host time alone; what a check costs is the network's
(network/checks.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .lower import lower

if TYPE_CHECKING:
    from .plan import StepPlan


def share_of_checks(plan: StepPlan, microbatches: int) -> float:
    """The share of checks in the host time of a step of ``microbatches``, of the rank whose host has the most
    to do; ``plan`` may be that of a shorter step."""
    if not plan.communication.checked:
        return 0.0
    whole, launches = (_host_s(plan, microbatches, checked=checked) for checked in (True, False))
    busiest = max(range(len(whole)), key=whole.__getitem__)
    return 1.0 - launches[busiest] / whole[busiest] if whole[busiest] else 0.0


def _host_s(plan: StepPlan, microbatches: int, *, checked: bool) -> list[float]:
    """Seconds of the host for issuing a step, by class of ranks, with collectives ``checked`` or not."""
    scenario, steps = plan.scenario, replace(plan.profile.steps, runs=())  # its factors are of this kind
    batch = microbatches * scenario.training.micro_batch * scenario.parallelism.dp
    changed = scenario.model_copy(
        update={
            "training": scenario.training.model_copy(update={"global_batch": batch}),
            "software": scenario.software.with_fields(collective_checks=checked),
        }
    )
    programs = lower(changed, plan.cluster, profile=replace(plan.profile, steps=steps)).programs
    return [sum(op.host_s for op in program.ops) for program in programs.classes]
