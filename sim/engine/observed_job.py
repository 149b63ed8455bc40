"""One of several jobs that were replayed together: its part of the record, counted from its own beginning.

Knows records; knows nothing of why jobs were replayed together.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from .period import step_seconds
from .record import Piece, Record, Stretch

if TYPE_CHECKING:
    from ..program.program import Programs


def of_first_classes(record: Record, programs: Programs, since_s: float) -> Record:
    """The record of ``programs``, the first classes of those replayed, which meet none of the others; times
    count from ``since_s``.
    """
    count = len(programs.classes)
    found = replace(
        record,
        programs=programs,
        start=[_from(times, since_s) for times in record.start[:count]],
        begin=[_from(times, since_s) for times in record.begin[:count]],
        end=[_from(times, since_s) for times in record.end[:count]],
        source=record.source[:count],
        at_once=record.at_once[:count],
        in_pieces={
            (r, i): [_piece_from(piece, since_s) for piece in pieces]
            for (r, i), pieces in record.in_pieces.items()
            if r < count
        },
        slowed=[one for one in record.slowed if max(max(ends) for ends in one.ends) < count],
    )
    if record.makespan_s < math.inf:
        found.last_s = [max(ends, default=0.0) for ends in found.end]
        found.makespan_s = max(found.last_s, default=0.0)
    found.step_s = step_seconds(found)
    return found


def _from(times: array[float], since_s: float) -> array[float]:
    """The known times, counted from another zero."""
    return array("d", (at - since_s if at >= 0 else at for at in times)) if since_s else times


def _piece_from(piece: Piece, since_s: float) -> Piece:
    if isinstance(piece, Stretch):
        return replace(piece, at=piece.at - since_s)
    issued_at = None if piece.issued_at is None else piece.issued_at - since_s
    return replace(
        piece,
        issued_at=issued_at,
        start=_from(piece.start, since_s),
        begin=_from(piece.begin, since_s),
        end=_from(piece.end, since_s),
    )
