"""What the collectives are: who holds which piece of the payload before, and who must hold it after.

The payload is what nccl-tests counts: the whole vector of an all_reduce, broadcast or reduce, all n
blocks of an all_gather, reduce_scatter or all_to_all, one rank's message of a send_recv. It is cut
into equal pieces, numbered over the whole group where ranks hold different data.

Sources: MPI 4.1 chapter 6; nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fractions import Fraction

from .group import Group


class Collective(StrEnum):
    """The collectives of the field; ``send_recv`` is nccl-tests' (every rank to the next)."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "send_recv"


REDUCING = frozenset({Collective.ALL_REDUCE, Collective.REDUCE_SCATTER, Collective.REDUCE})
"""Every rank contributes to every piece."""


def piece_fraction(collective: Collective, group: Group, pieces: int) -> Fraction:
    """Payload in one of so many pieces: an all_to_all has n of its n² pieces on each rank."""
    if collective is Collective.ALL_TO_ALL:
        return Fraction(group.ranks, pieces)
    if collective is Collective.SEND_RECV:
        return Fraction(group.ranks, pieces)
    return Fraction(1, pieces)


def held_before(collective: Collective, group: Group, pieces: int, rank: int) -> Iterable[int]:
    """The pieces that a rank contributes."""
    if collective in REDUCING:
        return range(pieces)
    if collective is Collective.BROADCAST:
        return range(pieces) if rank == group.root else ()
    return block(group, pieces, rank)  # of all_to_all: a row of n pieces, one for each target


def wanted_after(collective: Collective, group: Group, pieces: int, rank: int) -> Iterable[int]:
    """The pieces that a rank must hold at the end, whole."""
    match collective:
        case Collective.ALL_REDUCE | Collective.ALL_GATHER | Collective.BROADCAST:
            return range(pieces)
        case Collective.REDUCE_SCATTER:
            return block(group, pieces, rank)
        case Collective.REDUCE:
            return range(pieces) if rank == group.root else ()
        case Collective.ALL_TO_ALL:
            return range(rank, pieces, group.ranks)
        case Collective.SEND_RECV:
            return block(group, pieces, (rank - 1) % group.ranks)


def contributors(collective: Collective, group: Group, pieces: int, piece: int) -> frozenset[int]:
    """The ranks whose data a whole piece is made of, each once."""
    if collective in REDUCING:
        return frozenset(range(group.ranks))
    if collective is Collective.BROADCAST:
        return frozenset({group.root})
    return frozenset({piece * group.ranks // pieces})


def block(group: Group, pieces: int, rank: int) -> range:
    """Block of a rank where the pieces are dealt out in order."""
    size = pieces // group.ranks
    return range(rank * size, (rank + 1) * size)
