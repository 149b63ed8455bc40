"""A collective on one group: its closed forms, and its transfers when someone asks for them.

Plans compose: a reduce_scatter is often an all_gather run backwards, an all_reduce the two in a row.
Knows neither seconds nor bytes: a step is a latency, a fraction of the payload a weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from .collective import CollectiveKind, piece_fraction
from .group import RankGroup, Tier
from .transfer import PeerTransfer, PieceTransfer, by_peer


@dataclass(frozen=True, kw_only=True)
class PlanTraffic:
    """Payloads that one rank sends and receives over one tier, or over both."""

    sent: Fraction
    received: Fraction


@dataclass(frozen=True, kw_only=True)
class TransferPlan:
    """``collective`` on ``group``, the payload cut into ``pieces`` (see ``collective.py``).

    ``steps`` counts the latencies one after another. ``peers(rank)`` is what the rank exchanges with
    whom, in closed form: it does not go through the transfers, of which there may be O(n²).
    """

    collective: CollectiveKind
    group: RankGroup
    pieces: int
    steps: int
    transfers: Callable[[], Iterator[PieceTransfer]]
    peers: Callable[[int], Iterable[PeerTransfer]]

    @property
    def fraction(self) -> Fraction:
        """The share of the payload that one piece is."""
        return piece_fraction(self.collective, self.group, self.pieces)

    def flows(self, rank: int) -> tuple[PeerTransfer, ...]:
        """What the rank exchanges with each peer, summed over the steps."""
        return by_peer(self.peers(rank))

    def traffic(self, rank: int, tier: Tier | None = None) -> PlanTraffic:
        """Payloads sent and received by a rank, over one tier (None: both)."""
        flows = [f for f in self.flows(rank) if tier in (None, self.group.tier(rank, f.peer))]
        return PlanTraffic(
            sent=sum((f.sent for f in flows), Fraction(0)),
            received=sum((f.received for f in flows), Fraction(0)),
        )

    def busiest(self, tier: Tier | None = None) -> PlanTraffic:
        """The most that any rank sends, and the most that any receives, over a tier."""
        each = [self.traffic(rank, tier) for rank in range(self.group.ranks)]
        return PlanTraffic(sent=max(t.sent for t in each), received=max(t.received for t in each))


def mirrored(plan: TransferPlan, collective: CollectiveKind) -> TransferPlan:
    """The plan backwards: who delivered a piece now collects it, reduced on the way.

    What a switch has reduced already holds the share of whoever reads it, so that it replaces it.
    """

    def transfers() -> Iterator[PieceTransfer]:
        for step, source, target, pieces, _ in plan.transfers():
            yield PieceTransfer(
                plan.steps - 1 - step, target, source, pieces, not plan.group.is_switch(target)
            )

    def peers(rank: int) -> Iterator[PeerTransfer]:
        return (PeerTransfer(flow.peer, flow.received, flow.sent) for flow in plan.peers(rank))

    return TransferPlan(
        collective=collective,
        group=plan.group,
        pieces=plan.pieces,
        steps=plan.steps,
        transfers=transfers,
        peers=peers,
    )


def in_sequence(collective: CollectiveKind, *plans: TransferPlan) -> TransferPlan:
    """The plan of a collective that is these plans one after another, all on the same group and pieces: its
    steps and its traffic are the sums of theirs."""
    group, pieces = plans[0].group, plans[0].pieces
    assert all(plan.group == group and plan.pieces == pieces for plan in plans)

    def transfers() -> Iterator[PieceTransfer]:
        start = 0
        for plan in plans:
            for transfer in plan.transfers():
                yield transfer._replace(step=start + transfer.step)
            start += plan.steps

    def peers(rank: int) -> Iterator[PeerTransfer]:
        return (flow for plan in plans for flow in plan.peers(rank))

    return TransferPlan(
        collective=collective,
        group=group,
        pieces=pieces,
        steps=sum(plan.steps for plan in plans),
        transfers=transfers,
        peers=peers,
    )
