"""Buffers of communication that the host has issued and the GPU has not yet passed.

A buffer that another stream uses is given back to torch's caching allocator when that stream has passed
the point where it was freed (Tensor.record_stream). A host that runs ahead of the GPU takes new ones
meanwhile: one for each collective between where the GPU is and where the host is, and that is as far as
CUDA's queue of launches. That is 62 buffers for nanotron; published runs of it show 50 to 70.

Hosts that compare notes before every collective (network/checks.py) are slower than most of their GPUs. They
are ahead only as far as their stage waits for others, and that counts at the end of a forward, when the rank
holds most: buffers of a backward find place in what it has freed.

Published runs that were checked show 2 to 9 buffers in one and two stages, as their replays have it. In four
stages and more hosts of the later ones were some 70 ms further ahead than that, whatever the microbatch and
tp; why is not known.

Sources:
    torch: c10/cuda/CUDACachingAllocator.cpp (insert_events, process_events); ProcessGroupNCCL.cpp records
        the NCCL stream on the tensors of every collective.
    QUEUE: a launch blocks from about the 1,024th pending one on (CUDA's launch queue; NVIDIA does not
        document the number; measured in public, e.g. "CUDA kernel launch queue depth", 1,024).
    QUEUED_BY_COLLECTIVE: ProcessGroupNCCL.cpp (syncStreams: record and wait; ncclEndEvents: record; the
        caller's wait); NCCL src/enqueue.cc and strongstream.cc (ncclLaunchPrepare: the stream waits for the
        communicator's; ncclLaunchFinish: record and wait the other way; the kernel); the allocator's record.
"""

from __future__ import annotations

import math

from ...program.program import Block, Collective, Compute

QUEUE = 1024
"""Launches that may be pending."""

QUEUED_BY_COLLECTIVE = 9
"""Entries of that queue that a call takes: its kernel, and the records and waits of events around it."""


def in_flight_bytes(
    forward: Block, host_s_per_launch: float, check_s: float = 0.0, lead_s: float = math.inf
) -> float:
    """Bytes of the TP collectives of ``forward`` blocks that fit into the queue of launches.

    ``check_s`` is what a check of a collective takes of the host without launching anything; with one,
    the host was ``lead_s`` of its work ahead at most, and holds what the block at hand moves in any case: a
    buffer can be had again only when the host asks after its stream has passed.

    What an allocator has reserved is a high-water mark: it is enough that the queue fills once, behind the
    logits, a reduction or a late peer. Behind a late peer it does not fill where hosts wait for their peers.
    """
    moved = [op.work.transfer.bytes for op in forward.ops if isinstance(op.work, Collective)]
    kernels_s = sum(op.host_s for op in forward.ops if isinstance(op.work, Compute))
    if host_s_per_launch <= 0 or kernels_s <= 0:
        return 0.0
    blocks = QUEUE / (kernels_s / host_s_per_launch + QUEUED_BY_COLLECTIVE * len(moved))
    return sum(moved) * (min(blocks, max(1.0, lead_s / forward.host_s)) if check_s else blocks)
