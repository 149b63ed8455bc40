"""How many messages from one stage to another may move at the same time, where no stream orders them.

Each waits for a kernel of its sender, of its receiver, or of both; a rank's kernels run one after the other.
So messages begin at least as far apart as these kernels take alone, but for what hosts post late. Knows
programs; replays nothing.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from ..engine.scope import issue_times
from ..program.matching import message_of
from ..program.program import UNORDERED, Compute, Exchange, RepeatedBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..network.transfer import Transfer
    from ..program.program import Program, Programs, Work

COMPUTE = "compute"
"""The stream of kernels."""

Between = tuple[int, int]
"""The stages that send and receive."""


class _End(NamedTuple):
    """When one end of a message is posted: by its host at ``host_s``, and after kernels of its rank that end
    at ``after_s`` at the earliest. ``after_s`` is None where the end waits for no kernel."""

    host_s: float
    after_s: float | None


@dataclass(frozen=True, kw_only=True)
class MessagesBetween:
    """All messages from one stage to another, in the order in which they are sent.

    Counted from any message, a later one begins later by at least the difference of their ``sent_s``, and by
    at least that of their ``received_s``; the message that is counted from may itself begin up to ``late_s``
    after its kernels. All are seconds, and None where nothing is known of when messages begin.
    """

    transfers: tuple[Transfer, ...]
    sent_s: tuple[float, ...] | None = None
    received_s: tuple[float, ...] | None = None
    late_s: tuple[float, ...] = ()

    def at_once(self, lasting_s: Sequence[float]) -> int:
        """The most messages that move at the same time, if each moves for ``lasting_s`` once it has begun."""
        clocks = [clock for clock in (self.sent_s, self.received_s) if clock is not None]
        if not clocks:
            return len(self.transfers)
        longest_s = max(late + lasting for late, lasting in zip(self.late_s, lasting_s, strict=True))
        most, since = 1, 0
        for i in range(len(self.transfers)):
            while since < i and all(clock[i] - clock[since] >= longest_s for clock in clocks):
                since += 1
            most = max(most, i - since + 1)
        return most


def messages_between(programs: Programs, fastest: float) -> dict[Between, MessagesBetween]:
    """The messages that no stream orders on both ends, by the stages that send and receive them.

    ``fastest`` is the factor of the fastest rank: its kernels take so many times as long as healthy ones.
    """
    sends: dict[tuple[int, int, str], list[tuple[Transfer, _End | None]]] = defaultdict(list)
    receives: dict[tuple[int, int, str], list[tuple[Transfer, _End | None]]] = defaultdict(list)
    order: dict[Between, list[str]] = defaultdict(list)
    for r, program in enumerate(programs.classes):
        ends = _ends(program, fastest)
        for i, op in enumerate(program.ops):
            if op.stream != UNORDERED or not isinstance(op.work, Exchange):
                continue
            for part in op.work.parts:
                key = message_of(r, part)
                (sends if part.send else receives)[key].append((part.transfer, ends[i]))
                if part.send:
                    order[r, part.peer].append(part.tag)
    return {between: _between(between, tags, sends, receives) for between, tags in order.items()}


_Posted = dict[tuple[int, int, str], list[tuple["Transfer", "_End | None"]]]


def _between(between: Between, tags: Sequence[str], sends: _Posted, receives: _Posted) -> MessagesBetween:
    used: dict[str, int] = defaultdict(int)
    transfers, ends = [], []
    for tag in tags:
        number, key = used[tag], (*between, tag)
        used[tag] += 1
        transfer, sent = sends[key][number]
        transfers.append(transfer)
        received = receives[key][number][1] if number < len(receives[key]) else None
        ends.append((sent, received))
    alone = MessagesBetween(transfers=tuple(transfers))
    known = [(sent, received) for sent, received in ends if sent is not None and received is not None]
    if len(known) < len(ends):
        return alone
    clocks = [_clock([end[side].after_s for end in known]) for side in (0, 1)]
    if not any(clocks) or None in clocks:
        return alone
    sent_s, received_s = (clock or None for clock in clocks if clock is not None)
    begun_s = [max(sent.after_s or 0.0, received.after_s or 0.0) for sent, received in known]
    host_s = [max(sent.host_s, received.host_s) for sent, received in known]
    late_s = tuple(max(0.0, host - begun) for host, begun in zip(host_s, begun_s, strict=True))
    if any(map(math.isinf, late_s)):
        return alone
    return MessagesBetween(transfers=tuple(transfers), sent_s=sent_s, received_s=received_s, late_s=late_s)


def _clock(after_s: Sequence[float | None]) -> tuple[float, ...] | None:
    """The times as a tuple, empty where no end waits for a kernel; None where only some do or where they
    decrease."""
    known = [at for at in after_s if at is not None]
    if known and (len(known) < len(after_s) or known != sorted(known)):
        return None
    return tuple(known)


def _ends(program: Program, fastest: float) -> list[_End | None]:
    """For each op, when it is posted; None where that is not known."""
    took = [_kernels_s(op.work) * fastest if op.stream == COMPUTE else 0.0 for op in program.ops]
    ended_s = list(accumulate(took))
    found: list[_End | None] = []
    for op, (sync, offset_s) in zip(program.ops, issue_times(program.ops), strict=True):
        behind = {program.ops[j].stream for j in op.after}
        if behind - {COMPUTE}:
            found.append(None)
            continue
        after_s = max((ended_s[j] for j in op.after), default=None)
        found.append(_End(math.inf if sync >= 0 else offset_s, after_s))
    return found


def _kernels_s(work: Work) -> float:
    """Seconds of the kernels of an op, one after the other."""
    if isinstance(work, Compute):
        return work.seconds
    if isinstance(work, RepeatedBlocks):
        return sum(
            count * sum(_kernels_s(op.work) for op in block.ops if op.stream == COMPUTE)
            for block, count in work.blocks
        )
    return 0.0
