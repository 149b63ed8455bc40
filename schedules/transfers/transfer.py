"""One transfer of a collective, and the sum of those between a rank and one peer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple


class PieceTransfer(NamedTuple):
    """In ``step``, ``source`` gives ``target`` some pieces of the payload.

    ``pieces`` are counted modulo the number of pieces. ``reduces``: they are added to what the target
    holds; otherwise they replace it. All transfers of a step read what was there before the step.
    """

    step: int
    source: int
    target: int
    pieces: range
    reduces: bool


@dataclass(frozen=True, slots=True)
class PeerTransfer:
    """What a rank and one peer (a rank or a switch) exchange in all, in payloads."""

    peer: int
    sent: Fraction = Fraction(0)
    received: Fraction = Fraction(0)


def by_peer(flows: Iterable[PeerTransfer]) -> tuple[PeerTransfer, ...]:
    """One flow for each peer, in the order of the peers, without those that carry nothing."""
    sums: dict[int, PeerTransfer] = {}
    for flow in flows:
        so_far = sums.get(flow.peer, PeerTransfer(flow.peer))
        sums[flow.peer] = PeerTransfer(flow.peer, so_far.sent + flow.sent, so_far.received + flow.received)
    return tuple(sums[peer] for peer in sorted(sums) if sums[peer].sent or sums[peer].received)
