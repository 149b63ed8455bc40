"""Memory of the fullest stage of every layout, by the rules of ``sim/lowering/memory.py`` for one layout.

That module's functions are called once for each distinct thing that a term depends on: model states by what a
rank holds and who shards it, NCCL's buffers by groups, activations by the layer. Arrays put the terms
together, with counts of what is in flight (``in_flight.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...lowering.allocator_blocks import flat_buffer_bytes
from ...lowering.communicators import communicators
from ...lowering.layers.layer import forward_block
from ...lowering.memory import (
    CONTEXT_BYTES,
    stage_buffers,
    state_terms,
    unusable_logits,
    workspace_bytes,
)
from ...lowering.optional_parts import sharded_actions_of
from ...lowering.state.in_flight import in_flight_bytes
from .alike import alike_layouts
from .in_flight import QUANTITIES
from .layer_activations import activations_of, joined_sizes
from .numbering import KnownFigures, dense
from .rank_classes import RankClasses
from .stages import without_recompute
from .times import recompute_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...lowering.layers.kinds import LayerRun
    from ...lowering.layers.stages import Stage
    from ...lowering.state.activations import ActivationBytes
    from .rank_classes import AlikeRanks
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]

_ACTIVATIONS = ("kept", "working", "logits", "operands", "layer")


@dataclass(kw_only=True)
class MemoryScreen:
    """Memory of the layouts of one base."""

    tables: ScreenTables
    states: dict[Any, KnownFigures] = field(default_factory=dict)
    flats: dict[Any, KnownFigures] = field(default_factory=dict)
    buffers: dict[Any, KnownFigures] = field(default_factory=dict)
    networks: dict[Any, KnownFigures] = field(default_factory=dict)
    leads: dict[Any, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = self.tables
        self.ranks = RankClasses(tables=tables)
        shards, several = self._shards()
        sharded = tables.shards & (several > 1)
        lasting = tables.base.software.gradients.persistent_gradients
        copies = tables.base.software.kernels.copies_in_update
        same = ~sharded & (lasting and not copies)  # no buffers, whatever is held
        gathered = [tables.code("parallelism.tp"), tables.sizes, np.where(sharded, tables.rule + 1, 0)]
        if copies or not lasting:  # what comes and goes of the shards
            gathered += [several, *shards, tables.code("parallelism.zero"), tables.code("parallelism.ep")]
        self.gathered = dense([np.where(same, 0, code + 1) for code in gathered])[0]
        held = [tables.code(f"parallelism.{axis}") for axis in ("tp", "ep", "etp", "zero")]
        held.append(np.minimum(_column(tables, "parallelism.pp"), 2))
        if (
            tables.base.training.offloads_state
        ):  # gradients of shards leave, but for those of several backwards
            held.append(np.where(sharded, tables.rule + 1, 0))
        self.state = dense([*held, several, *shards])[0]
        by_layer = tables.base.software.gradients.reduction == "nanotron-buckets"  # what blocks hold
        self.flat = dense([self.state, tables.layer])[0] if by_layer else self.state
        self.offloaded = _column(tables, "training.activation_offload")
        self.sizes = joined_sizes(tables)
        # How often what a stage gives is kept: of each microbatch, at one end of a pipeline of two ways.
        self.outputs = tables.microbatches() / np.where(tables.two_way, 2, 1)
        self.workspace = np.array(
            [workspace_bytes(one.local, tables.base.software) for one in tables.layers], dtype=np.float64
        )

        self.unusable_logits = np.array(
            [
                [unusable_logits(one.local, tables.base.software, stages=stages) for stages in (1, 2)]
                for one in tables.layers
            ],
            dtype=np.float64,
        ).reshape(-1, 2)

    def needs(self, wanted: Codes) -> tuple[Floats, Floats]:
        """Two figures of each ``wanted`` layout in bytes; 0 for all others.

        The first is what its fullest stage needs if hosts are as far ahead as they can be. The second is the
        part of it that is held throughout the step, without what an allocator gives back (StageMemory).
        """
        found, static = np.zeros(len(self.tables.rows)), np.zeros(len(self.tables.rows))
        alike: list[tuple[Codes, list[AlikeRanks]]] = []
        layouts: dict[int, list[Codes]] = {}
        for rows in self._alike(wanted):
            classes = self.ranks.of(int(rows[0]))
            alike.append((rows, classes))
            for one in classes:
                layouts.setdefault(id(one), []).append(rows)
        needs: dict[int, Iterator[tuple[Floats, Floats]]] = {}
        for rows, classes in alike:
            for one in classes:
                if id(one) not in needs:
                    needs[id(one)] = self._needs(one, layouts[id(one)])
                need, kept = next(needs[id(one)])
                fuller = need > found[rows]
                found[rows] = np.where(fuller, need, found[rows])
                static[rows] = np.where(fuller, kept, static[rows])
        return found, static

    def _alike(self, wanted: Codes) -> Iterator[Codes]:
        """Layouts whose pipeline ranks are of the same classes: where ranks are placed in several ways, in
        the same ways."""
        for rows in alike_layouts(self.tables, wanted):
            uneven = self.tables.uneven[rows]
            if not uneven.all():
                yield rows[~uneven]
            group = self.tables.group[rows]
            for number in np.flatnonzero(np.bincount(group[uneven])):
                yield rows[group == number]

    def _needs(self, one: AlikeRanks, parts: Sequence[Codes]) -> Iterator[tuple[Floats, Floats]]:
        """What a class of ranks needs, for several parts of the layouts in turn."""
        need, static = self._need(one, np.concatenate(parts))
        ends = np.cumsum([len(rows) for rows in parts])
        yield from zip(np.split(need, ends[:-1]), np.split(static, ends[:-1]), strict=True)

    def _need(self, one: AlikeRanks, rows: Codes) -> tuple[Floats, Floats]:
        """What a class of ranks needs in these layouts in bytes, and the part of it held throughout the
        step."""
        tables, software = self.tables, self.tables.base.software
        layer = tables.layer[rows]
        offloaded = bool(self.offloaded[rows[0]])
        sizes = replace(self.sizes, offloaded=offloaded)
        columns: list[Floats] = []
        for stage in one.kinds:  # in the order of ``QUANTITIES``
            columns += activations_of(stage, sizes, layer)
            columns += self._buffers(stage, rows, one.ends_meet)
        amounts = np.stack(columns, axis=1)
        at_loss = np.arange(len(columns)) % len(QUANTITIES) == QUANTITIES.index("logits")
        beside = amounts * at_loss * self.unusable_logits[layer, int(bool(one.giving))][:, np.newaxis]
        fullest = one.rows[((amounts + beside) @ one.rows.T).argmax(axis=1)]
        moving, unusable = (amounts * fullest).sum(axis=1), (beside * fullest).sum(axis=1)
        outside = CONTEXT_BYTES + self._network(one, rows)
        workspace = self.workspace[layer]
        flat, late = self._flat(one, rows).T
        static = self._state(one, rows) + flat + workspace + outside + self._outputs(one, sizes, rows)
        allocator = (moving + unusable + workspace) * software.host.allocator_overhead + unusable
        moving = moving + allocator + self._in_flight(one, rows, layer)
        static = static - np.minimum(late, moving)
        return static + moving, static

    def _buffers(self, stage: Stage, rows: Codes, meets: bool) -> list[Floats]:
        """Buffers of a stage beside activations, in bytes and in the order of ``QUANTITIES``."""
        stage = stage if self.tables.gathers_again else without_recompute(stage)
        known = self.buffers.get((stage, meets))
        if known is None:
            known = self.buffers[stage, meets] = KnownFigures(
                self.gathered, len(QUANTITIES) - len(_ACTIVATIONS)
            )
        return list(_of_each(self.gathered, rows, known, lambda row: self._stage_buffers(stage, row)).T)

    def _stage_buffers(self, stage: Stage, row: int) -> tuple[float, ...]:
        plan = self.tables.plan_of_rank(row, 0, [stage])
        own = stage_buffers(plan, 0, sharded_actions_of(plan))
        return tuple(getattr(own, name) for name in QUANTITIES[len(_ACTIVATIONS) :])

    def _state(self, one: AlikeRanks, rows: Codes) -> Floats:
        key = one.whole, one.ends_meet, one.versions
        known = self.states.get(key)
        if known is None:
            known = self.states[key] = KnownFigures(self.state)
        return _of_each(self.state, rows, known, lambda row: self._state_of(one, row))

    def _state_of(self, one: AlikeRanks, row: int) -> float:
        plan = self.tables.plan_of_rank(row, one.first, [one.whole])
        terms = state_terms(plan, one.first, sharded_actions_of(plan))
        return sum(terms.values())

    def _flat(self, one: AlikeRanks, rows: Codes) -> Floats:
        key = one.whole, one.ends_meet
        known = self.flats.get(key)
        if known is None:
            known = self.flats[key] = KnownFigures(self.flat, 2)
        return _of_each(self.flat, rows, known, lambda row: self._flat_of(one, row))

    def _flat_of(self, one: AlikeRanks, row: int) -> tuple[float, float]:
        return flat_buffer_bytes(self.tables.plan_of_rank(row, one.first, [one.whole]), one.first)

    def _outputs(self, one: AlikeRanks, sizes: ActivationBytes, rows: Codes) -> Floats:
        """Bytes of the outputs that stages keep, of all microbatches that pass them."""
        kept = np.asarray(sum(sizes.kept_messages(stage) for stage in one.giving), dtype=np.float64)
        each = kept[self.tables.layer[rows]] if kept.ndim else kept
        found: Floats = each * self.outputs[rows]
        return found

    def _network(self, one: AlikeRanks, rows: Codes) -> Floats:
        experts = any(run.kind.experts for run in one.whole.runs)
        key = experts, one.shares_table, one.placed
        known = self.networks.get(key)
        if known is None:
            known = self.networks[key] = KnownFigures(self.tables.group)
        return _of_each(self.tables.group, rows, known, lambda row: self._network_of(one, row))

    def _network_of(self, one: AlikeRanks, row: int) -> float:
        plan = self.tables.plan_of_rank(row, one.first, [one.whole])
        return float(sum(each.total for each in communicators(plan, one.first)))

    def _in_flight(self, one: AlikeRanks, rows: Codes, layer: Codes) -> Floats:
        software = self.tables.base.software
        if not software.exchange.records_streams or one.leading is None or software.host.cuda_graphs:
            return np.zeros(len(rows))
        found = np.zeros(len(self.tables.layers))
        for number in np.flatnonzero(np.bincount(layer)).tolist():
            found[number] = self._lead_of(number, one.leading)
        return found[layer]

    def _lead_of(self, layer: int, run: LayerRun) -> float:
        key = layer, run.kind, recompute_of(forward_block, run, run.recompute)
        if key not in self.leads:
            blocks = self.tables.blocks_of(layer)
            costs = blocks.costs
            known = blocks.local.tp == 1 or not costs.host_s
            self.leads[key] = (
                0.0
                if known
                else in_flight_bytes(
                    blocks.layer(forward_block, run), costs.host_s, costs.check_s("tp"), math.inf
                )
            )
        return self.leads[key]

    def _shards(self) -> tuple[list[Codes], Codes]:
        """Ranks that shard state, and that of experts; and whether data parallelism has several ranks."""
        tables = self.tables
        found = []
        for name in ("fsdp", "efsdp", "dp"):
            ranks = [tables.groups(row)[1][name].ranks for row in tables.group_rows]
            found.append(np.array(ranks, dtype=np.int64)[tables.group])
        return found[:2], np.minimum(found[2], 2)


def _of_each(number: Codes, rows: Codes, known: KnownFigures, of: Callable[[int], Any]) -> NDArray[Any]:
    """A figure for each layout of ``rows``. ``number`` says what it depends on; ``of`` works it out from one
    layout of each number, and ``known`` keeps it."""
    numbers = number[rows]
    new = known.missing(numbers)
    if len(new):
        for one, place in zip(*np.unique(numbers[new], return_index=True), strict=True):
            known.put(int(one), of(int(rows[new[place]])))
    return known.of(numbers)


def _column(tables: ScreenTables, name: str) -> Codes:
    column: Codes = tables.space.columns[name][tables.rows]
    return column
