"""The pieces in which NCCL sends a payload: chunks of rings, chunks that fill a tree, messages by their size.

Knows how many pieces there are and what they wait for. Does not know algorithms or machines.

Sources: NCCL src/enqueue.cc (chunks of a tree with Simple, before 2.22 and since; channels by payload),
src/graph/connect.cc (depth of a tree); libfabric prov/cxi (what is fetched by its receiver).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .nccl.buffers import BUFFER_BYTES
from .nccl.constants import RING_CHUNKS_ON_THEIR_WAY, NcclProtocol

KIB = 1024.0

LARGEST_CHUNK_BYTES = 512 * KIB
"""A step of the buffer of a channel with Simple: 4 MiB (NCCL_BUFFSIZE) in eight steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeChunks:
    """A payload's way through a tree over hosts: up to the root and down again, chunk after chunk.

    A chunk passes the NVLinks of the longest way one after the other, at the rate of one channel. It shares a
    NIC with all others that are under way, since a NIC serves them together: a stage between hosts takes as
    long as all of them need, up to the interval at which chunks follow one another where the busiest link is
    full. ``depth`` is NCCL's count of a tree's levels, where it cuts smaller chunks for small payloads; None
    where it does not.
    """

    channels: int
    local_stages: float
    network_stages: float
    local_bytes_per_s: float
    network_bytes_per_s: float
    depth: int | None = None

    def chunk_bytes(self, payload_bytes: float) -> float:
        """Bytes of a channel's chunk; all that a channel has, where that is less."""
        share, chunk = payload_bytes / self.channels, LARGEST_CHUNK_BYTES
        if self.depth is not None:
            for times, least in ((8, 128 * KIB), (4, 64 * KIB), (1, 32 * KIB)):
                while share // chunk < times * self.depth and chunk > least:
                    chunk /= 2
        return min(chunk, share)

    def through_s(self, payload_bytes: float, moving_s: float) -> float:
        """Seconds from the first byte to the last; ``moving_s`` is what the busiest link needs for all."""
        if not payload_bytes:
            return 0.0
        chunk = self.chunk_bytes(payload_bytes)
        number = payload_bytes / self.channels / chunk
        interval_s = moving_s / number
        alone_s = chunk / self.network_bytes_per_s
        stage_s = min(number * alone_s, max(interval_s, alone_s))
        filled_s = self.local_stages * chunk / self.local_bytes_per_s + self.network_stages * stage_s
        return max(moving_s, filled_s + moving_s - interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMessages:
    """What goes over the network at once, and what a receiver's fetching it costs.

    A payload is cut in ``parts`` and over channels, each of at least ``least_bytes``; a byte of it is
    ``wire`` bytes of a message. Up to ``eager_bytes`` a message is sent unasked.
    """

    parts: int
    most_channels: int
    least_bytes: float
    wire: float
    eager_bytes: float
    rendezvous_s: float

    def asking_s(self, payload_bytes: float) -> float:
        """Seconds that each message of the payload waits for its receiver."""
        channels = max(1, min(self.most_channels, math.floor(payload_bytes / self.least_bytes)))
        message = self.wire * payload_bytes / (channels * self.parts)
        return self.rendezvous_s if message > self.eager_bytes else 0.0


_DATA = {NcclProtocol.LL: 1 / 2, NcclProtocol.LL128: 120 / 128, NcclProtocol.SIMPLE: 1.0}
"""Bytes of the payload in each byte of a buffer, which holds flags too."""


def ring_chunk_bytes(protocol: NcclProtocol) -> float:
    """Payload of a ring's largest chunk: its share of a connection's buffer (NCCL_BUFFSIZE and its like)."""
    return BUFFER_BYTES[protocol] * _DATA[protocol] / RING_CHUNKS_ON_THEIR_WAY[protocol]


def ring_waits(protocol: NcclProtocol) -> float:
    """How often a ring waits for a round trip over its network, in times of how often it does with Simple."""
    return RING_CHUNKS_ON_THEIR_WAY[NcclProtocol.SIMPLE] / RING_CHUNKS_ON_THEIR_WAY[protocol]
