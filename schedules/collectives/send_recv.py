"""Send and receive: every rank sends one message to the next, as nccl-tests' sendrecv and ring exchanges do.

References:
    nccl-tests src/sendrecv.cu.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from ..transfers.algorithm import Algorithm
from ..transfers.collective import CollectiveKind
from ..transfers.group import RankGroup
from ..transfers.loads import Loads
from ..transfers.plan import TransferPlan
from ..transfers.transfer import PeerTransfer, PieceTransfer


def send_recv(group: RankGroup) -> TransferPlan:
    """One step; one payload to the next rank and one from the rank before."""
    n = group.ranks

    def transfers() -> Iterator[PieceTransfer]:
        for rank in range(n):
            yield PieceTransfer(0, rank, (rank + 1) % n, range(rank, rank + 1), False)

    def peers(rank: int) -> Iterator[PeerTransfer]:
        yield PeerTransfer((rank + 1) % n, sent=Fraction(1))
        yield PeerTransfer((rank - 1) % n, received=Fraction(1))

    return TransferPlan(
        collective=CollectiveKind.SEND_RECV, group=group, pieces=n, steps=1, transfers=transfers, peers=peers
    )


def loads(collective: CollectiveKind, group: RankGroup) -> Loads:
    """One step and one payload, through the NVLink of each rank, and through a NIC at the last rank of a
    node."""
    del collective
    crosses = group.nodes > 1
    return Loads(
        steps=1,
        network_steps=int(crosses),
        local=Fraction(group.local > 1),
        network=Fraction(crosses),
    )


ALGORITHM = Algorithm(
    name="send-recv", title="Send and receive", loads_of=loads, plans={CollectiveKind.SEND_RECV: send_recv}
)
