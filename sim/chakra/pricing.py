"""What a node takes on a given cluster: kernels by FLOPs and bytes, collectives and messages by its network.

Knows which GPU a rank runs on (the placement of the scenario, else rank by rank) and NCCL's costs. Does not
know what waits for what.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from ..network.collectives import Distance, collective_transfer, message_transfer
from ..network.transfer import Transfer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.models import Scenario

    Ids = NDArray[np.int64]

Rule = Literal["duration", "flops"]
"""What a kernel takes: what the trace says, or what its FLOPs and bytes cost."""

_AS = {"gather": "reduce", "scatter": "broadcast", "reduce_scatter_block": "reduce_scatter"}
"""Collectives without a cost of their own, as what moves as many bytes through the busiest rank."""
_BARRIER_BYTES = 4.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Costs on the cluster of a scenario, whose precision sets the peak of kernels."""

    scenario: Scenario

    @cached_property
    def cluster(self) -> Cluster:
        from ..scenario.machine import cluster_of

        return cluster_of(self.scenario.cluster)

    @cached_property
    def links(self) -> dict[str, float]:
        """Bytes per second of each rank's links."""
        from ..lowering.lower import links_of

        return links_of(self.cluster)

    @cached_property
    def _gpus(self) -> Ids:
        from ..lowering.placed_groups import gpus

        return gpus(self.scenario.cluster, self.cluster)

    def kernel_s(self, flops: float, size: float) -> float:
        """A kernel at the GPU's peaks: whichever of its FLOPs and its bytes takes longer."""
        gpu = self.cluster.gpu
        peaks = gpu.peak_flops
        peak = peaks.get(self.scenario.training.precision) or max(peaks.values())
        return max(flops / peak, size / gpu.hbm_bytes_per_s)

    def collective(self, kind: str, handed_bytes: float, ranks: Sequence[int]) -> Transfer:
        """A collective of which each rank hands in so many bytes.

        ValueError for a rank that the cluster does not have.
        """
        from ..lowering.placed_groups import placement_on

        self.check(ranks)
        if kind == "barrier":
            kind, handed_bytes = "all_reduce", _BARRIER_BYTES
        payload = handed_bytes * (len(ranks) if kind == "all_gather" else 1)
        placement = placement_on(self._gpus[list(ranks)], self.cluster)
        return collective_transfer(_AS.get(kind, kind), payload, placement, self.cluster)

    def message(self, size: float, source: int, target: int) -> Transfer:
        """A message between two ranks."""
        self.check((source, target))
        return message_transfer(size, self._distance(source, target), self.cluster)

    def _distance(self, source: int, target: int) -> Distance:
        here, there = int(self._gpus[source]), int(self._gpus[target])
        if self.cluster.same_domain(here, there):
            return "domain"
        return "host" if self.cluster.same_node(here, there) else "unit"

    def check(self, ranks: Sequence[int]) -> None:
        """ValueError for a rank that the cluster does not have."""
        most = self.scenario.cluster.gpus
        if max(ranks) >= most:
            raise ValueError(f"rank {max(ranks)} is traced, and the cluster has {most:,} GPUs")
