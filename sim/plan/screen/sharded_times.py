"""Seconds of actions whose parameters are gathered and whose gradients are reduced around their blocks.

``sim/lowering/sharded_actions.py`` says what is gathered and reduced around which block. It is asked with
names in place of blocks, once for each combination of what the sizes depend on. A block takes the longer of
two times: that of the collectives around it alone, and that of the block with what cannot run beside it.
Both depend on where the groups are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ....kernels.kernel import MemoryBound
from ....schedules.orders.action import Action, ActionKind, Overlap
from ...lowering.actions import Blocks, action_blocks, block_owners, owned
from ...lowering.layers.recompute import NOTHING, Recompute
from ...lowering.optional_parts import sharded_actions_of
from ...lowering.overlapped import pair_blocks
from ...lowering.sharding.communicators import EXPERT_REPLICAS, EXPERT_SHARDS, REPLICAS, SHARDS
from ...lowering.sharding.compose import Around, Composer
from ...program.program import Block, Collective, Compute, Op
from ...program.solo import solo_seconds
from ...scenario.sharding import sharding_rule
from .numbering import dense, distinct
from .sharded_blocks import ShardedPart, ShardedPiece, recomputing, with_more
from .stages import without_recompute
from .times import LEAST_SMS, ActionTimes, BlockName, BlockNames

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...lowering.layers.local_shape import LocalShape
    from ...lowering.layers.stages import Stage
    from ...lowering.sharded_actions import ShardedActions
    from ...lowering.sharding.rows import CountedBlocks
    from .tables import ScreenTables

    Codes = NDArray[np.int64]
    Floats = NDArray[np.float64]

GROUP_OF = {
    "dp": "fsdp",
    SHARDS: "fsdp",
    REPLICAS: "hsdp",
    "edp": "efsdp",
    EXPERT_SHARDS: "efsdp",
    EXPERT_REPLICAS: "ehsdp",
}
"""The process group of each communicator that moves shards."""

_LONG_S = 1e3
"""Seconds of a block that is so long that it hides everything beside it."""

_SHORT = 4
"""Layers of a stage from which it is seen how any larger number of the same goes on. Gradients that are
scattered beside the next layer are reduced over replicas beside the one after it, so that all layers from the
third on do the same."""

_FIGURES = 8
"""Figures that ``ShardedTimes._around`` gives for a piece."""


@dataclass
class _Recorder:
    """Stands in place of a ``Composer``, and notes what is to be composed."""

    def block(self, inner: Sequence[Any], around: Around) -> tuple[tuple[Any, ...], Around]:
        return tuple(inner), around


@dataclass(frozen=True, kw_only=True)
class _Costs:
    """What is known of one action of a stage. ``parts`` has, by case, the number of its list of parts (-1:
    not known yet); ``around`` has, by that number, the figures of what runs around each part in each case."""

    parts: Codes
    around: dict[int, Floats] = field(default_factory=dict)


@dataclass(kw_only=True)
class ShardedTimes:
    """Seconds of actions of layouts that gather or reduce around blocks; for others those of ``plain``.

    Layouts of one ``case`` have the same pieces, in groups that are placed alike, so that what runs around
    these is worked out once.
    """

    tables: ScreenTables
    plain: ActionTimes
    pieces: dict[Any, tuple[ShardedPiece, ...]] = field(default_factory=dict)
    shardings: dict[tuple[int, tuple[Stage, ...]], ShardedActions] = field(default_factory=dict)
    arounds: dict[Around, Around] = field(default_factory=dict)
    around: dict[tuple[int, int, bool], tuple[float, ...]] = field(default_factory=dict)
    costs: dict[tuple[ActionKind, Stage] | tuple[Stage, Stage], _Costs] = field(default_factory=dict)
    parts: dict[tuple[ShardedPart, ...], int] = field(default_factory=dict)
    again: dict[tuple[int, Recompute], tuple[ShardedPart, ...]] = field(default_factory=dict)
    _without: dict[Stage, tuple[Stage, Recompute]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tables = self.tables
        names = ("fsdp", "hsdp", "efsdp", "ehsdp", "dp")
        self.place, self._placements = distinct(
            tables.group,
            tables.group_rows,
            lambda row: tuple(tables.groups(row)[1][name] for name in names),
        )
        held = [tables.code("parallelism.tp"), tables.sizes, tables.rule]
        shape, kinds = distinct(*dense([*held, self.place]), self._form)  # what sizes depend on
        self.form, self._sharded = shape, np.array([kind[0] for kind in kinds])[shape]
        self.case, self._case_rows = dense([shape, self.place])

    def _form(self, row: int) -> tuple[bool, object]:
        """Whether the layout shards, and everything that its gathers and reductions depend on."""
        draft, placements = self.tables.draft(row), self._placements[int(self.place[row])]
        rule = sharding_rule(draft)
        fsdp, hsdp, efsdp, ehsdp, dp = (placement.ranks for placement in placements)
        if rule is None or dp == 1:
            return False, None
        ranks: tuple[object, ...] = (fsdp > 1, hsdp > 1, efsdp > 1, ehsdp > 1)
        if hsdp > 1 or ehsdp > 1:
            ranks += (fsdp, efsdp)
        if rule.reduce_bucket or draft.training.cpu_offload or draft.training.nvme_offload:
            ranks += placements
        return True, (rule, draft.parallelism.tp, int(self.tables.sizes[row]), ranks)

    def moves(self, rows: Codes) -> NDArray[np.bool_]:
        """Whether each layout of ``rows`` gathers or reduces around blocks."""
        return np.asarray(self._sharded[rows], dtype=bool)

    def of(self, kind: ActionKind, stage: Stage, rows: Codes) -> Floats:
        """Seconds of an action of that kind on such a stage, for each layout of ``rows``."""
        found = self.plain.of(kind, stage).alone[self.plain.places(rows)]
        if not self._sharded[rows].any():
            return found
        plain, again = self._plain(stage)
        return self._with_around(found, (kind, plain), partial(self._pieces, kind, plain), again, rows)

    def of_pair(self, forward: Stage, backward: Stage, local: LocalShape, rows: Codes) -> Floats | None:
        """Seconds of a forward and a backward that run as one, for each layout of ``rows``; None where they
        run in turn. ``local`` is that of layers with the same exchanges."""
        pair = self.plain.of_pair(forward, backward, local)
        if pair is None:
            return None
        pieces = partial(self._pieces_of_pair, forward, backward, local)
        return self._with_around(
            pair.alone[self.plain.places(rows)], (forward, backward), pieces, NOTHING, rows
        )

    def _with_around(
        self,
        found: Floats,
        key: tuple[ActionKind, Stage] | tuple[Stage, Stage],
        pieces: Callable[[int], tuple[ShardedPiece, ...]],
        again: Recompute,
        rows: Codes,
    ) -> Floats:
        """``found``, with the seconds of layouts that shard in their places."""
        sharded = np.flatnonzero(self._sharded[rows])
        if not len(sharded):
            return found
        cases = self.case[rows[sharded]]
        costs = self._costs(key, pieces, cases)
        numbers = costs.parts[cases]
        for number in np.flatnonzero(np.bincount(numbers)).tolist():
            mine = np.flatnonzero(numbers == number)
            each, layer = costs.around[number][cases[mine]], self.plain.places(rows[sharded[mine]])
            found[sharded[mine]] = self._seconds(self.recomputing(number, again), each, layer)
        return found

    def _plain(self, stage: Stage) -> tuple[Stage, Recompute]:
        """A stage with the same collectives around its layers that recomputes nothing, and what the given one
        recomputes. Where there is no such stage: the given one, and nothing."""
        if stage not in self._without:
            again = [*{run.recompute for run in stage.runs}]
            one = len(again) == 1 and not self.tables.gathers_again
            self._without[stage] = (without_recompute(stage), again[0]) if one else (stage, NOTHING)
        return self._without[stage]

    def _costs(
        self,
        key: tuple[ActionKind, Stage] | tuple[Stage, Stage],
        pieces_of: Callable[[int], tuple[ShardedPiece, ...]],
        cases: Codes,
    ) -> _Costs:
        """What is known of an action or a pair, with at least the given ``cases`` worked out."""
        count = len(self._case_rows)
        costs = self.costs.get(key)
        if costs is None:
            costs = self.costs[key] = _Costs(parts=np.full(count, -1))
        asked = np.flatnonzero(np.bincount(cases, minlength=count))
        for case in asked[costs.parts[asked] < 0].tolist():
            row = self._case_rows[case]
            pieces = pieces_of(row)
            parts = tuple(ShardedPart(piece.names, piece.repeats) for piece in pieces)
            number = costs.parts[case] = self.parts.setdefault(parts, len(self.parts))
            if number not in costs.around:
                costs.around[number] = np.zeros((count, len(parts), _FIGURES))
            place = int(self.place[row])
            if pieces:  # a stage of the embedding alone has no weight gradient apart
                costs.around[number][case] = [self._around(piece, place) for piece in pieces]
        return costs

    def recomputing(self, number: int, again: Recompute) -> tuple[ShardedPart, ...]:
        """The parts of that number, with layers that recompute as ``again`` says."""
        if (number, again) not in self.again:
            parts = [*self.parts][number]
            self.again[number, again] = tuple(recomputing(part, again) for part in parts) if again else parts
        return self.again[number, again]

    def _seconds(self, parts: tuple[ShardedPart, ...], around: Floats, layer: Codes) -> Floats:
        """Seconds of ``parts``. ``around`` has what ``_around`` gives, by layout and part.

        Kernels that are bound by math have fewer SMs while collectives run beside them. That is counted for
        as long as these run for certain beside such kernels, and not beside other kernels or while nothing
        runs.
        """
        total = np.zeros(len(layer))
        for place, part in enumerate(parts):
            costs = [self.plain.named(name) for name in part.names]
            idle: Floats | float
            if len(costs) == 1 and part.names[0].beside is None:
                inner, kernels, memory, idle = (
                    each[layer] for each in (costs[0].alone, costs[0].kernels, costs[0].memory, costs[0].idle)
                )
            else:  # exchanges of a pair take SMs too, so that its kernels may leave nothing idle
                inner, kernels, memory = (
                    sum((getattr(one, name)[layer] for one in costs), np.zeros(len(layer)))
                    for name in ("kernels_end", "kernels", "memory")
                )
                idle = 0.0
            alone, over, lead, copied, *beside = around[:, place].T
            slowed = lead + copied + kernels + idle
            for moving, taken in zip(beside[::2], beside[1::2], strict=True):
                if taken.any():
                    slowed = slowed + taken * np.maximum(0.0, moving - memory - copied - idle)
            total += part.repeats * np.maximum(np.maximum(alone, inner + over), slowed)
        return total

    def _pieces(self, kind: ActionKind, stage: Stage, row: int) -> tuple[ShardedPiece, ...]:
        """The pieces of an action; those of a long stage follow from a short one of the same layers."""
        key = int(self.form[row]), kind, stage
        found = self.pieces.get(key)
        if found is None:
            found = self.pieces[key] = self._long(kind, stage, row) or self._asked(kind, stage, row)
        return found

    def _long(self, kind: ActionKind, stage: Stage, row: int) -> tuple[ShardedPiece, ...]:
        """The pieces of a stage of many equal layers; none where short stages do not show how it goes on."""
        if len(stage.runs) != 1 or stage.layers <= _SHORT + 1:
            return ()
        first, second = (
            self._pieces(kind, replace(stage, runs=(replace(stage.runs[0], count=count),)), row)
            for count in (_SHORT, _SHORT + 1)
        )
        most = max(range(len(first)), key=lambda place: first[place].repeats)
        if second != with_more(first, most, 1):
            return ()
        return with_more(first, most, stage.layers - _SHORT)

    def _asked(self, kind: ActionKind, stage: Stage, row: int) -> tuple[ShardedPiece, ...]:
        sharding, action = self._sharding((stage,), row), Action(0, kind, 0)
        named = action_blocks(action, stage, cast(Blocks, BlockNames()))
        return self._noted(sharding.row(action, owned(named, block_owners(action, stage)), first=False))

    def _pieces_of_pair(
        self, forward: Stage, backward: Stage, local: LocalShape, row: int
    ) -> tuple[ShardedPiece, ...]:
        key = int(self.form[row]), forward, backward
        found = self.pieces.get(key)
        if found is None:
            named = pair_blocks(forward, backward, cast(Blocks, BlockNames(local)))
            assert named is not None, "only what runs as one is asked for"
            step = Overlap(Action(0, ActionKind.FORWARD, 0), Action(1, ActionKind.BACKWARD, 0))
            row_of = self._sharding((forward, backward), row).pair_row(step, named, first=False)
            found = self.pieces[key] = self._noted(row_of)
        return found

    def _noted(self, row: CountedBlocks) -> tuple[ShardedPiece, ...]:
        """What the composer has noted of a row of blocks."""
        found = []
        for block, count in cast("tuple[tuple[Any, int], ...]", row):
            names, around = ((block,), Around()) if isinstance(block, BlockName) else block
            found.append(ShardedPiece(names, self.arounds.setdefault(around, around), count))
        return tuple(found)

    def _sharding(self, stages: tuple[Stage, ...], row: int) -> ShardedActions:
        """The gathers and reductions of stages by themselves; its composer notes what it is asked to
        compose."""
        key = int(self.form[row]), stages
        if key not in self.shardings:
            plan = self.tables.plan_of_rank(row, 0, stages)
            sharding = sharded_actions_of(plan)
            assert sharding is not None
            sharding.rows.composer = cast(Composer, _Recorder())
            self.shardings[key] = sharding
        return self.shardings[key]

    def _around(self, piece: ShardedPiece, place: int) -> tuple[float, ...]:
        """Eight figures of what runs around a piece.

        Two are its seconds without the piece, and the seconds that come on top of the piece. Then, for
        kernels from which SMs are taken: the seconds before they begin, those of copies, and for each of two
        streams beside them the seconds for which collectives move there and the share of the SMs that these
        hold.
        """
        key = id(piece.around), place, bool(piece.names)  # one object stands for all that are equal
        if key not in self.around:
            around = self._priced(piece.around, place)
            blocks = self.tables.blocks_of(int(self.plain.used[0]))
            costs, composer = blocks.costs, Composer(blocks.begin)
            inner = (_lasting(0.0),) if piece.names else ()
            alone = solo_seconds(((composer.block(inner, around), 1),))
            # A copy of gradients waits for kernels alone, not for what else a block has on its way.
            late = composer.block((_lasting(_LONG_S),), replace(around, copies_in=()))
            over = solo_seconds(((late, 1),)) - _LONG_S
            before = replace(around, copies_in=(), copies_out=0.0, overlapping=(), delayed=())
            lead = solo_seconds(((composer.block((_lasting(_LONG_S),), before), 1),)) - _LONG_S
            out = MemoryBound(hbm_bytes=around.copies_out)
            copied = (*around.copies_in, *((out,) if around.copies_out else ()))
            copies = sum(costs.seconds(each) for each in copied)
            self.around[key] = alone, over, lead, copies, *self._beside(around, lead)
        return self.around[key]

    def _beside(self, around: Around, lead_s: float) -> tuple[float, float, float, float]:
        """For each of two streams: the seconds for which collectives run beside kernels, and the share of SMs
        that they hold.

        Kernels begin after ``lead_s``. By then a stream is on its way that has none of what they wait for, or
        less of it.
        """
        streams: dict[str, list[Collective]] = {}
        awaited: dict[str, float] = {}
        for op in around.first:
            if isinstance(op.work, Collective):
                awaited[op.stream] = awaited.get(op.stream, 0.0) + op.work.transfer.solo_s
        for op in (*around.overlapping, *(() if around.first else (*around.reductions, *around.delayed))):
            if isinstance(op.work, Collective) and op.work.transfer.sms:
                streams.setdefault(op.stream, []).append(op.work)
        found: list[float] = []
        for stream, works in list(streams.items())[:2]:
            part = min(work.transfer.sms for work in works) / self.tables.cluster.gpu.sms
            ahead_s = max(0.0, lead_s - awaited.get(stream, 0.0))
            moving_s = max(0.0, sum(work.transfer.solo_s for work in works) - ahead_s)
            found += moving_s, min(part, (1 - LEAST_SMS) / 2)
        return tuple((*found, 0.0, 0.0, 0.0, 0.0)[:4])  # type: ignore[return-value]

    def _priced(self, around: Around, place: int) -> Around:
        """The collectives with the costs that they have where the groups are placed so."""
        placements = dict(zip(("fsdp", "hsdp", "efsdp", "ehsdp"), self._placements[place][:4], strict=True))

        def priced(op: Op) -> Op:
            work = op.work
            if not isinstance(work, Collective) or work.transfer.bytes == 0:
                return op
            if work.communicator not in GROUP_OF:  # the way to the host
                return op
            placement = placements[GROUP_OF[work.communicator]]
            transfer = self.tables.communication.collective(work.kind, work.transfer.bytes, placement)
            return op._replace(work=replace(work, transfer=transfer))

        if self.tables.base.software.sharding.implementation == "deepspeed":
            return around  # prices depend on the bucket, and so its form has the placement
        return replace(
            around,
            reductions=tuple(map(priced, around.reductions)),
            delayed=tuple(map(priced, around.delayed)),
            first=tuple(map(priced, around.first)),
            overlapping=tuple(map(priced, around.overlapping)),
        )


def _lasting(seconds: float) -> Block:
    """A block of one kernel."""
    return Block("", (Op("", "compute", "compute", Compute(seconds, "fixed")),))
