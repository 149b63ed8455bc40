"""Rings over any members, each owning a block of pieces: the part that ring and hierarchical share.

References: Patarasuk & Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from .transfer import PeerTransfer, PieceTransfer

Blocks = Sequence[range]


def ring_all_gather(members: Sequence[int], blocks: Blocks, start: int = 0) -> Iterator[PieceTransfer]:
    """The transfers of an all_gather around a ring, from step ``start`` on. In step s of n-1, member r passes
    block r-s on to the next member; ``blocks[r]`` are the pieces that member r has at the beginning."""
    n = len(members)
    for s in range(n - 1):
        for r in range(n):
            yield PieceTransfer(start + s, members[r], members[(r + 1) % n], blocks[(r - s) % n], False)


def ring_reduce_scatter(members: Sequence[int], blocks: Blocks, start: int = 0) -> Iterator[PieceTransfer]:
    """The transfers of a reduce_scatter around a ring, from step ``start`` on. In step s of n-1, member r
    adds its share to block r-1-s and passes it on; member r gets the sum of block r in the last step."""
    n = len(members)
    for s in range(n - 1):
        for r in range(n):
            yield PieceTransfer(start + s, members[r], members[(r + 1) % n], blocks[(r - 1 - s) % n], True)


def ring_flows(members: Sequence[int], place: int, payload: Fraction) -> tuple[PeerTransfer, PeerTransfer]:
    """The flows of either ring for the member at ``place``: all blocks of ``payload`` but one, from before
    and to after."""
    n = len(members)
    amount = Fraction(n - 1, n) * payload
    return PeerTransfer(members[(place + 1) % n], sent=amount), PeerTransfer(
        members[(place - 1) % n], received=amount
    )
