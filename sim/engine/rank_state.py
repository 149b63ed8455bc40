"""The state of one class of ranks: SMs and HBM held, what moves, and what must be notified of a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ...kernels.gemm import IN_TWO_PASSES, LEAST_SMS
from ..network.transfer import MOST_HBM, Transfer
from ..program.program import Compute, Programs
from .signal import Signal

Contention = tuple[int, int, int]
"""SMs and thousandths of HBM's bandwidth that others hold on the rank, and communications of others that move
there."""

FirstUse = Callable[[str, float, float], float]
"""When a link is first used between two times; infinite where it is not."""


class Interruptible(Protocol):
    """Repeated blocks that run as a whole (repeated_blocks.py)."""

    def interrupt(self) -> None:
        """Called before something happens that may interfere."""


class Running(Protocol):
    """A kernel in progress (kernels.py)."""

    def look(self) -> None:
        """Called when a kernel's speed may have changed: by what runs beside it, or by the speed of its
        rank."""


@dataclass(slots=True)
class RankState:
    """``running`` are its kernels. ``closed`` are the repeated blocks that run as a whole, which put
    so many bytes per second on links at most (``closed_most``); ``closed_uses`` says when they first
    use one between two times.

    ``slow`` and ``peers`` are its binding: how slow its kernels are, and what its program's names of classes
    stand for. While it is ``changing``, or one of its links is down, no repeated blocks begin as a whole;
    ``stopped`` it makes no progress.

    ``held_sms`` SMs are held, ``held_hbm`` thousandths of HBM's bandwidth, by ``moving`` communications.
    ``awaited`` holds, by op and stream, who waits for the last op of those repeated blocks on that stream;
    ``passed`` the streams on which the repeated blocks in progress, op ``repeated_op``, are known to be done.
    """

    sms: int
    corun_slowdown: float
    slow: float = 1.0
    peers: Mapping[int, int] = field(default_factory=dict)
    held_sms: int = 0
    held_hbm: int = 0
    moving: int = 0
    running: dict[Running, None] = field(default_factory=dict)
    closed: Interruptible | None = None
    closed_most: Mapping[str, float] = field(default_factory=dict)
    closed_uses: FirstUse | None = None
    repeated_op: int = -1
    passed: set[str] = field(default_factory=set)
    awaited: dict[tuple[int, str], Signal] = field(default_factory=dict)
    changing: bool = False
    stopped: bool = False

    def speed(self, work: Compute) -> float:
        """Fraction of its solo speed at which a kernel runs beside the communication of its rank."""
        speed = 1.0
        if work.kind == "memory-bound":
            speed -= min(self.held_hbm, MOST_HBM) / 1000
        elif self.held_sms:
            speed = max(LEAST_SMS, 1.0 - self.held_sms / self.sms)
            if work.static_schedule:
                speed = min(speed, IN_TWO_PASSES)
        if self.moving:
            speed /= 1.0 + self.corun_slowdown
        return speed

    @property
    def contention(self) -> Contention:
        """The SMs and HBM that communications hold now."""
        return self.held_sms, self.held_hbm, self.moving

    def hold(self, transfer: Transfer) -> None:
        """Let a communication hold its SMs and HBM: kernels change speed, and blocks that run as a whole
        are interrupted."""
        self._hold(transfer.sms, transfer.hbm, 1)

    def release(self, transfer: Transfer) -> None:
        """Release the SMs and HBM of a communication."""
        self._hold(-transfer.sms, -transfer.hbm, -1)

    def _hold(self, sms: int, hbm: int, moving: int) -> None:
        if not sms and not hbm and not self.corun_slowdown:
            return
        self.held_sms += sms
        self.held_hbm += hbm
        self.moving += moving
        self.open()
        self.tell_kernels()

    def tell_kernels(self) -> None:
        """Let kernels in progress adjust their speed."""
        if self.running:
            for kernel in tuple(self.running):
                kernel.look()

    def first_use(self, link: str, since: float, until: float) -> float:
        """When the blocks that run as a whole first use ``link`` between two times, as far as is known;
        infinite where they do not."""
        if self.closed is None:
            return math.inf
        return since if self.closed_uses is None else self.closed_uses(link, since, until)

    def open(self) -> None:
        """Interrupt the repeated blocks that run as a whole, if any do."""
        if self.closed is not None:
            blocks, self.closed = self.closed, None
            blocks.interrupt()

    def open_if(self, blocks: Interruptible) -> None:
        """Interrupt the repeated blocks that run as a whole, if they are these."""
        if self.closed is blocks:
            self.open()

    def ended_on(self, repeated_op: int, stream: str) -> None:
        """Note that the last op of repeated blocks ``repeated_op`` on a stream has ended, and notify who
        waits for that."""
        if repeated_op == self.repeated_op:
            self.passed.add(stream)
        signal = self.awaited.pop((repeated_op, stream), None)
        if signal is not None:
            signal.happen()


def rank_states(programs: Programs) -> list[RankState]:
    """The state of one rank of each class before anything has begun."""
    bindings = [programs.binding(r) for r in range(len(programs.classes))]
    return [
        RankState(b.sms or programs.sms, programs.corun_slowdown, b.slow, b.peers, changing=is_down(links))
        for b, links in zip(bindings, programs.links, strict=True)
    ]


def is_down(links: Mapping[str, float]) -> bool:
    """Whether a link of a rank is down for a while: what runs as a whole would not end."""
    return 0.0 in links.values()
