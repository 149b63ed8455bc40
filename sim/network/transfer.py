"""A communication as the network sees it: latency, payload, ceiling, and the weight it puts on each link."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

LINKS = ("nvlink.out", "nvlink.in", "nic.out", "nic.in")
"""Links of one GPU, as local names; the engine keeps a set of them for each class of ranks."""

MOST_HBM = 500
"""Thousandths of HBM's bandwidth that communications take from a kernel that asks for all: a fair half."""

MOST_REMEMBERED = 4096
"""Kinds of weights on links of which those of one member are remembered."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """A communication as the network sees it.

    ``latency_s`` passes first and occupies no link; then ``bytes`` of payload progress at no more
    than ``ceiling_bytes_per_s``, putting ``weights`` (bytes per payload byte) on local links.
    ``sms`` streaming multiprocessors of each member are held from its arrival to the end, and so are ``hbm``
    thousandths of the bandwidth of its HBM. ``pattern`` is who sends to whom over the network (patterns.py);
    ``binding`` names what sets the ceiling.
    """

    latency_s: float
    bytes: float
    ceiling_bytes_per_s: float
    weights: tuple[tuple[str, float], ...] = ()
    sms: int = 0
    pattern: str = "ring"
    binding: str = ""
    hbm: int = 0

    @property
    def nic(self) -> float:
        """Bytes per payload byte that a member sends through its NIC."""
        return sum(weight for name, weight in self.weights if name in ("nic", "nic.out"))

    @property
    def solo_s(self) -> float:
        """Duration on an idle network."""
        return self.latency_s + (self.bytes / self.ceiling_bytes_per_s if self.bytes else 0.0)

    def slower(self, factor: float) -> Transfer:
        """A transfer of the same bytes in ``factor`` times the time; other links lose no more than before."""
        if factor == 1.0:
            return self
        return replace(
            self, latency_s=factor * self.latency_s, ceiling_bytes_per_s=self.ceiling_bytes_per_s / factor
        )

    @property
    def local_weights(self) -> tuple[tuple[str, float], ...]:
        """Bytes per payload byte on each link of one member: a bare tier stands for both directions."""
        return _local_weights(self.weights)


@lru_cache(maxsize=MOST_REMEMBERED)
def _local_weights(weights: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    """``Transfer.local_weights`` of these: few transfers differ in more than their bytes."""
    found: dict[str, float] = {}
    for name, weight in weights:
        for link in link_names(name):
            found[link] = found.get(link, 0.0) + weight
    return tuple(found.items())


def link_names(name: str) -> tuple[str, ...]:
    """``nvlink.out`` is itself; ``nvlink`` is a message: out of the sender, into the receiver."""
    return (name,) if name.endswith((".out", ".in")) else (f"{name}.out", f"{name}.in")


def in_turn(transfers: Sequence[Transfer]) -> Transfer:
    """Several in one kernel, one after the other: their latencies and times, the links of the largest."""
    if len(transfers) == 1:
        return transfers[0]
    size, latency_s = sum(one.bytes for one in transfers), sum(one.latency_s for one in transfers)
    moving_s = sum(one.solo_s for one in transfers) - latency_s
    largest = max(transfers, key=lambda one: one.bytes)
    return replace(
        largest,
        latency_s=latency_s,
        bytes=size,
        ceiling_bytes_per_s=size / moving_s if moving_s else math.inf,
    )


def several(transfer: Transfer, calls: int) -> Transfer:
    """``calls`` equal transfers in a row as one: latency and bytes add up."""
    if calls == 1:
        return transfer
    return replace(transfer, latency_s=calls * transfer.latency_s, bytes=calls * transfer.bytes)
