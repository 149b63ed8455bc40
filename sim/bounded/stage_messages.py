"""Messages between stages as nodes of a step's graph, in place of the exchanges that post their ends.

A message begins when both its ends are posted, and whoever waits for an exchange waits for all its messages.
So one node stands for two ops and what joins them. Knows a record; knows nothing of what is slow.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..program.program import Exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.record import Record
    from ..network.transfer import Transfer


@dataclass(frozen=True, kw_only=True)
class StageMessage:
    """A message from one stage to another, which begins at ``at_s`` in the healthy step. ``ends`` are the ops
    that post it, numbered over all stages, and ``busy_s`` how many seconds both take."""

    sender: int
    receiver: int
    ends: tuple[int, int]
    transfer: Transfer
    at_s: float
    busy_s: float


def messages_of(record: Record, first: Sequence[int]) -> list[StageMessage]:
    """The messages of a healthy record between two stages. ``first`` is the number of each stage's first
    op."""
    posted: dict[tuple[int, int, str], deque[tuple[int, int]]] = defaultdict(deque)
    found = []
    for r, program in enumerate(record.programs.classes):
        for i, op in enumerate(program.ops):
            if not isinstance(op.work, Exchange):
                continue
            for part in op.work.parts:
                if part.peer == r:
                    continue
                ends = (r, part.peer) if part.send else (part.peer, r)
                waiting = posted[*ends, part.tag]
                if not waiting or waiting[0][0] == r:
                    waiting.append((r, i))
                    continue
                other = waiting.popleft()
                sent, received = ((r, i), other) if part.send else (other, (r, i))
                found.append(
                    StageMessage(
                        sender=sent[0],
                        receiver=received[0],
                        ends=(first[sent[0]] + sent[1], first[received[0]] + received[1]),
                        transfer=part.transfer,
                        at_s=max(record.start[a][k] for a, k in (sent, received)),
                        busy_s=min(record.end[a][k] - record.begin[a][k] for a, k in (sent, received)),
                    )
                )
    return found


def exchanges_in(record: Record, first: Sequence[int]) -> dict[int, int]:
    """The exchanges by number, with how many messages each posts an end of."""
    return {
        first[r] + i: len(op.work.parts)
        for r, program in enumerate(record.programs.classes)
        for i, op in enumerate(program.ops)
        if isinstance(op.work, Exchange)
    }
