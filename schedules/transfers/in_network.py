"""The part that SHARP algorithms share: the network's switch delivers to every rank its rail's share.

Backwards it is the reduction: every rank gives the switch its node's share, already reduced or not.
Knows one switch vertex for a whole reduction tree of switches.

References:
    Graham et al. 2016, "Scalable hierarchical aggregation protocol (SHARP)".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from .group import RankGroup
from .transfer import PeerTransfer, PieceTransfer


def rail_shares(group: RankGroup, pieces: int) -> Sequence[range]:
    """For each local rank, the pieces that are its to carry: every L-th."""
    return [range(i, pieces, group.local) for i in range(group.local)]


def own_to_network(group: RankGroup) -> Iterator[PieceTransfer]:
    """In step 0, every rank gives the switch its own piece, of n."""
    for rank in range(group.ranks):
        yield PieceTransfer(0, rank, group.network_switch, range(rank, rank + 1), False)


def from_network(group: RankGroup, shares: Sequence[range], step: int) -> Iterator[PieceTransfer]:
    """The switch gives every rank its rail's share, the rank's own pieces with it."""
    for rank in range(group.ranks):
        yield PieceTransfer(step, group.network_switch, rank, shares[rank % group.local], False)


def network_flow(group: RankGroup, *, own: bool) -> PeerTransfer:
    """What both come to, on every rank."""
    sent = Fraction(own, group.ranks)
    return PeerTransfer(group.network_switch, sent=sent, received=Fraction(1, group.local))
