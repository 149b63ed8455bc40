"""What a step is made of, before its programs are written: sizes, stages, orders, blocks, groups, costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...schedules.orders.action import actions_of
from .actions import Blocks
from .groups import Groups
from .parameters import StageParameters
from .shard import Shard
from .stages import Stage
from .tape import Costs, Kernel

if TYPE_CHECKING:
    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.action import Orders
    from ...schedules.orders.schedule import Placement, Shape
    from ..scenario.models import Scenario


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One step of one scenario: ``stages`` and ``parameters`` by virtual stage, ``orders`` by pipeline rank.

    ``kernels`` are the distinct kernels that the blocks run.
    """

    scenario: Scenario
    cluster: Cluster
    profile: GpuProfile
    shard: Shard
    shape: Shape
    orders: Orders
    rank_of: Placement
    stages: tuple[Stage, ...]
    parameters: tuple[StageParameters, ...]
    groups: Groups
    blocks: Blocks
    costs: Costs
    kernels: tuple[Kernel, ...]

    def held_stages(self, index: int) -> list[int]:
        """Virtual stages of a pipeline rank, in the order of its first forwards."""
        return list(dict.fromkeys(action.stage for action in actions_of(self.orders[index])))

    def held_parameters(self, index: int) -> float:
        """Parameters that a rank of that pipeline rank holds."""
        return sum(self.parameters[s].total for s in self.held_stages(index))
