"""What the collectives are: who holds which piece of the payload before, and who must hold it after.

The payload is what nccl-tests counts: the whole vector of an all_reduce, broadcast or reduce, all n
blocks of an all_gather, reduce_scatter or all_to_all, one rank's message of a send_recv. It is cut
into equal pieces, numbered over the whole group where ranks hold different data.

Sources: MPI 4.1 chapter 6; nccl-tests doc/PERFORMANCE.md.
"""

from __future__ import annotations

from enum import StrEnum
from fractions import Fraction

from .group import RankGroup


class CollectiveKind(StrEnum):
    """The collectives of the field; ``send_recv`` is nccl-tests' (every rank to the next)."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    REDUCE = "reduce"
    SEND_RECV = "send_recv"


def piece_fraction(collective: CollectiveKind, group: RankGroup, pieces: int) -> Fraction:
    """Payload in one of so many pieces: an all_to_all has n of its n² pieces on each rank."""
    if collective is CollectiveKind.ALL_TO_ALL:
        return Fraction(group.ranks, pieces)
    if collective is CollectiveKind.SEND_RECV:
        return Fraction(group.ranks, pieces)
    return Fraction(1, pieces)
