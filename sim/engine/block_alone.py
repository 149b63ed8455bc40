"""A block of one class, run without the event queue: whole, or from a state in the middle of it.

The order of its streams and of its host decides everything. Its kernels slow down beside its own collectives
and beside whatever else holds SMs or HBM of the rank all the while. Its collectives share the rank's links
with one another, and with flows of the rank that move all the while, or from a moment on.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, cast

from ..program.program import Block, Collective, Compute
from .running_work import RunningFlow, RunningKernel
from .slowed import SlowedWhile
from .ticks import payload_ticks, ticks

if TYPE_CHECKING:
    from ..network.sharing import Demand
    from ..network.transfer import Transfer
    from ..program.program import Op
    from .blocks import BlockRun, Rates
    from .own_rates import OwnRates
    from .rank_state import RankState
    from .scope import Left, Scope

HOST = -1
"""In the queue of moments: the host has issued an op; ``HOST - 1 - k``: flow k beside the block begins."""

State = tuple["Left | bool", ...]
"""A running block's state, by op: True if it has ended, False if it has not begun, else what it has left."""


def state_of(scope: Scope) -> State:
    """The state of every op of a scope that is a block."""
    state: list[Left | bool] = [end >= 0 for end in scope.end]
    for i, left in scope.left.items():
        state[i] = _to_a_tick(left, scope.ops[i])
    return tuple(state)


def begun(state: State) -> dict[int, Left]:
    """What is left of each op in progress."""
    return {i: one for i, one in enumerate(state) if one is not True and one is not False}


def _to_a_tick(left: Left, op: Op) -> Left:
    latency_s, amount = left
    if isinstance(op.work, Compute):
        return latency_s, ticks(amount)
    assert isinstance(op.work, Collective)
    return ticks(latency_s), payload_ticks(amount, op.work.transfer.ceiling_bytes_per_s)


class FlowsBeside(NamedTuple):
    """Flows of a rank that move while a block of it runs; each begins after its ``delays_s`` (empty: at
    once)."""

    demands: tuple[Demand, ...] = ()
    delays_s: tuple[float, ...] = ()

    def moving(self) -> FlowsBeside:
        """The same flows without delays: as they are once their latencies have passed."""
        return FlowsBeside(self.demands)


NOTHING = FlowsBeside()


class Course(NamedTuple):
    """How a block runs: starts and ends of its ops, rates of its ops and of the flows beside it, and which
    links slowed them. For ops that ended or began earlier, the time is 0."""

    start: list[float]
    end: list[float]
    rates: list[Rates]
    beside: tuple[Rates, ...]
    slowed: list[SlowedWhile]


def run_alone(
    block: Block,
    issued_s: float,
    rank: RankState,
    rates: OwnRates,
    beside: FlowsBeside = NOTHING,
    state: State | None = None,
    whole: BlockRun | None = None,
) -> Course | None:
    """How a block runs by itself, in seconds from the moment at which its rank reaches it.

    It begins at that moment, or is then in ``state``. ``issued_s`` is when the host issues its first op
    (-inf: long ago). The flows ``beside`` it last until its end at least. ``whole``, if known, is the run of
    the whole block beside the same flows with its host far ahead: once all flows move, this run can be copied
    from it at an op at which all streams join.

    None where only a replay can tell: where collectives stand for several calls, or never end.
    """
    if not beside.demands and block.is_serial:
        return _in_turn(block, issued_s, rank, rates, state)
    return _Alone(block, issued_s, rank, rates, beside, state, whole).course()


def _in_turn(
    block: Block, issued_s: float, rank: RankState, own: OwnRates, state: State | None
) -> Course | None:
    """The course of a block whose ops follow one another, without flows beside it."""
    count, now = len(block.ops), 0.0
    start, end, slowed = [math.inf] * count, [0.0] * count, list[SlowedWhile]()
    rates: list[list[tuple[float, float]]] = [[] for _ in range(count)]
    left = begun(state) if state else {}
    for i, op in enumerate(block.ops):
        if state and state[i] is True:
            continue
        work, begins = op.work, left.get(i)
        if begins is None:
            now = max(now, issued_s + block.issued_s[i])
        start[i] = now
        if isinstance(work, Compute):
            rate = rank.speed(work)
            rates[i].append((now, rate))
            now += (max(0.0, begins[1]) if begins else work.seconds * rank.slow) / rate
        else:
            assert isinstance(work, Collective)
            latency_s, amount = begins or (work.transfer.latency_s, work.transfer.bytes)
            if work.calls > 1 or amount == math.inf:
                return None
            now += latency_s
            if amount:
                ((rate, held),) = own.of((own.demand(work.transfer),))
                if not rate:
                    return None
                since, now = now, now + amount / rate
                rates[i].append((since, rate))
                if held is not None:
                    slowed.append(SlowedWhile(since, now, i, held, rate))
        end[i] = now
    return Course(start, end, cast("list[Rates]", rates), (), slowed)


class _Alone:
    def __init__(
        self,
        block: Block,
        issued_s: float,
        rank: RankState,
        rates: OwnRates,
        beside: FlowsBeside,
        state: State | None,
        whole: BlockRun | None,
    ) -> None:
        count = len(block.ops)
        self.block, self.ops, self.rank, self.own = block, block.ops, rank, rates
        ahead = issued_s == -math.inf
        self.issued_s = [issued_s] * count if ahead else [issued_s + at for at in block.issued_s]
        self.start = [math.inf] * count
        self.end = [0.0 if one is True else math.inf for one in state] if state else [math.inf] * count
        self.left = begun(state) if state else {}
        rows = [row for rows in block.streams.values() for row in rows]
        self.rows = [[i for i in reversed(row) if self.end[i] == math.inf] for row in rows]  # last first
        self.rates: list[list[tuple[float, float]]] = [[] for _ in range(count)]
        self.now, self.kernel = 0.0, RunningKernel([])
        self.queue: list[tuple[float, int]] = []  # ends of latencies, issues of ops (HOST), begins of flows
        self.beside = {-1 - k: RunningFlow(demand, math.inf, []) for k, demand in enumerate(beside.demands)}
        self.moving = dict(self.beside)
        for k, delay_s in enumerate(beside.delays_s):
            if delay_s > 0:
                del self.moving[-1 - k]
                heappush(self.queue, (delay_s, HOST - 1 - k))
        self.coming = len(self.queue)  # how many flows beside it are yet to begin
        self.amounts: dict[int, float] = {}  # payloads of collectives that have begun
        self.changed = bool(self.moving)  # whether what moves is not what it was
        self.first = math.inf, HOST  # when the first collective of those that move ends
        self.slowed: list[SlowedWhile] = []
        self.whole, self.ended = whole, count - sum(map(len, self.rows))
        self.begun = self.ended  # how many ops have
        self.joins = block.joins if whole else frozenset[int]()

    def course(self) -> Course | None:
        """The whole course, or None (run_alone)."""
        start = self.start
        while True:
            if self.ended in self.joins and self.begun == self.ended and not self.left and not self.coming:
                if self.changed and not self._share():
                    return None
                assert self.whole is not None
                self._go_on_as(self.whole, self.ended)
                break
            for row in self.rows:
                if row and start[row[-1]] == math.inf and not self._begin(row[-1], row):
                    return None
            if self.changed and not self._share():
                return None
            if not self._go_on():
                self._hold_until_now()
                break
        beside = tuple(flow.rates for flow in self.beside.values())
        return Course(start, self.end, cast("list[Rates]", self.rates), beside, self.slowed)

    def _hold_until_now(self) -> None:
        """Record which link has slowed each flow beside the block until now."""
        for number, flow in self.beside.items():
            self._held(number, flow)

    def _go_on_as(self, whole: BlockRun, k: int) -> None:
        """Copy the rest from the ``whole`` run: all ops before ``k`` have ended, and no other has begun."""
        self._hold_until_now()
        since = whole.start[k]
        later = self.now - since
        self.start[k:] = [at + later for at in whole.start[k:]]
        self.end[k:] = [at + later for at in whole.end[k:]]
        self.rates[k:] = [[(at + later, rate) for at, rate in rates] for rates in whole.rates[k:]]
        for flow, rates in zip(self.beside.values(), whole.beside, strict=True):
            flow.rates += [(at + later, rate) for at, rate in rates if at >= since]
        for one in whole.slowed:
            if one.until > since:
                at = max(one.since, since) + later
                self.slowed.append(one._replace(since=at, until=one.until + later))

    def _go_on(self) -> bool:
        """Advance to the next moment at which something ends or begins; False if there is none."""
        at, (ends, first) = self.queue[0][0] if self.queue else math.inf, self.first
        now = min(at, ends)
        if self.kernel.ends <= now:
            if self.kernel.i < 0:
                return False
            self._kernels(now)
        elif ends <= now:
            self.now = now
            self._held(first, self.moving.pop(first))
            self._over(first)
            self.changed = True
        else:
            self.now, i = heappop(self.queue)
            if i > HOST:
                self._moves(i)
            elif i < HOST:
                self._comes(i - HOST)
        return True

    def _kernels(self, until: float) -> None:
        """End the kernel at work, which ends by ``until``, and run the kernels behind it that end by then
        too, as long as they wait only for their host and nothing waits for them."""
        kernel, end, awaited = self.kernel, self.end, self.block.awaited
        i, now = kernel.i, kernel.ends
        row, speed = kernel.row, self.rank.speed
        while True:
            end[i] = self.now = now
            row.pop()
            self.ended += 1
            kernel.i, kernel.ends = HOST, math.inf
            if i in awaited or not row or self.ended in self.joins:
                return
            i = row[-1]
            op = self.ops[i]
            issued_s = self.issued_s[i]
            if not isinstance(op.work, Compute) or (issued_s > now and issued_s >= until):
                return
            for before in op.after:
                if end[before] == math.inf:
                    return
            now = max(now, issued_s)
            rate = speed(op.work)
            self.begun += 1
            self.start[i] = now
            self.rates[i].append((now, rate))
            kernel.i, kernel.left = i, op.work.seconds * self.rank.slow
            kernel.ends = now = now + kernel.left / rate
            if now > until:
                return

    def _begin(self, i: int, row: list[int]) -> bool:
        """Begin the next op of its row if it can begin. False where this class cannot run it (several
        calls, no end)."""
        op, left = self.ops[i], self.left.pop(i, None) if self.left else None
        if left is None:
            for before in op.after:
                if self.end[before] == math.inf:
                    return True
            if self.issued_s[i] > self.now:
                if (self.issued_s[i], HOST) not in self.queue:
                    heappush(self.queue, (self.issued_s[i], HOST))
                return True
        self.start[i] = self.now
        self.begun += 1
        if isinstance(op.work, Compute):
            self.kernel.i, self.kernel.row = i, row
            self.kernel.left = max(0.0, left[1]) if left else op.work.seconds * self.rank.slow
            self._speed(self.rank.speed(op.work))
            return True
        assert isinstance(op.work, Collective)
        latency_s, amount = left or (op.work.transfer.latency_s, op.work.transfer.bytes)
        if op.work.calls > 1 or amount == math.inf:
            return False
        self.amounts[i] = amount
        heappush(self.queue, (self.now + latency_s, i))
        self._hold(op.work.transfer, 1)
        return True

    def _moves(self, i: int) -> None:
        """The latency of a collective has passed: its payload begins to move."""
        work = self.ops[i].work
        assert isinstance(work, Collective)
        if not self.amounts[i]:
            self._over(i)
            return
        self.moving[i] = RunningFlow(self.own.demand(work.transfer), self.amounts[i], self.rates[i])
        self.changed = True

    def _comes(self, number: int) -> None:
        """A flow beside the block begins to move."""
        self.moving[number] = self.beside[number]
        self.coming -= 1
        self.changed = True

    def _share(self) -> bool:
        """Compute new rates for everything that moves; False where something gets no rate and never ends."""
        self.changed, now, ends, first = False, self.now, math.inf, HOST
        shares = self.own.of(tuple([flow.demand for flow in self.moving.values()])) if self.moving else ()
        for (i, flow), (rate, held) in zip(self.moving.items(), shares, strict=True):
            if rate != flow.rate or held != flow.held:
                if not rate:
                    return False
                self._held(i, flow)
                if flow.rate:
                    left = flow.left - flow.rate * (now - flow.since)
                    flow.left = left if left > 0 else 0.0
                if rate != flow.rate:
                    flow.rates.append((now, rate))
                flow.since, flow.rate, flow.held = now, rate, held
            if i >= 0 and flow.since + flow.left / rate < ends:
                ends, first = flow.since + flow.left / rate, i
        self.first = ends, first
        return True

    def _held(self, i: int, flow: RunningFlow) -> None:
        """Record which link has slowed a flow until now."""
        if flow.held is not None:
            self.slowed.append(SlowedWhile(flow.since, self.now, i, flow.held, flow.rate))

    def _over(self, i: int) -> None:
        """End a collective."""
        work = self.ops[i].work
        assert isinstance(work, Collective)
        self._ends(i)
        self._hold(work.transfer, -1)

    def _ends(self, i: int) -> None:
        self.end[i] = self.now
        self.ended += 1
        for row in self.rows:
            if row and row[-1] == i:
                row.pop()
                return

    def _hold(self, transfer: Transfer, sign: int) -> None:
        """Let a collective take SMs and HBM from kernels (``sign`` 1), or return them (-1); the kernel at
        work changes speed."""
        rank, kernel = self.rank, self.kernel
        rank.held_sms += sign * transfer.sms
        rank.held_hbm += sign * transfer.hbm
        rank.moving += sign
        if kernel.i < 0:
            return
        work = self.ops[kernel.i].work
        assert isinstance(work, Compute)
        since, rate = self.rates[kernel.i][-1]
        now = self.rank.speed(work)
        if now != rate:
            kernel.left = max(0.0, kernel.left - rate * (self.now - since))
            self._speed(now)

    def _speed(self, rate: float) -> None:
        """Set the speed of the kernel at work from now on."""
        kernel = self.kernel
        self.rates[kernel.i].append((self.now, rate))
        kernel.ends = self.now + kernel.left / rate
