"""Parts of a step that only some scenarios have, loaded where they do: sharding, activations on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..scenario.sharding import sharding_rule

if TYPE_CHECKING:
    from .activation_offload import ActivationCopies
    from .plan import StepPlan
    from .sharded_actions import ShardedActions


def sharded_actions_of(plan: StepPlan) -> ShardedActions | None:
    """The actions of a plan with their gathers and reductions; None where no rule of ZeRO-2, ZeRO-3 or FSDP
    applies, or one rank holds everything."""
    rule = sharding_rule(plan.scenario)
    if rule is None or plan.groups["dp"].ranks == 1:
        return None
    from .sharded_actions import sharded_actions_by

    return sharded_actions_by(plan, rule)


def activation_copies_of(plan: StepPlan) -> ActivationCopies | None:
    """The copies of activations to the host and back; None where activations stay on the GPU."""
    if not plan.scenario.training.activation_offload:
        return None
    from .activation_offload import activation_copies

    return activation_copies(plan)
