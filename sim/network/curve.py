"""Time over payload of one algorithm with one protocol: ``a + 2 c sqrt(a m) + m``.

``m`` is the time that the payload moves: a pipeline of latency ``a``, whose best chunk size gives c = 1.
Where every step of a ring has to wait for the network, however little it carries, those waits and ``m`` are
the least; a payload of several loops of the ring waits in each of them. Where NCCL's chunks are known, they
fill the pipeline in place of c (``chunks``); messages too large to be sent unasked wait for their receiver
(``messages``). Does not know where latencies and rates come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .chunks import NetworkMessages, TreeChunks, ring_chunk_bytes, ring_waits
from .nccl.constants import NcclProtocol


@dataclass(frozen=True, slots=True)
class Curve:
    """Time over payload of one algorithm with one protocol.

    ``nvlink`` and ``nic`` are bytes per payload byte through a GPU's NVLink and its share of the
    NICs; ``binding`` is the link that bounds the rate. ``steps`` latencies pass one after another,
    ``network_steps`` of them between nodes. ``paced_s`` is what all steps of a loop take at least, beside the
    bytes, and ``loop_bytes`` the most that one loop moves.
    ``chunks`` are those of a tree between hosts with Simple, ``messages`` those of a network that has its
    receivers fetch what is large.
    """

    algorithm: str
    protocol: str
    latency_s: float
    seconds_per_byte: float
    pipelining: float
    nvlink: float
    nic: float
    binding: str
    steps: int = 1
    network_steps: int = 0
    paced_s: float = 0.0
    loop_bytes: float = math.inf
    chunks: TreeChunks | None = None
    messages: NetworkMessages | None = None

    def transfer_s(self, payload_bytes: float) -> float:
        """Seconds that a payload takes after the latency."""
        moving_s = payload_bytes * self.seconds_per_byte
        asked_s = self.network_steps * self.messages.asking_s(payload_bytes) if self.messages else 0.0
        if self.chunks is not None:
            return asked_s + self.chunks.through_s(payload_bytes, moving_s)
        pipelined_s = moving_s + 2 * self.pipelining * math.sqrt((self.latency_s + asked_s) * moving_s)
        paced_s = self.paced_s * max(1.0, payload_bytes / self.loop_bytes)
        return asked_s + max(pipelined_s, paced_s - self.latency_s + moving_s)

    def solo_s(self, payload_bytes: float) -> float:
        return self.latency_s + self.transfer_s(payload_bytes)


@dataclass(frozen=True, kw_only=True)
class Way:
    """An algorithm before its protocol: ``latency_s`` with LL, payload rate with Simple, link weights.

    ``parts`` are the pieces of a payload that pass one after another: a ring's are as many as its ranks.
    ``paced_s`` is of a loop with Simple over ``channels`` (0: one loop moves all); a protocol of which more
    chunks are on their way at once waits less often.
    """

    algorithm: str
    latency_s: float
    rate: float
    nvlink: float
    nic: float
    binding: str
    steps: int
    network_steps: int
    paced_s: float = 0.0
    parts: int = 1
    channels: int = 0

    def curve(
        self,
        protocol: str,
        latency_s: float,
        rate: float,
        pipelining: float,
        *,
        chunks: TreeChunks | None = None,
        messages: NetworkMessages | None = None,
    ) -> Curve:
        """The curve of this algorithm with a protocol's latency, rate and pipelining."""
        return Curve(
            algorithm=self.algorithm,
            protocol=protocol,
            latency_s=latency_s,
            seconds_per_byte=1 / rate,
            pipelining=pipelining,
            nvlink=self.nvlink,
            nic=self.nic,
            binding=self.binding,
            steps=self.steps,
            network_steps=self.network_steps,
            paced_s=self.paced_s * ring_waits(NcclProtocol(protocol)),
            loop_bytes=self.parts * self.channels * ring_chunk_bytes(NcclProtocol(protocol)) or math.inf,
            chunks=chunks,
            messages=messages,
        )
