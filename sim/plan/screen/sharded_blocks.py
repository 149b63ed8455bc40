"""Blocks by name that repeat, with what is gathered and reduced around them; sharded_times.py times them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from .times import recompute_of

if TYPE_CHECKING:
    from ...lowering.layers.recompute import Recompute
    from ...lowering.sharding.compose import Around
    from .times import BlockName


class ShardedPiece(NamedTuple):
    """Some blocks by name, with what runs around them, repeated so many times."""

    names: tuple[BlockName, ...]
    around: Around
    repeats: int


class ShardedPart(NamedTuple):
    """The blocks of a piece without what runs around them."""

    names: tuple[BlockName, ...]
    repeats: int


def with_more(pieces: tuple[ShardedPiece, ...], place: int, more: int) -> tuple[ShardedPiece, ...]:
    """The pieces, of which the one at ``place`` is repeated so many times more."""
    return tuple(
        piece._replace(repeats=piece.repeats + more) if number == place else piece
        for number, piece in enumerate(pieces)
    )


def recomputing(part: ShardedPart, recompute: Recompute) -> ShardedPart:
    """The part with layers that recompute as ``recompute`` says."""
    names = tuple(
        replace(name, run=replace(name.run, recompute=recompute_of(name.build, name.run, recompute)))
        if name.run is not None
        else name
        for name in part.names
    )
    return part._replace(names=names)
