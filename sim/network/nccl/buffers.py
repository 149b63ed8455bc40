"""GPU memory that NCCL takes for a communicator: buffers of its connections, and those of NVLS.

A connection has one buffer a protocol and channel. Inside an NVLink domain it is the receiver's; between
hosts sender and receiver have one each. A ring's channel receives from one neighbour; trees, which pass a
node along the same chain, from the other one too. Up to 2.21 both are connected when the communicator is
made; since 2.22 (NCCL_RUNTIME_CONNECT) an algorithm is when it first runs, and rings are counted alone.
Sends and receives between hosts share buffers of 16 pieces a channel, for either direction. What the user
registers, and connections of all-to-all inside a node beyond one for each channel, are not counted.

Sources: NCCL v2.28.9 src/init.cc (computeBuffSizes), src/include/device.h (NCCL_STEPS, LL and LL128
lines), src/transport/p2p.cc (p2pRecvSetup), src/transport/net.cc (sharedNetBuffersInit, NCCL_SHARED_STEPS),
src/transport/nvls.cc (ncclNvlsBufferSetup; 256 MiB on eight H100 by its own log); release notes of 2.22.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .constants import NVLS_CHANNELS, NcclProtocol
from .paths import Communicator

MIB = 2.0**20

BUFFER_BYTES: Mapping[NcclProtocol, float] = {
    NcclProtocol.LL: 8 * 512 * 8 * 16.0,  # steps, lines of a thread block, lines a thread, bytes a line
    NcclProtocol.LL128: 8 * 640 * 120 * 8.0,
    NcclProtocol.SIMPLE: 4 * MIB,
}

SHARED_BYTES = 16 * MIB / 8
"""Bytes of buffers of a channel and direction: 16 pieces of NCCL's own 128 KiB (NCCL_P2P_NET_CHUNKSIZE)."""

P2P_CHANNELS = 16
"""Channels of sends and receives between hosts of eight GPUs, by NCCL's own log lines."""

NVLS_BYTES = 8 * 128 * 1024.0
"""Bytes of a channel, head and direction: eight steps of 128 KiB."""

UNKNOWN_CHANNELS = 24
"""Channels of a GPU whose machine NCCL's tables lack: as behind the NVSwitches of A100 and H100."""

RUNTIME_CONNECT = (2, 22)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicatorBuffers:
    """Bytes of one communicator by protocol and of NVLS; ``shared`` are those of sends between hosts."""

    name: str
    ranks: int
    channels: int
    ll: float = 0.0
    ll128: float = 0.0
    simple: float = 0.0
    shared: float = 0.0
    nvls: float = 0.0

    @property
    def total(self) -> float:
        return self.ll + self.ll128 + self.simple + self.shared + self.nvls


def collective_buffers(
    name: str, ranks: int, comm: Communicator | None, *, trees: bool
) -> CommunicatorBuffers:
    """Buffers of a group that runs collectives; ``comm`` is None for a machine that NCCL's tables lack."""
    channels = comm.channels if comm else UNKNOWN_CHANNELS
    both_ends = comm is not None and comm.local == 1
    return _connected(
        name,
        ranks,
        channels,
        connections=(1 + trees) * (1 + both_ends),
        nvls=2 * NVLS_CHANNELS * comm.nvls.channels * NVLS_BYTES if comm and comm.nvls else 0.0,
    )


def message_buffers(
    name: str, ranks: int, comm: Communicator | None, *, longer_chunks: float = 1.0
) -> CommunicatorBuffers:
    """Buffers of a group that only sends and receives; between hosts they have room for chunks that are so
    many times as long as NCCL's own (Interconnect.longer_chunks)."""
    if comm is None or comm.nodes == 1:
        return _connected(name, ranks, comm.channels if comm else UNKNOWN_CHANNELS, connections=1)
    shared = 2 * P2P_CHANNELS * SHARED_BYTES * longer_chunks
    return CommunicatorBuffers(name=name, ranks=ranks, channels=P2P_CHANNELS, shared=shared)


def _connected(
    name: str, ranks: int, channels: int, *, connections: int, nvls: float = 0.0
) -> CommunicatorBuffers:
    each = {protocol: channels * connections * size for protocol, size in BUFFER_BYTES.items()}
    return CommunicatorBuffers(
        name=name,
        ranks=ranks,
        channels=channels,
        ll=each[NcclProtocol.LL],
        ll128=each[NcclProtocol.LL128],
        simple=each[NcclProtocol.SIMPLE],
        nvls=nvls,
    )
