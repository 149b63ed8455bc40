"""Entries of a lowered list as torch prints them."""

from __future__ import annotations

from stepsim.schedules.orders.action import ActionKind
from stepsim.schedules.p2p.instructions import Recv, Send
from stepsim.schedules.p2p.torch_lowering import Entry


def text(entry: Entry) -> str:
    """An entry in torch's notation: messages by the stage at this end, every gradient B (``2RECV_F0``)."""
    if not isinstance(entry, (Send, Recv)):
        return str(entry)
    action, forward = entry.action, entry.action.kind is ActionKind.FORWARD
    stage = action.stage + (1 if forward else -1) * isinstance(entry, Recv)
    verb = "SEND" if isinstance(entry, Send) else "RECV"
    return f"{stage}{verb}_{'F' if forward else 'B'}{action.microbatch}"
