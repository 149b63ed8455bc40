"""The blocks of an action with the gathers and reductions of its units around them.

Knows the rule and the order of units, not schedules. In a forward, a unit is gathered while the one before it
computes; the first has nothing beside it, since torch's root module waits for all compute before it. In a
backward the same holds in the order of the backward, and a unit's gradients are reduced while the next unit
computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from ...program.program import Block, Op
from ...scenario.sharding import MATRICES, ShardingRule
from .compose import Around, Composer
from .hiding import Hiding
from .traffic import ShardTraffic
from .units import Piece, Unit

CountedBlocks = tuple[tuple[Block, int], ...]
"""Blocks in the order in which they run, each with its count."""


@dataclass(frozen=True, kw_only=True)
class Moves:
    """Which collectives an action has: whether it gathers parameters, and whether it reduces gradients.

    ``table``: it reduces only the gradient of the word table, which autograd computes with the input
    gradient.
    """

    gathers: bool
    reduces: bool
    table: bool = False

    def reduced(self, row: Sequence[Piece]) -> list[bool]:
        """For each piece, whether its unit's gradients are reduced behind it: a layer's always, those of
        the embedding and the head behind the last piece that has some of them."""
        names = [piece.unit.name for piece in row]
        last = {name: k for k, name in enumerate(names)}
        wanted = [name == "embedding" or not self.table for name in names]
        return [
            self.reduces and want and (name == "layer" or last[name] == k)
            for k, (name, want) in enumerate(zip(names, wanted, strict=True))
        ]


@dataclass
class Rows:
    """Composes the blocks of actions under one rule; ``traffic`` makes the collectives of units."""

    rule: ShardingRule
    traffic: ShardTraffic
    composer: Composer

    def forward(self, row: Sequence[Piece], moves: Moves) -> CountedBlocks:
        """The blocks of a forward, in which each unit is gathered by the first piece that needs it."""
        blocks, gathered = [], set[str]()
        fetches = [self.fetch(piece.unit, gathered) if moves.gathers else None for piece in row]
        if self.rule.products_each:
            return self._scheduled(row, fetches, None)
        for k, piece in enumerate(row):
            around = Around(
                first=self._first(row, fetches, k),
                overlapping=self._overlapping(row, fetches, k),
                copies_out=self._copies_out(fetches[k]),
            )
            blocks.append(self.composer.block(piece.blocks, around))
        return counted(blocks)

    def backward(self, row: Sequence[Piece], moves: Moves, live: frozenset[str]) -> CountedBlocks:
        """The blocks of a backward. Units in ``live`` are still gathered from the forward. The backward
        ends when its last reductions have."""
        blocks, gathered = [], set(live)
        fetches = [self.fetch(piece.unit, gathered) if moves.gathers else None for piece in row]
        if self.rule.products_each:
            return self._scheduled(row, fetches, moves.reduced(row))
        pending: tuple[Op, ...] = ()
        delayed: tuple[Op, ...] = ()
        for k, (piece, ended) in enumerate(zip(row, moves.reduced(row), strict=True)):
            waited = pending if self.rule.waits else ()
            around = Around(
                reductions=() if waited else pending,
                delayed=delayed,
                first=waited + self._first(row, fetches, k),
                overlapping=self._overlapping(row, fetches, k),
                copies_out=self._copies_out(fetches[k]),
                copies_in=self.traffic.copied_in(piece.unit) if ended else (),
                early=True,
            )
            blocks.append(self.composer.block(piece.blocks, around))
            delayed = self.traffic.follow((*pending, *delayed))
            pending = self.traffic.reduce(piece.unit) if ended else ()
        return counted([*blocks, *self.tail(pending, delayed)])

    def reduction(self, units: Iterable[Unit]) -> CountedBlocks:
        """Blocks that reduce ``units`` one after the other, without any compute."""
        blocks: list[Block] = []
        delayed: tuple[Op, ...] = ()
        for unit in units:
            work = self.traffic.reduce(unit)
            around = Around(delayed=delayed, reductions=work, copies_in=self.traffic.copied_in(unit))
            blocks.append(self.composer.block((), around))
            delayed = self.traffic.follow((*work, *delayed))
        return counted([*blocks, *self.tail((), delayed)])

    # ------------------------------------------------------------------------------------------------

    def tail(
        self, pending: tuple[Op, ...], delayed: tuple[Op, ...], held: tuple[Op, ...] = ()
    ) -> list[Block]:
        """What is left to reduce, and what follows that, one after the other; ``held`` reductions leave with
        the first that follow."""
        blocks = []
        while pending or delayed or held:
            if pending or delayed:
                blocks.append(self.composer.block((), Around(reductions=pending, delayed=delayed)))
            late = self.traffic.follow((*pending, *delayed))
            pending, delayed, held = (), self.traffic.joined((*held, *late)), ()
        return blocks

    def _scheduled(
        self, row: Sequence[Piece], fetches: Sequence[Unit | None], ended: Sequence[bool] | None
    ) -> CountedBlocks:
        """A forward or a backward under XLA's latency-hiding scheduler, which counts GEMMs (hiding.py).
        ``ended`` says behind which pieces of a backward gradients are complete; None: a forward."""
        gathers = [self.traffic.gather(unit) if unit else () for unit in fetches]
        hiding = Hiding(
            products_each=self.rule.products_each, in_turn=self.rule.in_turn, waits=self.rule.waits
        )
        beside, awaited = hiding.gathers(row, gathers, backward=ended is not None)
        blocks: list[Block] = []
        pending: tuple[Op, ...] = ()
        delayed: tuple[Op, ...] = ()
        held: tuple[Op, ...] = ()
        for k, piece in enumerate(row):
            reductions = (*delayed, *pending)
            hidden, waited = hiding.reductions(piece, len(beside[k]), reductions)
            around = Around(first=waited + awaited[k], overlapping=beside[k] + hidden, early=True)
            blocks.append(self.composer.block(piece.blocks, around))
            late = self.traffic.follow((*pending, *delayed))
            delayed, held = self.traffic.held_back((*held, *late))
            pending = self.traffic.reduce(piece.unit) if ended and ended[k] else ()
        return counted([*blocks, *self.tail(pending, delayed, held)])

    def fetch(self, unit: Unit, gathered: set[str]) -> Unit | None:
        """``unit`` if it has to be gathered, else None. Layers always have to, since each is another
        layer."""
        if unit.name in gathered or not unit.sharded:
            return None
        if unit.name != "layer":
            gathered.add(unit.name)
        return unit

    def _ahead(self, row: Sequence[Piece], fetches: Sequence[Unit | None], k: int) -> float:
        """The share of piece k's unit that is gathered while piece k - 1 computes."""
        unit = fetches[k]
        if unit is None or k == 0 or self.rule.in_turn or self.rule.gathers_alone:
            return 0.0
        return min(1.0, max(0.0, self.rule.live - row[k - 1].unit.sharded) / unit.sharded)

    def _first(self, row: Sequence[Piece], fetches: Sequence[Unit | None], k: int) -> tuple[Op, ...]:
        unit = fetches[k]
        if unit is None:
            return ()
        now = self.traffic.gather(unit, 1.0 - self._ahead(row, fetches, k) - self._beside(unit))
        return now + (self.traffic.gather(unit) if unit.again else ())

    def _overlapping(self, row: Sequence[Piece], fetches: Sequence[Unit | None], k: int) -> tuple[Op, ...]:
        unit, own = fetches[k + 1] if k + 1 < len(row) else None, fetches[k]
        late = self.traffic.gather(own, self._beside(own)) if own else ()
        return late + (self.traffic.gather(unit, self._ahead(row, fetches, k + 1)) if unit else ())

    def _beside(self, unit: Unit) -> float:
        """The share of a layer that is gathered while that layer computes: all but its first matrix."""
        return 1.0 - 1.0 / MATRICES if self.rule.in_turn and unit.name == "layer" else 0.0

    def _copies_out(self, unit: Unit | None) -> float:
        return self.traffic.copied_out(unit) if unit else 0.0


def counted(blocks: Iterable[Block]) -> CountedBlocks:
    """The blocks with counts: equal blocks in a row become one entry."""
    return tuple((block, sum(1 for _ in same)) for block, same in groupby(blocks))
