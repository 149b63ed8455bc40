"""Sharded data parallelism of one pipeline rank: the rows that its actions run, and what it reduces when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ....schedules.orders.action import Action, Kind
from ...network.collectives import collective_transfer
from ..actions import part_names
from ..zero.rule import Rule
from .compose import Composer
from .rows import Moves, Row, Rows
from .traffic import REPLICAS, SHARDS, Group, Traffic
from .units import Piece, Unit, pieces

if TYPE_CHECKING:
    from ..plan import Plan

NEEDS_PARAMETERS = (Kind.FORWARD, Kind.BACKWARD, Kind.INPUT_GRAD)
OWNER = {"layers": "layer", "plain": "layer", "recomputed": "layer"}
"""Whose parameters the blocks of a part use, where it is not its own."""

GIVES_GRADIENT = (Kind.BACKWARD, Kind.WEIGHT_GRAD)


@dataclass
class Sharding:
    """Rows of the actions of a plan, each distinct one once; one for all ranks of a step."""

    plan: Plan
    rule: Rule
    rows: Rows
    known: dict[tuple[int, Kind, Moves], Row] = field(default_factory=dict)

    def row(self, action: Action, blocks: Row, *, first: bool) -> Row:
        """``blocks`` of ``action`` with what moves around them; ``first``: its stage's first in the step."""
        rule, kind = self.rule, action.kind
        if kind is Kind.FORWARD:
            gathers = rule.gathers == "each" or (rule.gathers == "once" and first)
        else:
            gathers = rule.regathers and kind in NEEDS_PARAMETERS
        reduces = kind in GIVES_GRADIENT and rule.reduces_each
        moves = Moves(gathers=gathers, reduces=reduces)
        key = action.stage, kind, moves
        if key not in self.known:
            self.known[key] = self._row(action, blocks, moves)
        return self.known[key]

    def last_reduction(self, stage: int) -> Row:
        """What a stage reduces after its last backward, where it reduces nothing before."""
        units = list(self._units(stage))
        return self.rows.reduction(units)

    def _row(self, action: Action, blocks: Row, moves: Moves) -> Row:
        if not (moves.gathers or moves.reduces):
            return blocks
        row = self._pieces(action, blocks)
        if action.kind is Kind.FORWARD:
            return self.rows.forward(row, moves)
        return self.rows.backward(row, moves, self._kept())

    def _kept(self) -> frozenset[str]:
        """Units that backward finds gathered, of those that forward needed."""
        rule = self.rule
        return frozenset(("root",) if rule.root else ("head",) if rule.keeps_head else ())

    def _pieces(self, action: Action, blocks: Row) -> tuple[Piece, ...]:
        stage = self.plan.stages[action.stage]
        units = {name: self._unit(name, action.stage) for name in ("embedding", "layer", "head")}
        layer = units["layer"]
        if self.rule.gathers_again and layer.elements > self.rule.live:
            units["recomputed"] = replace(layer, again=True)
        named = [
            (block, units.get(part) or units.get(OWNER.get(part, part)), count)
            for (block, count), part in zip(blocks, part_names(action, stage), strict=True)
        ]
        return pieces(named, self.rule.together)

    def _unit(self, part: str, stage: int) -> Unit:
        parameters = self.plan.parameters[stage]
        if self.rule.root and part != "layer":
            return Unit(name="root", elements=parameters.embedding + parameters.head)
        total = getattr(parameters, part)
        whole = self._persistent() if part == "layer" else 0.0
        return Unit(name=part, elements=max(0.0, total - whole), whole=whole)

    def _units(self, stage: int) -> Iterator[Unit]:
        """Every unit of a stage, last first."""
        held = self.plan.stages[stage]
        if held.head and not (self.rule.root and held.embedding):
            yield self._unit("head", stage)
        for _ in range(held.layers):
            yield self._unit("layer", stage)
        if held.embedding:
            yield self._unit("embedding", stage)

    def _persistent(self) -> float:
        """Parameters of a layer that are too small to be sharded: its norms and biases."""
        shard = self.plan.shard
        if shard.hidden >= self.rule.persistent:
            return 0.0
        matrices = shard.hidden * (shard.qkv_width + shard.attention_width + shard.ffn * (shard.gate + 1))
        return max(0.0, shard.layer_parameters - matrices)


def sharding_of(plan: Plan, rule: Rule | None) -> Sharding | None:
    """The rows of a plan under its rule; None where it has none."""
    if rule is None or plan.groups.dp.ranks == 1:
        return None
    software, shard, groups = plan.scenario.software, plan.shard, plan.groups
    measured = plan.scenario.cluster.measured_network
    whole = groups.replicas.ranks == 1
    traffic = Traffic(
        rule=rule,
        shards=Group(
            communicator="dp" if whole else SHARDS,
            ranks=groups.shards.ranks,
            transfer=lambda kind, size: collective_transfer(
                kind, size, groups.shards, plan.cluster, measured
            ),
        ),
        replicas=Group(
            communicator=REPLICAS,
            ranks=groups.replicas.ranks,
            transfer=lambda kind, size: collective_transfer(
                kind, size, groups.replicas, plan.cluster, measured
            ),
        ),
        gather_bytes=software.gather_bytes or shard.element_bytes,
        reduce_bytes=software.reduce_grad_bytes or shard.grad_bytes,
        parameter_bytes=shard.element_bytes,
        host_s=plan.costs.host_collective_s,
    )
    rows = Rows(rule=rule, traffic=traffic, composer=Composer(plan.costs))
    return Sharding(plan=plan, rule=rule, rows=rows)
