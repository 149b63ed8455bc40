"""The calls by which Megatron's interleaved 1F1B moves its messages, in their order.

The k-th forward of a rank has its result taken, by the next rank, right before that rank's own k-th
forward: every rank posts that receive one iteration ahead. Rank 0 is the exception: what rank p-1
makes in iteration k comes back to it p-1 iterations later, and waits in a buffer when groups are
larger than p. Backwards mirror this, rank p-1 leading.

Source: Megatron-LM d98e8a6 ``core/pipeline_parallel/schedules.py``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..orders.action import Action, ActionKind, Order, Orders, actions_of
from ..orders.dependencies import consumer_stage
from ..orders.schedule import Shape
from ..pipeline.interleaved import warm_up_forwards
from .instructions import Instruction, MessageGroup, MessagePart, Recv, RunAction, Send, Wait

_DIRECTIONS = (ActionKind.FORWARD, ActionKind.BACKWARD)


def interleaved_messages(orders: Orders, shape: Shape, rule: str) -> tuple[tuple[Instruction, ...], ...]:
    """The instructions of every rank. ``orders`` are those of interleaved 1F1B."""
    written = []
    every = tuple({kind: _of_kind(order, kind) for kind in _DIRECTIONS} for order in orders)
    for rank in range(shape.ranks):
        calls = _Calls(rank=rank, shape=shape, every=every)
        _WRITERS[rule](calls, warm_up_forwards(rank, shape))
        written.append(tuple(calls.instructions))
    return tuple(written)


@dataclass(kw_only=True)
class _Calls:
    """One rank's instructions while they are written."""

    rank: int
    shape: Shape
    every: Sequence[Mapping[ActionKind, list[Action]]]
    """The actions of all ranks."""
    instructions: list[Instruction] = field(default_factory=list)
    actions: Mapping[ActionKind, list[Action]] = field(init=False)
    receives: dict[ActionKind, dict[int, Recv]] = field(init=False)
    sending: dict[ActionKind, Send | None] = field(default_factory=lambda: dict.fromkeys(_DIRECTIONS))
    awaited: dict[ActionKind, deque[Recv]] = field(
        default_factory=lambda: {kind: deque() for kind in _DIRECTIONS}
    )

    def __post_init__(self) -> None:
        self.actions = self.every[self.rank]
        self.receives = {kind: self._receives(kind) for kind in _DIRECTIONS}

    @property
    def total(self) -> int:
        """Forwards of the rank, m·v."""
        return self.shape.microbatches * self.shape.chunks

    def leads(self, kind: ActionKind) -> bool:
        return self.rank == (0 if kind is ActionKind.FORWARD else self.shape.ranks - 1)

    def send(self, kind: ActionKind, iteration: int) -> Send | None:
        """What leaves after the iteration's action."""
        action = self.actions[kind][iteration]
        if consumer_stage(action, self.shape) is None:
            return None
        step = 1 if kind is ActionKind.FORWARD else -1
        return Send(action, (self.rank + step) % self.shape.ranks)

    def recv(self, kind: ActionKind, iteration: int) -> Recv | None:
        """What is asked for in the iteration: the next one's input, or a later one's on the leading rank."""
        return self.receives[kind].get(iteration)

    def compute(self, kind: ActionKind, iteration: int) -> None:
        self.instructions.append(RunAction(self.actions[kind][iteration]))

    def block(self, *parts: MessagePart | None) -> None:
        """Append one call that sends and receives ``parts`` (None: nothing), and for which the rank waits."""
        if present := tuple([part for part in parts if part]):
            self.instructions.append(MessageGroup(present, blocking=True))

    def post(self, kind: ActionKind, send: Send | None, recv: Recv | None) -> None:
        """Append one call for which the rank does not wait yet; it waits for the send before it in this
        direction instead."""
        if present := tuple([part for part in (send, recv) if part]):
            self.instructions.append(MessageGroup(present, blocking=False))
        self.await_send(kind)
        self.sending[kind] = send
        if recv:
            self.awaited[kind].append(recv)

    def ask(self, kind: ActionKind, recv: Recv | None) -> None:
        """Post a receive alone."""
        if recv:
            self.instructions.append(MessageGroup((recv,), blocking=False))
            self.awaited[kind].append(recv)

    def await_send(self, kind: ActionKind) -> None:
        if send := self.sending[kind]:
            self.instructions.append(Wait(send))
            self.sending[kind] = None

    def await_input(self, kind: ActionKind, iteration: int) -> None:
        """Wait for the oldest receive posted without waiting, if the action needs an input at all.

        On the leading rank the oldest may be a later input than the one needed: blocking calls before
        it have brought that one. Megatron waits all the same.
        """
        action = self.actions[kind][iteration]
        first = 0 if kind is ActionKind.FORWARD else self.shape.stages - 1
        if action.stage != first and self.awaited[kind]:
            self.instructions.append(Wait(self.awaited[kind].popleft()))

    def _receives(self, kind: ActionKind) -> dict[int, Recv]:
        """What each iteration receives; -1 stands for the time before the first."""
        p = self.shape.ranks
        peer = (self.rank - 1 if kind is ActionKind.FORWARD else self.rank + 1) % p
        lag = p - 1 if self.leads(kind) else -1
        return {
            iteration + lag: Recv(action, peer)
            for iteration, action in enumerate(self.every[peer][kind])
            if consumer_stage(action, self.shape) is not None
        }


def _of_kind(order: Order, kind: ActionKind) -> list[Action]:
    return [action for action in actions_of(order) if action.kind is kind]


def _write_blocking(calls: _Calls, warm_up: int) -> None:
    """Every step ends in one fused call."""
    forward, backward = _DIRECTIONS
    _warm_up_blocking(calls, warm_up, turn=calls.recv(backward, -1) if warm_up < calls.total else None)
    for k in range(calls.total - warm_up):
        calls.compute(forward, warm_up + k)
        calls.compute(backward, k)
        sends = calls.send(forward, warm_up + k), calls.send(backward, k)
        calls.block(*sends, calls.recv(forward, warm_up + k), calls.recv(backward, k))
    if warm_up == calls.total:
        calls.block(calls.recv(backward, -1))
    for k in range(calls.total - warm_up, calls.total):
        calls.compute(backward, k)
        calls.block(calls.send(backward, k), calls.recv(backward, k))


def _write_prefetch(calls: _Calls, warm_up: int) -> None:
    """Warm-up and cool-down block; while F and B alternate, messages travel beside the computation."""
    _, backward = _DIRECTIONS
    _warm_up_blocking(calls, warm_up, turn=None)
    if warm_up < calls.total:
        calls.post(backward, None, calls.recv(backward, -1))
    _alternate_prefetching(calls, warm_up)
    if warm_up == calls.total:
        calls.block(calls.recv(backward, -1))
    for k in range(calls.total - warm_up, calls.total):
        if k:
            calls.await_input(backward, k)
        calls.compute(backward, k)
        calls.block(calls.send(backward, k), calls.recv(backward, k))
    calls.await_send(backward)


def _write_prefetch_full(calls: _Calls, warm_up: int) -> None:
    """Messages travel beside the computation from the first forward to the last backward."""
    forward, backward = _DIRECTIONS
    calls.block(calls.recv(forward, -1))
    for k in range(warm_up):
        _step_prefetching(calls, forward, k)
    if warm_up < calls.total:
        calls.post(backward, None, calls.recv(backward, -1))
    _alternate_prefetching(calls, warm_up)
    if warm_up == calls.total:
        calls.block(calls.recv(backward, -1))
    for k in range(calls.total - warm_up, calls.total):
        _step_prefetching(calls, backward, k)
    calls.await_send(backward)


def _warm_up_blocking(calls: _Calls, warm_up: int, turn: Recv | None) -> None:
    """``turn``: the first gradient, if the last call of the warm-up brings it too."""
    forward = ActionKind.FORWARD
    calls.block(calls.recv(forward, -1))
    for k in range(warm_up):
        calls.compute(forward, k)
        calls.block(calls.send(forward, k), calls.recv(forward, k), turn if k == warm_up - 1 else None)


def _alternate_prefetching(calls: _Calls, warm_up: int) -> None:
    for k in range(calls.total - warm_up):
        for kind, iteration in zip(_DIRECTIONS, (warm_up + k, k), strict=True):
            calls.await_input(kind, iteration)
            calls.compute(kind, iteration)
            calls.post(kind, calls.send(kind, iteration), calls.recv(kind, iteration))


def _step_prefetching(calls: _Calls, kind: ActionKind, k: int) -> None:
    """A step of the warm-up or cool-down: the leading rank asks after computing, others before."""
    if k:
        calls.await_input(kind, k)
    recv = calls.recv(kind, k)
    if not calls.leads(kind):
        calls.ask(kind, recv)
        recv = None
    calls.compute(kind, k)
    calls.post(kind, calls.send(kind, k), recv)


_WRITERS = {"blocking": _write_blocking, "prefetch": _write_prefetch, "prefetch-full": _write_prefetch_full}
