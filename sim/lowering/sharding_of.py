"""Whether a step shards its parameters over data parallelism; where it does not, nothing of how is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..scenario.sharding import ShardingRule
    from .plan import StepPlan
    from .sharded import Sharding


def sharding_of(plan: StepPlan, rule: ShardingRule | None) -> Sharding | None:
    """The rows of a plan under its rule; None where it has none."""
    if rule is None or plan.groups["dp"].ranks == 1:
        return None
    from .sharded import sharding_by

    return sharding_by(plan, rule)
