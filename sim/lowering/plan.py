"""What a step is made of, before its programs are written: sizes, stages, orders, blocks, groups, costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ...schedules.orders.action import stages_of
from ...schedules.orders.schedule import stage_to_rank
from ..program.program import Ending
from .actions import Blocks
from .communication import Communication
from .layers.layer_builder import Kernel, KernelPricing
from .layers.local_shape import LocalShape
from .layers.stages import Stage
from .machines import GpuKind
from .placed_groups import PlacedGroups, RankGroups
from .placements import Placements
from .process_groups import ProcessGroups
from .profiled_costs import overlaps, splits_backward
from .stage_parameters import Elements, StageParameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from ...hardware.cluster import Cluster
    from ...hardware.profile import GpuProfile
    from ...schedules.orders.action import Orders
    from ...schedules.orders.schedule import Schedule, Shape
    from ..scenario.models import Scenario
    from ..scenario.software.software import Software


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """One step of one scenario: ``stages`` and ``parameters`` by virtual stage, ``orders`` by pipeline rank.

    ``ends_meet``: some pipeline rank holds both the first and the last stage. ``machines`` has the cluster
    and the profile of each kind of GPU; ``kernels`` has the seconds of every distinct kernel that was priced
    on the first kind. ``communication`` remembers the collectives and messages that were priced. ``skips``:
    the gradients overflow, so that nothing is updated. ``groups`` and ``costs`` are those of rank 0;
    ``placed`` has the groups of all ranks, and ``placements`` says which ranks are placed alike.
    """

    schedule: Schedule

    scenario: Scenario
    cluster: Cluster
    profile: GpuProfile
    local: LocalShape
    shape: Shape
    ends_meet: bool
    orders: Orders
    stages: tuple[Stage, ...]
    parameters: tuple[StageParameters, ...]
    groups: RankGroups
    placed: PlacedGroups
    costs_of: Callable[[RankGroups], KernelPricing]
    placements: Placements
    blocks: Blocks
    costs: KernelPricing
    machines: tuple[GpuKind, ...]
    kernels: Mapping[Kernel, float]
    communication: Communication
    skips: bool = False

    @property
    def process_groups(self) -> ProcessGroups:
        """The process groups of all ranks."""
        return self.placed.process_groups

    def of_load(self, load: float) -> StepPlan:
        """The plan of ranks whose experts get ``load`` times the mean."""
        experts = self.local.experts
        if experts is None or experts.load == load:
            return self
        local = replace(self.local, experts=replace(experts, load=load))
        blocks = Blocks(local=local, software=self.blocks.software, costs=self.blocks.costs)
        return replace(self, local=local, blocks=blocks)

    def of_groups(self, rank: int) -> StepPlan:
        """The plan of ranks whose groups are placed as those of ``rank``."""
        if rank == 0:
            return self
        groups = self.placed.of_rank(rank)
        costs = self.costs_of(groups)
        blocks = Blocks(local=self.local, software=self.blocks.software, costs=costs)
        return replace(self, groups=groups, costs=costs, blocks=blocks)

    def groups_of_stage(self, index: int) -> Iterator[RankGroups]:
        """The groups of the ranks of pipeline rank ``index``, once for each distinct placement among them."""
        if len(self.placements.first) == 1:
            yield self.groups
            return
        ranks = self.process_groups.stages[index]
        _, first = np.unique(self.placements.of_rank[ranks], return_index=True)
        for rank in ranks[first].tolist():
            yield self.placed.of_rank(rank)

    def held_stages(self, index: int) -> tuple[int, ...]:
        """Virtual stages of a pipeline rank, in the order of its first forwards."""
        return self._held[index]

    @cached_property
    def _held(self) -> list[tuple[int, ...]]:
        return [*map(stages_of, self.orders)]

    @cached_property
    def _splits_backward(self) -> bool:
        return splits_backward(self.orders)

    def held_parameters(self, index: int) -> float:
        """Parameters that each rank of pipeline rank ``index`` holds."""
        return self.held_elements(index).total

    def held_elements(self, index: int) -> Elements:
        """Parameters that each rank of pipeline rank ``index`` holds, by the group that reduces their
        gradients."""
        return self._held_elements[index]

    @cached_property
    def _held_elements(self) -> list[Elements]:
        return [Elements.of_all(self.parameters[s].elements for s in held) for held in self._held]

    def weights_bytes(self, parameters: StageParameters) -> float:
        """Bytes of a virtual stage's weights as a rank holds them: the ends of the model in 16 bit."""
        ends = (parameters.head + parameters.embedding) * self.local.element_bytes
        return ends + parameters.body * self.local.weights.held

    @cached_property
    def two_way(self) -> bool:
        """Whether microbatches travel in both directions, so that every stage exists twice (DualPipe)."""
        return stage_to_rank(self.schedule.rank_of, self.shape) is None

    @property
    def ways(self) -> int:
        """In how many directions microbatches travel. Each stage of a rank sees its share of them."""
        return 2 if self.two_way else 1

    @property
    def ends(self) -> Ending:
        """How the next step follows this one."""
        if self.schedule.weight_versions:  # no flush: a microbatch finds the weights of its own start
            return "streaming"
        skewed = self.scenario.software.gradients.optimizer_post_validation and self._splits_backward
        return "skewed" if skewed else "together"

    @property
    def point_to_point(self) -> str:
        """The rule by which messages are posted and awaited."""
        return point_to_point_rule(self.scenario.software, self.schedule, self.shape, self.orders)

    def rank_of(self, stage: int) -> int:
        """The pipeline rank of a virtual stage, for the first microbatch."""
        return self.schedule.rank_of(stage, 0, self.shape)

    def weight_versions(self, index: int) -> int:
        """Copies of the 16-bit weights that a pipeline rank keeps; more than one where steps overlap
        (PipeDream)."""
        versions = self.schedule.weight_versions
        return versions(index, self.shape) if versions else 1

    def dp_communicator(self, index: int) -> str:
        """Name of the group in which a rank reduces its gradients. The two copies of a stage share one."""
        return f"dp {self._pair(index)}" if self.two_way else "dp"

    def edp_communicator(self, index: int) -> str:
        """Name of the group in which a rank reduces the gradients of its experts. The two copies of a stage
        share one."""
        return f"edp {self._pair(index)}" if self.two_way else "edp"

    def _pair(self, index: int) -> int:
        return min(index, self.shape.ranks - 1 - index)


def point_to_point_rule(software: Software, schedule: Schedule, shape: Shape, orders: Orders) -> str:
    """The rule by which ``software`` posts the messages of a schedule with these ``orders``, and waits for
    them."""
    if overlaps(orders):
        own = overlaps(schedule.orders(shape))
        return software.pipeline.overlapped_point_to_point if own else "async"
    several = shape.chunks > 1 and not schedule.grouped
    if several or splits_backward(orders):
        return software.pipeline.split_point_to_point
    return software.pipeline.point_to_point
