"""The peak memory of the fullest stage of every layout, as ``sim/lowering/memory.py`` has it of one.

The terms are evaluated by that module's functions, once for each distinct thing that they depend on: states by
what a rank holds and who shards it, buffers of NCCL by groups, activations by the layer. Arrays put them
together, with counts of what is in flight (``in_flight.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ...lowering.communicators import communicators
from ...lowering.layers.layer import forward_block
from ...lowering.memory import (
    CONTEXT_BYTES,
    flat_buffer_bytes,
    stage_buffers,
    state_terms,
    workspace_bytes,
)
from ...lowering.reductions import shares_table
from ...lowering.sharded import sharding_of
from ...lowering.state.activations import ActivationBytes, LayerBytes, activation_bytes
from ...lowering.state.in_flight import in_flight_bytes
from ...scenario.schedules import traits_of
from ...scenario.sharding import sharding_rule
from .alike import alike_layouts
from .in_flight import QUANTITIES, enough_microbatches, held_rows, largest, orders_of
from .numbering import dense
from .stages import Pipeline, pipeline_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ....schedules.orders.schedule import Shape
    from ...lowering.layers.kinds import LayerKind, LayerRun
    from ...lowering.layers.stages import Stage
    from ...scenario.models import Scenario
    from .tables import Tables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]

_ACTIVATIONS = ("kept", "working", "logits", "operands")


@dataclass(frozen=True, kw_only=True)
class RankClass:
    """Pipeline ranks that hold the same: the kinds of their stages, and what may be the peak of any of them.

    ``first`` is the lowest of them; ``rows`` are as ``in_flight.held_rows`` has them, of ``kinds`` in order.
    """

    first: int
    kinds: tuple[Stage, ...]
    whole: Stage
    leading: LayerRun | None
    rows: Floats


@dataclass(kw_only=True)
class MemoryScreen:
    """Peaks of the layouts of one base."""

    tables: Tables
    rows_known: dict[Any, tuple[RankClass, ...]] = field(default_factory=dict)
    states: dict[Any, float] = field(default_factory=dict)
    buffers: dict[Any, tuple[float, ...]] = field(default_factory=dict)
    networks: dict[Any, float] = field(default_factory=dict)
    leads: dict[Any, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = self.tables
        self.state, self.state_rows = dense(
            [
                *(tables.code(f"parallelism.{axis}") for axis in ("tp", "ep", "etp", "zero")),
                np.minimum(_column(tables, "parallelism.pp"), 2),
                *self._shards(),
            ]
        )
        self.sizes = _joined_sizes(tables)
        self.workspace = np.array(
            [workspace_bytes(one.local, tables.base.software) for one in tables.layers], dtype=np.float64
        )

    def peaks(self) -> Floats:
        """Bytes of the fullest stage of each layout, hosts as far ahead as they can be."""
        tables = self.tables
        found = np.zeros(len(tables.rows))
        for rows in alike_layouts(tables):
            classes = self.classes(tables.draft(int(rows[0])))
            for one in classes:
                np.maximum.at(found, rows, self._peak(one, rows))
        return found

    def classes(self, draft: Scenario) -> tuple[RankClass, ...]:
        """The classes of pipeline ranks of a layout."""
        pipeline, shape = pipeline_of(draft), draft.pipeline_shape
        enough = enough_microbatches(draft.schedule, shape)
        return _classes(draft, pipeline, _shortened(shape, enough))

    def _peak(self, one: RankClass, rows: Codes) -> Floats:
        """The peak of a class of ranks in these layouts."""
        tables, software = self.tables, self.tables.base.software
        layer = tables.layer[rows]
        columns = [column for stage in one.kinds for column in self._quantities(stage, rows, layer)]
        moving = (np.stack(columns, axis=1) @ one.rows.T).max(axis=1)
        network = self._network(one, rows)
        outside = CONTEXT_BYTES + network
        held = self._state(one, rows) + self.workspace[layer] + moving
        return held * (1 + software.allocator_overhead) + outside + self._in_flight(one, rows, layer)

    def _quantities(self, stage: Stage, rows: Codes, layer: Codes) -> list[Floats]:
        """What a stage of that kind holds, in the order of ``QUANTITIES``."""
        sizes = self.sizes
        found = [
            _of_layer(sizes.kept_by_forward(stage), layer),
            self._working(stage, layer),
            stage.losses * _of_layer(sizes.logits, layer),
            _of_layer(sizes.kept_by_input_grad(stage), layer),
        ]
        place, buffers = self._by_state(rows, lambda row: self._stage_buffers(stage, row))
        return found + list(np.array(buffers)[place].T)

    def _working(self, stage: Stage, layer: Codes) -> Floats:
        """Of several kinds of layer the largest works, which is asked of each layer by itself."""
        if len(stage.runs) < 2 and stage.in_one_go == 1:
            return _of_layer(self.sizes.working(stage), layer)
        used = np.unique(layer)
        found = np.zeros(len(self.tables.layers))
        for number in used.tolist():
            found[number] = _one_of(self.sizes, number).working(stage)
        return found[layer]

    def _by_state(self, rows: Codes, of: Any) -> tuple[Codes, list[Any]]:
        """``of`` a layout with each state that occurs; and which of them each of the ``rows`` has."""
        there, place = np.unique(self.state[rows], return_inverse=True)
        first = {int(state): int(row) for state, row in zip(self.state[rows][::-1], rows[::-1], strict=True)}
        return place.ravel(), [of(first[int(state)]) for state in there]

    def _stage_buffers(self, stage: Stage, row: int) -> tuple[float, ...]:
        key = int(self.state[row]), stage, self._meets(row)
        if key not in self.buffers:
            plan = self.tables.plan_of_rank(row, 0, [stage])
            own = stage_buffers(plan, 0, sharding_of(plan, sharding_rule(plan.scenario)))
            self.buffers[key] = tuple(getattr(own, name) for name in QUANTITIES[len(_ACTIVATIONS) :])
        return self.buffers[key]

    def _state(self, one: RankClass, rows: Codes) -> Floats:
        place, values = self._by_state(rows, lambda row: self._state_of(one, row))
        return np.array(values)[place]

    def _state_of(self, one: RankClass, row: int) -> float:
        versions = one.first if traits_of(self.tables.draft(row).schedule).weight_versions else 0
        key = int(self.state[row]), one.whole, self._meets(row), versions
        if key not in self.states:
            plan = self.tables.plan_of_rank(row, one.first, [one.whole])
            sharding = sharding_of(plan, sharding_rule(plan.scenario))
            terms = state_terms(plan, one.first, sharding)
            self.states[key] = sum(terms.values()) + flat_buffer_bytes(plan, one.first)
        return self.states[key]

    def _meets(self, row: int) -> object:
        """Whether the ends of the model are on one rank follows from these."""
        tables = self.tables
        code = int(tables.code("schedule")[row])
        return code

    def _network(self, one: RankClass, rows: Codes) -> Floats:
        groups, place = np.unique(self.tables.group[rows], return_inverse=True)
        first = dict(zip(self.tables.group[rows].tolist(), rows.tolist(), strict=True))
        found = [self._network_of(one, first[group]) for group in groups.tolist()]
        return np.array(found)[place.ravel()]

    def _network_of(self, one: RankClass, row: int) -> float:
        tables = self.tables
        plan = tables.plan_of_rank(row, one.first, [one.whole])
        experts = any(run.kind.experts for run in one.whole.runs)
        key = int(tables.group[row]), experts, shares_table(plan, one.first)
        if key not in self.networks:
            self.networks[key] = float(sum(each.total for each in communicators(plan, one.first)))
        return self.networks[key]

    def _in_flight(self, one: RankClass, rows: Codes, layer: Codes) -> Floats:
        software = self.tables.base.software
        if not software.records_streams or one.leading is None or software.cuda_graphs:
            return np.zeros(len(rows))
        found = np.zeros(len(self.tables.layers))
        for number in np.unique(layer).tolist():
            found[number] = self._lead_of(number, one.leading)
        return found[layer]

    def _lead_of(self, layer: int, run: LayerRun) -> float:
        key = layer, run.kind
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

    def _shards(self) -> list[Codes]:
        """Ranks that shard state and state of experts, and whether there are several of data parallelism."""
        tables = self.tables
        found = []
        for name in ("fsdp", "efsdp", "dp"):
            ranks = [tables.groups(row)[1][name].ranks for row in tables.group_rows]
            found.append(np.array(ranks, dtype=np.int64)[tables.group])
        return [*found[:2], np.minimum(found[2], 2)]


def _classes(draft: Scenario, pipeline: Pipeline, shape: Shape) -> tuple[RankClass, ...]:
    orders = orders_of(draft.schedule, shape)
    versions = traits_of(draft.schedule).weight_versions is not None
    ties = draft.model.tied_embeddings or draft.model.mtp_layers
    rows: dict[Any, list[Floats]] = {}
    first: dict[Any, int] = {}
    for rank, order in enumerate(orders):
        kinds = pipeline.of_rank(rank)
        names = tuple(dict.fromkeys(sorted(kinds)))
        ends = tuple(stage for stage in pipeline.held[rank] if stage in (0, shape.stages - 1)) if ties else ()
        key = (names, tuple(sorted(kinds)), ends, rank if versions else 0)
        place = [names.index(kind) if kind in names else -1 for kind in pipeline.kind_of]
        first.setdefault(key, rank)
        rows.setdefault(key, []).append(largest(held_rows(order, place, len(names))))
    found = []
    for key, several in rows.items():
        rank = first[key]
        stages = [pipeline.kinds[kind] for kind in pipeline.of_rank(rank)]
        found.append(
            RankClass(
                first=rank,
                kinds=tuple(pipeline.kinds[kind] for kind in key[0]),
                whole=pipeline.merged(rank),
                leading=next((stage.runs[0] for stage in stages if stage.runs), None),
                rows=largest(np.concatenate(several)),
            )
        )
    return tuple(found)


def _shortened(shape: Shape, microbatches: int) -> Shape:
    from dataclasses import replace

    return replace(shape, microbatches=microbatches)


def _column(tables: Tables, name: str) -> Codes:
    column: Codes = tables.space.columns[name][tables.rows]
    return column


# Activations of all layers at once -----------------------------------------------------------------------


class _Known(dict[Any, LayerBytes]):
    """Bytes of layers by kind and recomputation, each an array over the distinct layers of the tables."""

    def __init__(self, sizes: Sequence[ActivationBytes]) -> None:
        super().__init__()
        self.sizes = sizes

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: tuple[LayerKind, Any]) -> LayerBytes:
        from ...lowering.layers.kinds import LayerRun

        run = LayerRun(kind=key[0], recompute=key[1])
        each = [one.layer(run) for one in self.sizes]
        self[key] = LayerBytes(
            kept=cast(float, np.array([one.kept for one in each])),
            working=cast(float, np.array([one.working for one in each])),
            operands=cast(float, np.array([one.operands for one in each])),
        )
        return self[key]


def _joined_sizes(tables: Tables) -> ActivationBytes:
    """The sizes of every layer of the tables in one: each number an array over the layers."""
    training, software = tables.base.training, tables.base.software
    each = [activation_bytes(one.local, software, offloaded=training.activation_offload) for one in tables.layers]

    def joined(name: str) -> float:
        return cast(float, np.array([getattr(one, name) for one in each]))

    return ActivationBytes(
        local=each[0].local,
        software=software,
        offloaded=training.activation_offload,
        embedding=joined("embedding"),
        head=joined("head"),
        logits=joined("logits"),
        head_operands=joined("head_operands"),
        known=_Known(each),
    )


def _one_of(sizes: ActivationBytes, number: int) -> ActivationBytes:
    """The sizes of one layer."""
    return cast(_Known, sizes.known).sizes[number]


def _of_layer(size: float, layer: Codes) -> Floats:
    """A size of each layer, or of all alike, by layout."""
    found = np.asarray(size, dtype=np.float64)
    return found[layer] if found.ndim else np.full(len(layer), float(found))
