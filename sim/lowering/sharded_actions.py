"""ZeRO-2, ZeRO-3 and FSDP of one pipeline rank: its actions with the gathers and reductions around them.

scenario/sharding.py has the rule: which action gathers or reduces what. The collectives are written in
sharding/ (rows.py places them, compose.py orders them, traffic.py makes the ops).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...schedules.orders.action import Action, ActionKind, Overlap
from ..network.collectives import GroupPlacement
from ..scenario.sharding import ShardingRule
from .actions import Owned, action_blocks, block_owners, owned
from .layers.kinds import LayerRun
from .layers.recompute import FULL
from .parameters import count_of, layer_parameters
from .reductions import offload_of
from .sharding.communicators import EXPERT_REPLICAS, EXPERT_SHARDS, REPLICAS, SHARDS
from .sharding.compose import Composer
from .sharding.held import largest_gradients, largest_pair
from .sharding.pairs import Joint, pair_row
from .sharding.rows import CountedBlocks, Moves, Rows
from .sharding.traffic import ShardGroup, ShardTraffic
from .sharding.units import Piece, Unit, pieces
from .state.timeline import Buffers
from .updates.gradients import COPY_HOST_S

if TYPE_CHECKING:
    from .overlapped import OverlappedBlocks
    from .plan import StepPlan

LARGEST_MATRIX = 3
"""The larger matrices of a plain transformer's layer hold 4 of its 12 h^2 parameters each."""

NEEDS_PARAMETERS = (ActionKind.FORWARD, ActionKind.BACKWARD, ActionKind.INPUT_GRAD)
GIVES_GRADIENT = (ActionKind.BACKWARD, ActionKind.WEIGHT_GRAD)


@dataclass
class ShardedActions:
    """The blocks of every action of a plan with its gathers and reductions; each distinct action is
    composed once."""

    plan: StepPlan
    rule: ShardingRule
    rows: Rows
    known: dict[tuple[int, ActionKind, Moves], CountedBlocks] = field(default_factory=dict)
    pairs: dict[tuple[int, int, Moves], CountedBlocks] = field(default_factory=dict)

    def row(self, action: Action, blocks: Owned, *, first: bool, last: bool = False) -> CountedBlocks:
        """``blocks`` of ``action`` with its gathers and reductions. ``first``: it is its stage's first in
        the step; ``last``: it is of the stage's last microbatch."""
        moves = self._moves(action.kind, first=first, last=last)
        key = action.stage, action.kind, moves
        if key not in self.known:
            self.known[key] = self._row(action, blocks, moves)
        return self.known[key]

    def pair_row(self, step: Overlap, blocks: OverlappedBlocks, *, first: bool) -> CountedBlocks:
        """``blocks`` of an overlapped forward and backward, with the gathers and reductions of both."""
        ahead, back = (
            self._moves(ActionKind.FORWARD, first=first),
            self._moves(ActionKind.BACKWARD, first=False),
        )
        stages = step.forward.stage, step.backward.stage
        key = *stages, ahead
        if key not in self.pairs:
            row = [
                Joint(
                    (block,) * count,
                    self._unit(mine, stages[0], backward=False) if mine else None,
                    self._unit(other, stages[1]) if other else None,
                )
                for block, mine, other, count in blocks
            ]
            self.pairs[key] = pair_row(self.rows, row, ahead, back, self._kept())
        return self.pairs[key]

    def _moves(self, kind: ActionKind, *, first: bool, last: bool = False) -> Moves:
        rule = self.rule
        if kind is ActionKind.FORWARD:
            gathers = rule.gathers == "each" or (rule.gathers == "once" and first)
        else:
            gathers = rule.regathers and kind in NEEDS_PARAMETERS
        table = kind is ActionKind.INPUT_GRAD
        now = rule.reduces_each or (rule.beside_last and last)
        reduces = now and (table or kind in GIVES_GRADIENT)
        return Moves(gathers=gathers, reduces=reduces, table=table)

    def last_reduction(self, stage: int) -> CountedBlocks:
        """The reductions of a stage after its last backward, for rules that reduce nothing before."""
        units = list(self.units(stage))
        return self.rows.reduction(units)

    def buffers(self, stage: int) -> Buffers:
        """The memory that a stage holds besides its shards."""
        rule, traffic = self.rule, self.rows.traffic
        size, total = traffic.parameter_bytes, self.plan.parameters[stage].total
        forward, backward = (
            self._all_pieces(Action(stage, k, 0)) for k in (ActionKind.FORWARD, ActionKind.BACKWARD)
        )
        reducing = 0.0
        if rule.reduces_each or rule.beside_last:
            reducing = largest_gradients(backward, size, traffic.reduce_bytes)
            if rule.reduce_bucket:  # matrices leave one by one, by way of a bucket
                largest = max(piece.unit.total for piece in backward) / LARGEST_MATRIX
                reducing = min(
                    reducing, largest * size + max(largest, rule.reduce_bucket) * traffic.reduce_bytes
                )
        if rule.gathers == "never":
            return Buffers(reducing=reducing)
        each = size if rule.waits_narrow else self.plan.local.grad_bytes
        whole = 0.0 if rule.reduces_each else total * each
        if not rule.regathers:
            kept_whole = self.plan.scenario.software.sharding.experts_whole
            shards = total - (self.plan.parameters[stage].elements.experts if kept_whole else 0.0)
            shards -= sum(unit.sharded - unit.gathered for unit in self.units(stage))
            return Buffers(gathered=shards * size, reducing=reducing, unreduced=whole)
        kept = self._kept()
        left = {piece.unit.name: piece.unit.gathered for piece in forward if piece.unit.name in kept}
        return Buffers(
            gathered=sum(left.values()) * size,
            forward=self._gathered(forward, kept) * size,
            backward=self._gathered(backward, kept) * size,
            reducing=reducing,
            unreduced=whole,
        )

    def _gathered(self, row: Sequence[Piece], kept: frozenset[str]) -> float:
        """The most elements that are gathered at once: two successive units, or what the rule's limit
        allows, but at least the largest matrix."""
        pair = largest_pair(row, kept)
        if self.rule.calls == 1:
            return pair
        return min(pair, max(self.rule.live, max(piece.unit.sharded for piece in row) / LARGEST_MATRIX))

    def _all_pieces(self, action: Action) -> tuple[Piece, ...]:
        stage = self.plan.stages[action.stage]
        row = action_blocks(action, stage, self.plan.blocks)
        return self._pieces(action, owned(row, block_owners(action, stage)))

    def _row(self, action: Action, blocks: Owned, moves: Moves) -> CountedBlocks:
        if not (moves.gathers or moves.reduces):
            return tuple((block, count) for block, _, count in blocks)
        row = self._pieces(action, blocks)
        if action.kind is ActionKind.FORWARD:
            return self.rows.forward(row, moves)
        return self.rows.backward(row, moves, self._kept())

    def _kept(self) -> frozenset[str]:
        """Names of the units that stay gathered between forward and backward."""
        rule = self.rule
        return frozenset(("root",) if rule.root else ("head",) if rule.keeps_head else ())

    def _pieces(self, action: Action, blocks: Owned) -> tuple[Piece, ...]:
        backward = action.kind is not ActionKind.FORWARD
        named = [
            (block, self._unit(owner, action.stage, backward=backward), count)
            for block, owner, count in blocks
        ]
        return pieces(named, self.rule.together)

    def _unit(self, owner: str | LayerRun, stage: int, *, backward: bool = True) -> Unit | None:
        """The unit that a block of ``owner`` needs; None where it has no parameters."""
        rule, parameters = self.rule, self.plan.parameters[stage]
        if isinstance(owner, LayerRun):
            held, whole = parameters.layer(owner.kind), self._persistent(owner)
            unit = Unit(
                name="layer",
                elements=max(0.0, held.shared - whole),
                experts=held.experts,
                experts_whole=self.plan.scenario.software.sharding.experts_whole,
                whole=whole,
                narrow=self._narrow(),
                narrow_experts=self._narrow() if self._casts_experts() else 1.0,
            )
            if rule.by_matrices:
                return self._by_matrices(unit, owner)
            again = rule.gathers_again and backward and owner.recompute == FULL and unit.sharded > rule.live
            return replace(unit, again=True) if again else unit
        if owner not in ("embedding", "heads"):
            return None
        if rule.root:
            return Unit(name="root", elements=parameters.embedding + parameters.head)
        if owner == "embedding":
            return Unit(name="embedding", elements=parameters.embedding)
        table = (
            0.0 if self.plan.stages[stage].embedding else parameters.embedding
        )  # of multi-token prediction
        return Unit(name="head", elements=parameters.head + table)

    def _narrow(self) -> float:
        """Bytes of a gathered weight of a layer, of those of a parameter. A pass that gathers for itself
        takes the copy that its GEMMs read (Megatron-FSDP: model_weight_buffer, transpose_weight_buffer).
        """
        local = self.plan.local
        size = local.weights.gathered
        if self.rule.regathers and local.recipe and local.quantised_weights:
            size = min(size, local.recipe.stored)
        return size / self.rows.traffic.parameter_bytes

    def _casts_experts(self) -> bool:
        """Whether experts are cast before they are gathered: torchao casts weights of nn.Linear alone."""
        return self.plan.scenario.software.sharding.implementation == "megatron-fsdp"

    def _by_matrices(self, unit: Unit, run: LayerRun) -> Unit:
        """``unit`` of a layer with the sizes of its matrices, and the GEMMs and attention kernels of its
        passes."""
        listed = layer_parameters(self.plan.local.of(run.kind))
        tensors = [each for each in listed if "edp" not in each.replicated_over]
        matrices = [
            each.elements / each.count for each in tensors if each.is_matrix for _ in range(each.count)
        ]
        matrices[-1] += sum(each.elements for each in tensors if not each.is_matrix)
        experts = sum(each.is_matrix for each in listed) - sum(each.is_matrix for each in tensors)
        forward = len(matrices) + experts + 1  # those of all experts are one GEMM
        again = forward if run.recompute == FULL else 1 if "core_attn" in run.recompute else 0
        return replace(
            unit,
            matrices=tuple(matrices),
            forward_products=forward,
            backward_products=2 * forward - 1 + again,
        )

    def units(self, stage: int) -> Iterator[Unit]:
        """Every unit of a stage, last first."""
        held = self.plan.stages[stage]
        head, embedding = ["heads"] * bool(held.heads), ["embedding"] * held.embedding
        owners: list[str | LayerRun] = [*head, *reversed(held.runs), *embedding]
        if self.rule.root:
            owners = [*reversed(held.runs), *[*head, *embedding][:1]]
        for owner in owners:
            unit = self._unit(owner, stage)
            assert unit is not None, "the loss has no parameters and is not asked for"
            yield from [unit] * (owner.count if isinstance(owner, LayerRun) else 1)

    def _persistent(self, run: LayerRun) -> float:
        """Parameters of a layer that are too small to be sharded (DeepSpeed's persistence threshold):
        norms and biases."""
        local = self.plan.local.of(run.kind)
        if local.hidden >= self.rule.persistent or local.experts or local.latent:
            return 0.0
        return float(count_of(each for each in layer_parameters(local) if not each.is_matrix))


def sharded_actions_by(plan: StepPlan, rule: ShardingRule) -> ShardedActions:
    """What composes the actions of a plan under its sharding rule."""
    software, local, groups = plan.scenario.software, plan.local, plan.groups
    whole = groups["hsdp"].ranks == 1
    joined = not rule.flat and software.sharding.implementation == "fsdp2"  # torch._chunk_cat

    def group(communicator: str, placement: GroupPlacement) -> ShardGroup:
        return ShardGroup(
            communicator=communicator,
            ranks=placement.ranks,
            transfer=lambda kind, size: plan.communication.collective(kind, size, placement),
        )

    traffic = ShardTraffic(
        rule=rule,
        shards=group("dp" if whole else SHARDS, groups["fsdp"]),
        replicas=group(REPLICAS, groups["hsdp"]),
        experts=group("edp" if whole else EXPERT_SHARDS, groups["efsdp"]),
        expert_replicas=group(EXPERT_REPLICAS, groups["ehsdp"]),
        gather_bytes=local.stream_bytes,
        reduce_bytes=software.gradients.reduce_grad_bytes or local.grad_bytes,
        parameter_bytes=local.stream_bytes,
        host_s=plan.costs.host_collective_s,
        turn_s=COPY_HOST_S * plan.profile.steps.host * plan.cluster.node.launch_factor if rule.lists else 0.0,
        cast_issued=plan.costs.issued("join to FP32" if joined else "cast to FP32"),
        offload=offload_of(plan),
    )
    rows = Rows(rule=rule, traffic=traffic, composer=Composer(plan.blocks.begin))
    return ShardedActions(plan=plan, rule=rule, rows=rows)
