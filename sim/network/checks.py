"""What it costs the host to have every collective checked before it starts.

``TORCH_DISTRIBUTED_DEBUG=DETAIL`` wraps each process group: before a collective, the hosts of its group meet
in a barrier that one of them serves rank by rank, and then pass round a fingerprint of what they are about
to call, all over gloo on the CPU. The GPUs know nothing of it; kernels wait only where the host falls behind.

Knows no collective: the same for a byte and a gigabyte.

References:
    PyTorch torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, ProcessGroupGloo.cpp (monitoredBarrier).
"""

from __future__ import annotations

from .group_placement import GroupPlacement

CHECK_S_PER_RANK = {False: 0.25e-3, True: 0.32e-3}
"""Seconds for each rank of the group, by whether it spans NVLink domains.

Inside a host: two gloo processes of torch 2.13 take 0.47 to 0.52 ms longer for a collective with checks than
without. Between hosts: jobs of the Ultra-Scale Playbook's sweep that were checked measured themselves; 1 GiB
takes all-reduce, all-gather and reduce-scatter the same time there, 0.30 to 0.33 ms for each of 64 to 512
ranks.
"""

CALLS = 10
"""Calls back to back of which a job's own measurement is the mean (the same sweep's)."""


def check_s(placement: GroupPlacement) -> float:
    """Seconds for which the check of one collective of a group holds the host of each member."""
    return CHECK_S_PER_RANK[placement.nodes > 1] * placement.ranks if placement.ranks > 1 else 0.0


def mean_call_s(solo_s: float, check_s: float) -> float:
    """Seconds of a call, in the mean of CALLS: each check but the first hides behind the call before it."""
    return (check_s + (CALLS - 1) * max(check_s, solo_s) + solo_s) / CALLS if check_s else solo_s
