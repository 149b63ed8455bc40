"""How a block or repeated blocks run: times of ops, rates while they make progress, and where time went.

Times count from a zero that all members of a group share, since blocks may meet those of other classes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..program.program import Block, Compute, Op, RepeatedBlocks
from ..result.step import IN_LAYER
from .scope import SLACK_S, WAITS, Left, Scope
from .slowed import SlowedWhile

Rates = Sequence[tuple[float, float]]
"""(since, rate) of an op in progress: seconds of work, or bytes, per second."""


@dataclass(frozen=True)
class BlockRun:
    """One run of a block by one class, which reaches it at ``first`` and has done it at ``last``.

    ``start``, ``begin`` (see Record) and ``end`` by op, infinite where nothing lets it get there;
    ``rates`` of each while it makes progress. ``parts`` splits its time by what the compute stream did:
    kernel kinds, the axis awaited, the host, or peers that are late (``peers_of``). Kernels take ``slow``
    times as long.

    A run from the midst of a block on counts from that moment: ops that had ended have no start, those in
    progress had so much left (``begun``). Flows of the rank that go on ``beside`` it move at these rates.
    """

    block: Block
    first: float
    last: float
    start: Sequence[float]
    begin: Sequence[float]
    end: Sequence[float]
    rates: Sequence[Rates]
    slow: float = 1.0
    begun: Mapping[int, Left] = field(default_factory=dict)
    beside: tuple[Rates, ...] = ()
    slowed: Sequence[SlowedWhile] = ()

    @cached_property
    def parts(self) -> Mapping[str, float]:
        """Seconds of the run by what the compute stream did; empty where it never ends."""
        times = self.start, self.begin, self.end
        return block_parts(self.block.ops, times, self.first) if max(self.end, default=0.0) < math.inf else {}

    @cached_property
    def late(self) -> tuple[float, Mapping[str, float]] | None:
        """When it waited for its host last, and what it has done since then (``since_host``)."""
        return since_host(self.block.ops, (self.start, self.begin, self.end), self.first)

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first op to the end of the last."""
        return self.last - self.first

    @cached_property
    def busy(self) -> Mapping[str, Sequence[tuple[float, float]]]:
        """When its collectives use each link of its rank, the earliest first."""
        found: dict[str, list[tuple[float, float]]] = {}
        for i, transfer in self.block.transfers:
            begin = self.begin[i]
            if begin < math.inf:
                latency_s = self.begun[i][0] if i in self.begun else transfer.latency_s
                for link, _ in transfer.local_weights:
                    found.setdefault(link, []).append((begin + latency_s, self.end[i]))
        return {link: sorted(times) for link, times in found.items()}

    def first_use(self, link: str, since: float, until: float) -> float:
        """When it first uses ``link`` of its rank between two times, counted from when the rank reaches it;
        infinite where it does not."""
        return _first_between(self.busy.get(link, ()), since, until)

    @cached_property
    def lead_s(self) -> float:
        """The least lead of the host in seconds with which no op waits for it. Holds for a run in which none
        does."""
        waits, first, begun = zip(self.block.issued_s, self.start, strict=True), self.first, self.begun
        leads = [at - (start - first) for i, (at, start) in enumerate(waits) if i not in begun]
        return max(leads, default=0.0)

    def left(self, i: int, at: float) -> Left:
        """What op ``i``, which is in progress at ``at``, has left (see ``scope.Left``)."""
        work = self.block.ops[i].work
        if isinstance(work, Compute):
            amount = self.begun[i][1] if i in self.begun else work.seconds * self.slow
            return 0.0, amount - done(self.rates[i], at)
        transfer = work.transfer  # type: ignore[union-attr]  # blocks hold kernels and collectives
        latency_s, payload = self.begun.get(i) or (transfer.latency_s, transfer.bytes)
        latency_s = max(0.0, self.begin[i] + latency_s - at)
        return latency_s, payload if latency_s else max(0.0, payload - done(self.rates[i], at))


def _first_between(
    times: Sequence[tuple[float, float]], since: float, until: float, base: float = 0.0
) -> float:
    """The first moment between ``since`` and ``until`` within one of ``times``, the earliest first, which
    count from ``base``; infinite where there is none."""
    for begin, end in times:
        if base + end > since and base + begin < until:
            return max(since, base + begin)
    return math.inf


def done(rates: Rates, at: float) -> float:
    """What has been done until ``at`` by progress at these ``rates``: seconds of work, or bytes."""
    total, last = 0.0, len(rates) - 1
    for k, (since, rate) in enumerate(rates):
        if since >= at:
            break
        end = rates[k + 1][0] if k < last else math.inf
        total += (min(end, at) - since) * rate
    return total


@dataclass(frozen=True)
class RepeatedRun:
    """Repeated blocks from block ``number`` on, as one class runs them, from ``first`` to ``last``.

    ``runs`` are those of the blocks, each of which counts from its own ``bases``. It may be the rest of a
    ``whole`` run, whose block ``number`` begins ``offset`` after it: what that knows is not computed again.
    """

    number: int
    runs: Sequence[BlockRun]
    bases: Sequence[float]
    first: float
    last: float
    whole: RepeatedRun | None = None
    offset: float = 0.0

    def rest(self, number: int) -> RepeatedRun:
        """This run of all blocks from block ``number`` on, as it is when somebody reaches that block."""
        offset = self.bases[number]
        bases = [base - offset for base in self.bases[number:]]
        return RepeatedRun(number, self.runs[number:], bases, self.first, self.last - offset, self, offset)

    def first_use(self, link: str, since: float, until: float) -> float:
        """When it first uses ``link`` of its rank between two times; infinite where it does not."""
        if self.whole is not None:
            since, until = max(since, self.first) + self.offset, until + self.offset
            return self.whole.first_use(link, since, until) - self.offset
        for k in range(bisect_right(self._ends, since), len(self.runs)):
            base = self.bases[k]
            if base >= until:
                break
            first = _first_between(self.runs[k].busy.get(link, ()), since, until, base)
            if first < math.inf:
                return first
        return math.inf

    @cached_property
    def _ends(self) -> list[float]:
        return [base + run.last for base, run in zip(self.bases, self.runs, strict=True)]

    def ended(self, since: float) -> int:
        """How many of the runs have ended ``since`` seconds after zero."""
        if self.whole is not None:
            return max(0, self.whole.ended(since + self.offset) - self.number)
        return bisect_right(self._ends, since + SLACK_S)

    def leads_s(self, repeated: RepeatedBlocks) -> list[float]:
        """The least lead of the host in seconds with which no op waits for it, from each block on.

        It is the lead when the block is reached, and holds for a run in which no op waits for the host.
        """
        issued, most, found = repeated.issued_s, -math.inf, list[float]()
        for k in range(self.number + len(self.runs) - 1, self.number - 1, -1):
            base, run = self.bases[k - self.number], self.runs[k - self.number]
            began = issued[k] - (base + run.first - self.first)
            most = max(most, began + run.lead_s)
            found.append(most - began)
        return found[::-1]

    def lead_s(self, repeated: RepeatedBlocks) -> float:
        """The least lead of the host in seconds with which no op waits for it. Holds for a run in which none
        does."""
        return next(iter(self.leads_s(repeated)), 0.0)

    @cached_property
    def parts(self) -> dict[str, float]:
        """All its seconds by what the compute stream did (BlockRun); between blocks it awaits the host."""
        parts = parts_of(self.runs)
        seconds = self.last - self.first
        host_s = seconds - sum(run.seconds for run in self.runs)
        return total((parts, {"host": host_s})) if host_s > 1e-12 * seconds else parts


def go_on(scope: Scope, run: BlockRun, zero: float, base: float, since: float) -> None:
    """Write into ``scope`` what has begun and ended of a block by some moment of its replayed ``run``.

    The moment is ``zero + since`` and the run began at ``zero + base`` (seconds). Ops that have ended get
    their times, kernels in progress what they have left, all others stay as they are. What has ended is
    decided by sums that all members of a group compute alike, so that they agree to the last bit.
    """
    at, ended, begun, left = zero + base, scope.end, run.begun, scope.left
    over = since + SLACK_S  # what takes no time too: members that ended now are past it
    starts, begins, ends = run.start, run.begin, run.end
    for i, known in enumerate(ended):
        if known >= 0:
            continue
        if base + ends[i] <= over:
            if not begun or i not in begun:
                scope.start[i], scope.begin[i] = at + starts[i], at + begins[i]
            ended[i] = at + ends[i]
            if left:
                left.pop(i, None)
        elif begun and i in begun:
            scope.left[i] = run.left(i, since - base)
        elif base + starts[i] < since:
            scope.start[i] = at + starts[i]
            if base + begins[i] > since:
                scope.left[i] = WAITS
            else:
                scope.begin[i] = at + begins[i]
                scope.left[i] = run.left(i, since - base)


def parts_of(runs: Sequence[BlockRun]) -> dict[str, float]:
    """Seconds of ``runs`` by what the compute stream did; blocks in a row are often one and the same run."""
    if len(runs) == 1:
        return dict(runs[0].parts)
    counts = Counter(map(id, runs))
    found: dict[str, float] = {}
    for run in {id(run): run for run in runs}.values():
        for name, seconds in run.parts.items():
            found[name] = found.get(name, 0.0) + counts[id(run)] * seconds
    return found


def total(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Seconds by name, added up over ``parts``."""
    found: dict[str, float] = {}
    for one in parts:
        for name, seconds in one.items():
            found[name] = found.get(name, 0.0) + seconds
    return found


Moments = tuple[Sequence[float], Sequence[float], Sequence[float]]
"""Start, begin and end of the ops of a block."""


def block_parts(ops: Sequence[Op], times: Moments, at: float) -> dict[str, float]:
    """Seconds of a block, reached at ``at``, by kernel kind; where the compute stream stands still, by the
    axis that it awaits, or host, or peers."""
    parts: dict[str, float] = {}
    start, _, end = times
    free = at
    for i, op in enumerate(ops):
        if op.stream != "compute":
            continue
        assert isinstance(op.work, Compute)
        if start[i] > free:
            _awaited(ops, op.after, times, (free, start[i]), parts)
        parts[op.work.kind] = parts.get(op.work.kind, 0.0) + end[i] - start[i]
        free = end[i]
    last = max(end, default=at)
    if last > free:
        _awaited(ops, range(len(ops)), times, (free, last), parts)
    return parts


def since_host(ops: Sequence[Op], times: Moments, at: float) -> tuple[float, dict[str, float]] | None:
    """When the compute stream of a block, reached at ``at``, waited for its host last, and what it has done
    since then, in seconds as of ``block_parts``; None where it never did."""
    found: tuple[float, dict[str, float]] | None = None
    start, _, end = times
    free, parts = at, dict[str, float]()
    last = max(end, default=at)
    waits = [(i, ops[i].after, start[i]) for i in range(len(ops)) if ops[i].stream == "compute"]
    for i, awaited, until in (*waits, (-1, range(len(ops)), last)):
        gap: dict[str, float] = {}
        if until > free:
            _awaited(ops, awaited, times, (free, until), gap)
        if "host" in gap:
            ready = max((end[d] for d in awaited), default=free)
            parts = {} if until > ready else {k: s for k, s in gap.items() if k != "host"}
            found = until - sum(parts.values()), parts
        else:
            sum_up(parts, gap)
        if i >= 0:
            work = ops[i].work
            assert isinstance(work, Compute)
            sum_up(parts, {work.kind: end[i] - start[i]})
            free = end[i]
    return found


def sum_up(sums: dict[str, float], more: Mapping[str, float]) -> None:
    """Add the seconds of ``more`` to those of the same name in ``sums``."""
    for name, seconds in more.items():
        sums[name] = sums.get(name, 0.0) + seconds


def peers_of(op: Op) -> str:
    """Whom a communication waits for: ``tp peers``; ``dp peers`` where its axis is outside of layers."""
    return f"{op.category if op.category in IN_LAYER else 'dp'} peers"


def _awaited(
    ops: Sequence[Op],
    awaited: Sequence[int],
    times: Moments,
    gap: tuple[float, float],
    parts: dict[str, float],
) -> None:
    """Split a gap: its axis until the last of what is awaited has ended, and the host until it starts.

    A collective starts late by what lies between the end of what comes before it in its block and its start,
    and then waits for its peers.
    """
    start, begin, end = times
    cursor, until = gap
    for i in sorted((d for d in awaited if ops[d].stream != "compute"), key=lambda d: end[d]):
        if end[i] <= cursor:
            continue
        late = 0.0
        if start[i] > cursor:
            after, stream = ops[i].after, ops[i].stream
            before = (end[d] for d in range(i) if d in after or ops[d].stream == stream)
            late = min(max(0.0, start[i] - max(cursor, max(before, default=cursor))), until - cursor)
        if late:
            parts["host"] = parts.get("host", 0.0) + late
        upto, peers = min(end[i], until), 0.0
        # It waits for its own peers, and for those of whoever is before it; by itself it has none.
        for d in range(i + 1) if begin is not start else ():
            if ops[d].stream == ops[i].stream and end[d] > cursor:
                waited = min(
                    max(0.0, min(begin[d], upto) - max(cursor, start[d])), upto - cursor - late - peers
                )
                if waited > 0:
                    name = peers_of(ops[d])
                    parts[name] = parts.get(name, 0.0) + waited
                    peers += waited
        axis = ops[i].category
        parts[axis] = parts.get(axis, 0.0) + upto - cursor - late - peers
        cursor = upto
    if until > cursor:
        parts["host"] = parts.get("host", 0.0) + until - cursor
