"""What the layouts of one machine share: local shapes, process groups, kernels, curves, blocks of layers.

Knows on which fields of a layout each of these depends, and builds each distinct one once, by the functions
of sim/lowering.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ....schedules.orders.action import Action, ActionKind
from ...lowering.actions import Blocks
from ...lowering.common_to_layouts import ordered_by
from ...lowering.communication import Communication
from ...lowering.layers.local_shape import LocalShape, local_shape_of
from ...lowering.layers.stages import build_stages
from ...lowering.lower import ends_of_model_meet, message_seconds, step_orders
from ...lowering.machines import GpuKind
from ...lowering.placed_groups import PlacedGroups, RankGroups, gpus
from ...lowering.placements import Placements
from ...lowering.plan import StepPlan
from ...lowering.pricing import kernel_pricing
from ...lowering.process_groups import process_groups_of
from ...lowering.profiled_costs import profiled_shape
from ...lowering.slowest_groups import IN_LAYERS, ways_exchange_s
from ...lowering.stage_parameters import stage_parameters
from ...lowering.state.activations import activation_bytes
from ...scenario.machine import cluster_of
from ...scenario.schedules import schedule_named
from ...scenario.sharding import ShardingRule, gradients_last, sharding_rule
from ..distinct_placements import ways_placed
from ..fields import field_value
from .in_flight import enough_microbatches
from .numbering import dense, distinct
from .stages import Pipeline, merged, pipeline_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....hardware.cluster import Cluster
    from ....hardware.profile import GpuProfile
    from ....schedules.orders.action import Orders
    from ....schedules.orders.schedule import Shape
    from ...lowering.layers.layer_builder import Kernel, KernelPricing
    from ...lowering.layers.stages import Stage
    from ...lowering.stage_parameters import Elements, StageParameters
    from ...network.group_placement import GroupPlacement
    from ...scenario.models import Scenario
    from ..space import Space

    Codes = NDArray[np.int64]

PIPELINE = (
    "parallelism.pp",
    "parallelism.vpp",
    "parallelism.stage_split",
    "training.recompute",
    "schedule",
)
"""Fields that the stages of a pipeline depend on."""

_GROUPS = ("tp", "cp", "cp_a2a", "pp", "ep", "etp", "dp", "fsdp_shard_size", "order")
_LOCAL = ("tp", "cp", "cp_a2a", "ep", "etp", "sequence_parallel")
_CUT = ("tp", "ep", "etp", "sequence_parallel")
_SOFTWARE = ("software.exchange.tp_comm_overlap", "software.exchange.moe_a2a_overlap")
"""Switches that the blocks of layers read. Whether reductions and gathers overlap they do not: that is for
the rule by which a layout shards (``ScreenTables.rule``)."""


@dataclass(frozen=True, kw_only=True)
class LayerKey:
    """What the blocks of layers depend on: the local shape of a rank, and where its groups are."""

    local: LocalShape
    groups: tuple[GroupPlacement, ...]
    software: tuple[object, ...]

    def part(self, *, experts: bool, loss: bool) -> object:
        """The part of it on which the half of a layer that has the ``experts`` depends, with the router's
        ``loss`` or without; or all blocks without any experts."""
        named = dict(zip(IN_LAYERS, self.groups, strict=True))
        held = self.local.experts
        if not experts:
            groups = [named[name] for name in IN_LAYERS if name not in ("ep", "etp")]
            return self.local.with_(experts=None), *groups, self.software
        if held is None or held.tensor_parallel:
            return self
        held = held if loss else replace(held, loss_ranks=1)
        counting = [named["tp"]] if held.loss_ranks > 1 else []  # ranks that add up counts of tokens
        return self.local.routed.with_(experts=held), named["ep"], named["etp"], *counting, self.software


@dataclass(kw_only=True)
class ScreenTables:
    """The distinct things of one base, whose layouts are the ``rows`` of the space.

    Arrays by layout: ``group`` is a place in ``group_rows``, ``layer`` one in ``layers``; ``cut`` numbers the
    ways in which parameters are divided, ``sizes`` how many parameters of a layer a rank then holds, and
    ``rule`` how the layout shards. ``forward_of`` is, for each layer, the first layer with the same forward:
    such layers differ in what becomes of gradients. If no rule ``gathers_again`` for layers that are
    recomputed, or hides more beside them, the collectives around layers are the same for every recomputation.
    Groups are those of rank 0 of a layout; of the ``slowest``, those of the rank whose groups take longest.
    """

    space: Space
    base: Scenario
    rows: Codes
    cluster: Cluster
    profile: GpuProfile
    slowest: bool = False
    kernels: dict[Kernel, float] = field(default_factory=dict)
    placed: dict[int, tuple[PlacedGroups, RankGroups]] = field(default_factory=dict)
    sits: dict[bytes, GroupPlacement] = field(default_factory=dict)
    pipeline_rank: dict[int, int] = field(default_factory=dict)
    blocks: dict[int, Blocks] = field(default_factory=dict)
    pipelines: dict[tuple[int, ...], Pipeline] = field(default_factory=dict)
    drafts: dict[int, Scenario] = field(default_factory=dict)
    known_plans: dict[int, dict[str, Any]] = field(default_factory=dict)
    known_placements: dict[int, Placements] = field(default_factory=dict)
    known_codes: dict[str, Codes] = field(default_factory=dict)
    known_shapes: dict[int, Shape] = field(default_factory=dict)
    known_orders: dict[tuple[Hashable, ...], Orders] = field(default_factory=dict)
    known_parameters: dict[tuple[int, Stage, bool], StageParameters] = field(default_factory=dict)

    def __post_init__(self) -> None:
        software = self.base.software
        self.gpu = gpus(self.base.cluster, self.cluster)
        self.communication = Communication(
            cluster=self.cluster,
            curves=self.profile.collectives,
            factors=self.profile.steps,
            measured=self.base.cluster.measured_network,
            nccl=software.exchange.nccl,
            checked=software.host.collective_checks,
        )
        self.two_way = self._of_values("schedule", lambda name: schedule_named(str(name)).two_way)
        self.group, self.group_rows = dense(
            [*(self.code(f"parallelism.{one}") for one in _GROUPS), self.two_way]
        )
        inner, self._inner = distinct(self.group, self.group_rows, self._inner_groups)
        self.cut, cut_rows = dense([self.code(f"parallelism.{axis}") for axis in _CUT])
        self.rule, rules = self._rules()
        self.gathers_again = any(
            rule is not None and (rule.gathers_again or rule.products_each > 0) for rule in rules
        )
        accumulates = np.array([rule is None or not rule.reduces_each for rule in rules])[self.rule]
        lasting = np.array([gradients_last(self.base, rule) for rule in rules])[self.rule]
        alone = (self.microbatches() == 1) & ~lasting  # gradients that a step's one backward makes
        self.shards: NDArray[np.bool_] = np.array([rule is not None for rule in rules])[self.rule]
        self._inner_of_row = inner
        forward, forward_rows = self._forwards()
        kinds = [forward, accumulates.astype(np.int64), alone.astype(np.int64)]
        self.layer, self.layers = distinct(*dense(kinds), self._layer_key)
        self.layer_rows = _first_rows(self.layer, len(self.layers))
        self.forward_of: Codes = self.layer[forward_rows][forward[self.layer_rows]]
        every = merged(self.pipeline(0).kinds)
        self.sizes, _ = distinct(self.cut, cut_rows, partial(self._sizes_of, layers=every))

    def code(self, name: str) -> Codes:
        """The codes of a field for the layouts of this base."""
        if name not in self.known_codes:
            self.known_codes[name] = self.space.codes[name][self.rows]
        return self.known_codes[name]

    def microbatches(self) -> Codes:
        """For each layout, the microbatches of a data-parallel rank in one step."""
        columns = self.space.columns
        micro, dp = (columns[name][self.rows] for name in ("training.micro_batch", "parallelism.dp"))
        count: Codes = self.base.training.global_batch // (micro * dp)
        return count

    def draft(self, row: int) -> Scenario:
        """A layout of this base, unchecked."""
        if row not in self.drafts:
            self.drafts[row] = self.space.draft(int(self.rows[row]))
        return self.drafts[row]

    def pipeline(self, row: int) -> Pipeline:
        """The stages of a layout."""
        key = tuple(int(self.code(name)[row]) for name in PIPELINE)
        if key not in self.pipelines:
            self.pipelines[key] = pipeline_of(self.draft(row))
        return self.pipelines[key]

    def groups(self, row: int) -> tuple[PlacedGroups, RankGroups]:
        """The process groups of a layout, and those of its rank 0, or of the slowest."""
        number = int(self.group[row])
        if number not in self.placed:
            draft = self.draft(row)
            placed = PlacedGroups(
                process_groups=process_groups_of(draft),
                cluster=self.cluster,
                gpu=self.gpu,
                sits=self.sits,
            )
            rank = self._slowest_rank(row, placed) if self.slowest else 0
            self.placed[number] = placed, placed.of_rank(rank)
            self.pipeline_rank[number] = int(placed.process_groups.pipeline_rank[rank]) if rank else 0
        return self.placed[number]

    def pipeline_ranks(self, rows: Codes) -> Codes:
        """For each layout in ``rows``, the place in the pipeline of the rank whose groups its figures are
        for: rank 0, or the slowest rank where that is asked for."""
        found: Codes = np.array([self.pipeline_rank[int(number)] for number in self.group[rows]])
        return found

    def _slowest_rank(self, row: int, placed: PlacedGroups) -> int:
        ways_s = ways_exchange_s(
            ways_placed(self.draft(row), placed, self.cluster), placed, self.communication
        )
        return max(ways_s, key=lambda rank: ways_s[rank])

    def placements(self, row: int) -> Placements:
        """The different placements of a layout's ranks."""
        number = int(self.group[row])
        if number not in self.known_placements:
            found = ways_placed(self.draft(row), self.groups(row)[0], self.cluster)
            self.known_placements[number] = found
        return self.known_placements[number]

    @cached_property
    def uneven(self) -> NDArray[np.bool_]:
        """For each layout, whether its ranks are placed in several ways."""
        found = np.array([len(self.placements(row).first) > 1 for row in self.group_rows])
        ways: NDArray[np.bool_] = found[self.group]
        return ways

    def blocks_of(self, layer: int) -> Blocks:
        """The blocks of the layers of that number, each built when it is asked for."""
        if layer not in self.blocks:
            draft, groups = self.draft(self.layer_rows[layer]), self.groups(self.layer_rows[layer])[1]
            self.blocks[layer] = Blocks(
                local=self.layers[layer].local, software=draft.software, costs=self.costs(draft, groups)
            )
        return self.blocks[layer]

    def costs(self, draft: Scenario, groups: RankGroups) -> KernelPricing:
        """What kernels and collectives cost in these groups; seconds of kernels are shared by all."""
        return kernel_pricing(draft, self.machines, self.communication, groups)

    @property
    def machines(self) -> tuple[GpuKind, ...]:
        """The one kind of GPU on which layouts are compared."""
        return (GpuKind(cluster=self.cluster, profile=self.profile, kernels=self.kernels),)

    def plan_of_rank(self, row: int, rank: int, stages: Sequence[Stage]) -> StepPlan:
        """The plan of a step whose pipeline rank ``rank`` has these ``stages``, numbered from 0.

        It serves what does not ask for orders: its orders name each stage of the rank once.
        """
        if row not in self.known_plans:
            self.known_plans[row] = self._of_any_rank(row)
        common = self.known_plans[row]
        held = tuple(Action(place, ActionKind.FORWARD, 0) for place in range(len(stages)))
        ranks, ends_meet = common["shape"].ranks, common["ends_meet"]
        return StepPlan(
            orders=((),) * rank + (held,) + ((),) * (ranks - 1 - rank),
            stages=tuple(stages),
            parameters=tuple(self._parameters(row, stage, ends_meet=ends_meet) for stage in stages),
            **common,
        )

    def _of_any_rank(self, row: int) -> dict[str, Any]:
        """The fields that the plans of all ranks of a layout have in common."""
        draft, (placed, groups) = self.draft(row), self.groups(row)
        schedule, shape = schedule_named(draft.schedule), draft.pipeline_shape
        blocks = self.blocks_of(int(self.layer[row]))
        return {
            "scenario": draft,
            "cluster": self.cluster,
            "profile": self.profile,
            "local": blocks.local,
            "schedule": schedule,
            "shape": shape,
            "ends_meet": ends_of_model_meet(schedule, shape),
            "groups": groups,
            "placed": placed,
            "costs_of": partial(self.costs, draft),
            "placements": self.placements(row),
            "blocks": blocks,
            "costs": blocks.costs,
            "machines": self.machines,
            "kernels": self.kernels,
            "communication": self.communication,
        }

    def _parameters(self, row: int, stage: Stage, *, ends_meet: bool) -> StageParameters:
        """Parameters of a stage, by how layers are cut; worked out once for layouts that share this."""
        key = int(self.cut[row]), stage, ends_meet
        if key not in self.known_parameters:
            local = self.layers[int(self.layer[row])].local
            self.known_parameters[key] = stage_parameters(stage, local, self.base, ends_meet=ends_meet)
        return self.known_parameters[key]

    def shape(self, row: int) -> Shape:
        """The shape that a layout's schedule is asked for, with as few microbatches as show all that is
        held."""
        if row not in self.known_shapes:
            draft = self.draft(row)
            shape = draft.pipeline_shape
            shape = replace(shape, microbatches=enough_microbatches(draft.schedule, shape))
            costs = schedule_named(draft.schedule).uses_costs
            self.known_shapes[row] = self.weighed(row, shape) if costs else shape
        return self.known_shapes[row]

    def order_key(self, row: int) -> tuple[Hashable, ...]:
        """What the orders of a layout depend on, as a key."""
        return ordered_by(self.draft(row), self.shape(row))

    def orders(self, row: int, *, groups: int = 0) -> Orders:
        """The orders of a layout with these few microbatches, and so many groups of as many as ranks more."""
        shape = self.shape(row)
        shape = replace(shape, microbatches=shape.microbatches + groups * shape.ranks)
        key = ordered_by(self.draft(row), shape)
        if key not in self.known_orders:
            draft = self.draft(row)
            self.known_orders[key] = step_orders(draft, schedule_named(draft.schedule), shape)
        return self.known_orders[key]

    def weighed(self, row: int, shape: Shape) -> Shape:
        """``shape`` with the costs of a layout, which schedules that search are given."""
        draft, groups, layer = self.draft(row), self.groups(row)[1], int(self.layer[row])
        local = self.layers[layer].local
        message_s = message_seconds(draft, self.communication, local, groups)
        sizes = activation_bytes(local, draft.software)
        return profiled_shape(shape, build_stages(draft), self.blocks_of(layer), sizes, message_s)

    def _of_values(self, name: str, of: object) -> Codes:
        found = np.array([of(value) for value in self.space.values[name]], dtype=np.int64)  # type: ignore[operator]
        numbers: Codes = found[self.code(name)]
        return numbers

    def _inner_groups(self, row: int) -> tuple[GroupPlacement, ...]:
        groups = self.groups(row)[1]
        return tuple(groups[name] for name in IN_LAYERS)

    def _rules(self) -> tuple[Codes, list[ShardingRule | None]]:
        """The different rules by which layouts shard; and for each layout the number of its own."""
        several = np.minimum(self.microbatches(), 2)
        fields = "parallelism.zero", "parallelism.pp", "software.gradients.overlap_grad_reduce"
        number, rows = dense([*map(self.code, fields), several])
        return distinct(number, rows, lambda row: sharding_rule(self.draft(row)))

    def _forwards(self) -> tuple[Codes, list[int]]:
        """The different forwards of a layer among the layouts: for each layout the number of its own, and a
        layout of each number. Under autocast they leave casts behind where parameters are sharded."""
        casts: list[Codes] = []
        if self.base.software.kernels.autocast:
            casts = [self.shards.astype(np.int64), self.code("parallelism.dp")]
        return dense(
            [
                *casts,
                *(self.code(f"parallelism.{one}") for one in _LOCAL),
                self.code("training.micro_batch"),
                *(self.code(name) for name in _SOFTWARE),
                self._inner_of_row,
            ]
        )

    def _sizes_of(self, row: int, layers: Stage) -> tuple[Elements, ...]:
        """Parameters that a rank holds of a layer of each kind."""
        held = self._parameters(row, layers, ends_meet=False)
        return tuple(held.layer(run.kind) for run in layers.runs)

    def _layer_key(self, row: int) -> LayerKey:
        draft = self.draft(row)
        return LayerKey(
            local=local_shape_of(draft),
            groups=self._inner[int(self._inner_of_row[row])],
            software=tuple(field_value(draft, name) for name in _SOFTWARE),
        )


def tables_of(space: Space, base: int, profile: GpuProfile, rows: Codes | None = None) -> ScreenTables:
    """The tables of base number ``base``, for some ``rows`` of its layouts or for all."""
    scenario = space.bases[base]
    return ScreenTables(
        space=space,
        base=scenario,
        rows=np.flatnonzero(space.base == base) if rows is None else rows,
        cluster=cluster_of(scenario.cluster),
        profile=profile,
    )


def _first_rows(number: Codes, count: int) -> list[int]:
    """For each number below ``count``, the first layout that has it."""
    first = np.zeros(count, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]
    return first.tolist()
