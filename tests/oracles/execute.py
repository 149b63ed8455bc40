"""Runs the transfers of a plan on symbolic data and says the first thing that is wrong with them.

Each rank starts with its own contribution to the pieces that it holds. A vertex can only send what it
held before the step; a reduction must not count a rank twice; in the end every rank must hold the
pieces that the collective promises, made of exactly the right ranks.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from stepsim.schedules.transfers.collective import CollectiveKind
from stepsim.schedules.transfers.group import RankGroup
from stepsim.schedules.transfers.plan import TransferPlan
from stepsim.schedules.transfers.transfer import PieceTransfer

REDUCING = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE})
"""Every rank contributes to every piece."""

Held = dict[int, dict[int, int]]
"""Of each vertex, of each piece that it holds: the ranks in it, as bits."""


def execute(plan: TransferPlan) -> Held:
    """What every vertex holds after the last step.

    Raises:
        ValueError: a vertex sends what it does not have, a rank is counted twice, two transfers of a
            step write the same piece, the steps are not as many as the plan says, or a rank ends
            without what the collective promises it.
    """
    held = _at_start(plan)
    transfers = sorted(plan.transfers(), key=lambda transfer: transfer.step)
    steps = 0
    for step, now in groupby(transfers, key=lambda transfer: transfer.step):
        if step != steps:
            raise ValueError(f"nothing happens in step {steps}; the next transfer is in step {step}")
        _run_step(plan, held, list(now))
        steps += 1
    if steps != plan.steps:
        raise ValueError(f"the plan has {plan.steps} steps, its transfers take {steps}")
    _check_end(plan, held)
    return held


def _at_start(plan: TransferPlan) -> Held:
    held: Held = {vertex: {} for vertex in range(plan.group.network_switch + 1)}
    for rank in range(plan.group.ranks):
        pieces = held_before(plan.collective, plan.group, plan.pieces, rank)
        held[rank] = dict.fromkeys(pieces, 1 << rank)
    return held


def _run_step(plan: TransferPlan, held: Held, now: list[PieceTransfer]) -> None:
    arrived: dict[tuple[int, int], int] = {}
    replaced: set[tuple[int, int]] = set()
    for transfer in now:
        for number in transfer.pieces:
            piece = number % plan.pieces
            value = held[transfer.source].get(piece)
            if value is None:
                raise ValueError(f"{_words(transfer)}: the source does not hold piece {piece}")
            here = transfer.target, piece
            if here in arrived and not (transfer.reduces and here not in replaced):
                raise ValueError(f"{_words(transfer)}: piece {piece} is written twice in this step")
            before = arrived.get(here, held[transfer.target].get(piece, 0)) if transfer.reduces else 0
            if before & value:
                raise ValueError(f"{_words(transfer)}: piece {piece} would count a rank twice")
            arrived[here] = before | value
            if not transfer.reduces:
                replaced.add(here)
    for (target, piece), value in arrived.items():
        held[target][piece] = value


def _check_end(plan: TransferPlan, held: Held) -> None:
    group, collective = plan.group, plan.collective
    for rank in range(group.ranks):
        for piece in wanted_after(collective, group, plan.pieces, rank):
            whole = sum(1 << one for one in contributors(collective, group, plan.pieces, piece))
            there = held[rank].get(piece, 0)
            if there != whole:
                raise ValueError(f"rank {rank} ends with {there:#b} of piece {piece}, not {whole:#b}")


def _words(transfer: PieceTransfer) -> str:
    verb = "reduces into" if transfer.reduces else "copies to"
    return f"step {transfer.step}: {transfer.source} {verb} {transfer.target}"


# Who holds which piece before, and who must hold it after (MPI 4.1 chapter 6) -------------------------------


def held_before(collective: CollectiveKind, group: RankGroup, pieces: int, rank: int) -> Iterable[int]:
    """The pieces that a rank contributes."""
    if collective in REDUCING:
        return range(pieces)
    if collective is CollectiveKind.BROADCAST:
        return range(pieces) if rank == group.root else ()
    return block(group, pieces, rank)  # of all_to_all: a row of n pieces, one for each target


def wanted_after(collective: CollectiveKind, group: RankGroup, pieces: int, rank: int) -> Iterable[int]:
    """The pieces that a rank must hold at the end, whole."""
    match collective:
        case CollectiveKind.ALL_REDUCE | CollectiveKind.ALL_GATHER | CollectiveKind.BROADCAST:
            return range(pieces)
        case CollectiveKind.REDUCE_SCATTER:
            return block(group, pieces, rank)
        case CollectiveKind.REDUCE:
            return range(pieces) if rank == group.root else ()
        case CollectiveKind.ALL_TO_ALL:
            return range(rank, pieces, group.ranks)
        case CollectiveKind.SEND_RECV:
            return block(group, pieces, (rank - 1) % group.ranks)


def contributors(collective: CollectiveKind, group: RankGroup, pieces: int, piece: int) -> frozenset[int]:
    """The ranks whose data a whole piece is made of, each once."""
    if collective in REDUCING:
        return frozenset(range(group.ranks))
    if collective is CollectiveKind.BROADCAST:
        return frozenset({group.root})
    return frozenset({piece * group.ranks // pieces})


def block(group: RankGroup, pieces: int, rank: int) -> range:
    """Block of a rank where the pieces are dealt out in order."""
    size = pieces // group.ranks
    return range(rank * size, (rank + 1) * size)
