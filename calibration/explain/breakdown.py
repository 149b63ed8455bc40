"""Where the time of a step went: every moment of it is one part's, so that the parts make the whole.

A moment in which kernels run is the first kind's of KINDS that runs; one in which only messages move is that
axis's, exposed; an idle moment is the host's where the next op had not been launched, else it waited for
others. Knows no file format.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..readers.kernel_kinds import KINDS
from ..readers.traced import Span, merged
from .step_record import LATE, DeviceOp, RankStep

HOST, WAITING, BESIDE = "host", "waiting", "outside"
"""Idle because nothing was launched; idle although something was; the step's time on the host that is not the
GPU's (negative where the GPU lags behind)."""
_TOUCH_S = 2e-9  # traces are cut to nanoseconds


@dataclass(frozen=True, kw_only=True)
class Breakdown:
    """Seconds by part, which sum up to ``took_s``. ``counts`` are ops by kind; ``sent_s`` is all
    communication, and ``hidden_s`` the part of it during which kernels ran."""

    took_s: float
    parts: Mapping[str, float]
    counts: Mapping[str, int]
    sent_s: float
    hidden_s: float


def breakdown(step: RankStep) -> Breakdown:
    """The parts of a step; kinds of kernels first, then ``exposed AXIS``, host, waiting."""
    left = [(step.begin_s, step.end_s)]
    parts: dict[str, float] = {}
    for kind in KINDS[:-1]:
        left = _take(parts, kind, left, (op for op in step.ops if op.kind == kind))
    computing = merged(_clipped(step, lambda op: op.kind != "communication"))
    sent = [op for op in step.ops if op.kind == "communication"]
    for axis in sorted({op.axis for op in sent}):
        left = _take(parts, f"exposed {axis or 'messages'}", left, (op for op in sent if op.axis == axis))
    for name, seconds in _idle(step, left).items():
        parts[name] = parts.get(name, 0.0) + seconds
    if abs(step.took_s - step.window_s) > _TOUCH_S:
        parts[BESIDE] = step.took_s - step.window_s
    total = merged(_clipped(step, lambda op: op.kind == "communication"))
    sent_s = _length(total)
    return Breakdown(
        took_s=step.took_s,
        parts={name: seconds for name, seconds in parts.items() if seconds},
        counts={kind: sum(op.kind == kind for op in step.ops if _lasts(op)) for kind in KINDS},
        sent_s=sent_s,
        hidden_s=sent_s - _length(without(total, computing)),
    )


def without(a: Sequence[Span], b: Sequence[Span]) -> list[Span]:
    """What of the disjoint, ordered spans ``a`` none of ``b`` (likewise) covers.

    >>> without([(0.0, 4.0)], [(1.0, 2.0), (3.0, 9.0)])
    [(0.0, 1.0), (2.0, 3.0)]
    """
    found: list[Span] = []
    j = 0
    for begin, end in a:
        at = begin
        while j and b[j - 1][1] > begin:
            j -= 1
        while j < len(b) and b[j][0] < end:
            if b[j][0] > at:
                found.append((at, b[j][0]))
            at = max(at, b[j][1])
            j += 1
        if at < end:
            found.append((at, end))
    return found


def _take(parts: dict[str, float], name: str, left: list[Span], ops: Iterable[DeviceOp]) -> list[Span]:
    """Attribute to ``name`` the remaining time that its ops cover; returns the rest."""
    rest = without(left, merged((op.start_s, op.end_s) for op in ops))
    parts[name] = parts.get(name, 0.0) + _length(left) - _length(rest)
    return rest


def _idle(step: RankStep, gaps: Sequence[Span]) -> dict[str, float]:
    """Idle seconds by cause. Where no launch is known, and behind the last op, it is waiting."""
    ops = sorted((op for op in step.ops if op.issued_s is not None), key=lambda op: op.start_s)
    starts = [op.start_s for op in ops]
    found = {HOST: 0.0, WAITING: 0.0}
    for begin, end in gaps:
        at = bisect_left(starts, end - _TOUCH_S)
        following = []
        while at < len(ops) and starts[at] <= end + _TOUCH_S:
            following.append(ops[at].issued_s or 0.0)
            at += 1
        issued = min(min(following, default=begin), end)
        late_s = max(0.0, issued - begin)
        if end - begin - late_s < 2 * _TOUCH_S:
            late_s = end - begin
        found[HOST] += late_s
        found[WAITING] += end - begin - late_s
    return found


def _lasts(op: DeviceOp) -> bool:
    """Whether an op counts: one of less than half a nanosecond is none in a trace, and waiting for late peers
    is part of the op behind it.
    """
    return op.end_s - op.start_s > _TOUCH_S / 4 and op.axis != LATE


def _clipped(step: RankStep, wanted: object) -> Iterable[Span]:
    assert callable(wanted)
    for op in step.ops:
        if wanted(op) and op.end_s > step.begin_s and op.start_s < step.end_s:
            yield max(op.start_s, step.begin_s), min(op.end_s, step.end_s)


def _length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)
