"""What writing a checkpoint takes from a step: the copy to host memory, and the way to storage.

Knows bytes, links and storage. What a document gives as a duration is taken; ``from_bytes`` follows from the
size: 14 bytes a parameter (BF16 weights 2, FP32 master weights 4, Adam's moments 8 or what another optimizer
keeps: textbook bill without gradients), every rank writing its own share (Megatron-Core's fully parallel
saving), hosts at their front-end rate, the storage at its own. Weeks and single steps read it alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..fold.ranks import Degradation
from ..lowering.sizes import checkpoint_bytes
from ..scenario.faults.fields import Every
from ..scenario.faults.recovery import StorageTier
from ..scenario.machine import gpu_of, interconnect_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..scenario.faults.recovery import Checkpoint
    from ..scenario.models import Scenario

COPY_SHARE = 0.8
"""Share of PCIe's rate that a copy from a GPU to pinned host memory reaches: 55.4 of 63 GB/s were measured
towards the GPU, and some is left to others. An assumption."""

STILL = 1e9
"""Slow factor of kernels that wait for a copy: so large that they stand still, and go on after it."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes of a whole checkpoint and the rates around a host; nan where nobody knows them."""

    total_bytes: float
    nodes: int
    gpus: int
    copy_bytes_per_s: float
    network_bytes_per_s: float

    def need(self, field: str) -> float:
        """The size of a checkpoint. ValueError where only a model could tell."""
        if math.isnan(self.total_bytes):
            raise ValueError(
                f"{field}: from_bytes needs a model or checkpoint.storage.bytes; or give a duration"
            )
        return self.total_bytes

    def copy_s(self, field: str) -> float:
        """Seconds of a rank's share to its host's memory."""
        share = self.need(field) / self.gpus
        if math.isnan(self.copy_bytes_per_s):
            raise ValueError(f"{field}: from_bytes needs the GPU's PCIe rate, so a model; or give a duration")
        return share / self.copy_bytes_per_s

    def from_peers_s(self) -> float:
        """Seconds of a lost host's share from its peers."""
        field = "checkpoint.peer_memory.load"
        if math.isnan(self.network_bytes_per_s):
            raise ValueError(
                f"{field}: from_bytes needs the network between hosts, so a model; or give a duration"
            )
        return self.need(field) / self.nodes / self.network_bytes_per_s

    def storage_s(self, spec: StorageTier, field: str, bandwidth: float) -> float:
        """Seconds between hosts and storage of that ``bandwidth``."""
        total = self.need(field)
        return max(total / bandwidth, total / self.nodes / spec.per_host)

    def network_share(self, persist_s: float) -> float:
        """The share of every NIC between hosts that a write of that many seconds takes."""
        field = "checkpoint.storage.persist_slow_factor"
        share = self.need(field) / self.nodes / persist_s / self.network_bytes_per_s if persist_s else 0.0
        if math.isnan(share):
            raise ValueError(
                f"{field}: from_bytes needs the network between hosts, so a model; or give a factor"
            )
        if share >= 1.0:
            raise ValueError(
                f"{field}: writing in {persist_s:,.1f} s needs {share:.2f} times the network of a host; "
                "write for longer (persist), or give a factor"
            )
        return share


def sizes_of(scenario: Scenario | None, spec: Checkpoint | None, nodes: int, gpus: int) -> Sizes:
    """Sizes of a scenario's checkpoint; of a bare campaign what the document says."""
    total = copy = network = math.nan
    stated = spec.storage.bytes if spec and spec.storage else None
    if scenario:
        if not stated:
            total = checkpoint_bytes(scenario)
        copy = gpu_of(scenario.cluster).pcie_bytes_per_s * COPY_SHARE
        network = interconnect_of(scenario.cluster).host_bytes_per_s or math.nan
    return Sizes(
        total_bytes=stated or total,
        nodes=nodes,
        gpus=gpus,
        copy_bytes_per_s=copy,
        network_bytes_per_s=network,
    )


def given_or(given: float | str, derived: Callable[[], float]) -> float:
    """What a document gives, else what follows."""
    return derived() if isinstance(given, str) else given


@dataclass(frozen=True, kw_only=True)
class CheckpointWrite:
    """One write: steps stand still for ``stall_s``, and for ``persist_s`` after that the copy is on its way.
    What is left of each NIC towards the network, during the one and the other.
    """

    stall_s: float
    persist_s: float
    left_in_stall: float
    left_after: float

    def phases(
        self, ranks: Iterable[int], at_s: float, lasts_s: float | None
    ) -> list[tuple[float, float, Degradation]]:
        """Which effects a write has on a step, each from when to when; ``lasts_s`` replaces ``persist_s``."""
        ranks = list(ranks)
        written_s = at_s + self.stall_s
        still = Degradation(slow=dict.fromkeys(ranks, STILL), link_share=_out(ranks, self.left_in_stall))
        after = Degradation(link_share=_out(ranks, self.left_after))
        durable_s = written_s + (self.persist_s if lasts_s is None else lasts_s)
        return [(at_s, written_s, still), (written_s, durable_s, after)]


def _out(ranks: list[int], left: float) -> dict[tuple[int, str], float]:
    return {(rank, "nic.out"): left for rank in ranks} if left < 1.0 else {}


def checkpoint_write(scenario: Scenario) -> CheckpointWrite:
    """The write to storage of a scenario: as its block ``checkpoint`` has it; without one a copy to host
    memory that goes to storage beside the steps over the network of the GPUs.

    Raises:
        ValueError: rates that nobody knows, or a write that needs more than the network.
    """
    block, cluster = scenario.checkpoint, scenario.cluster
    spec = block.storage if block else None
    if spec is None:
        spec = StorageTier(every=Every(steps=1), mode="async", persist_slow_factor="from_bytes")
    nodes = cluster.nodes
    sizes = sizes_of(scenario, block, nodes, cluster.gpus)
    field = "checkpoint.storage"
    if spec.mode == "blocking":
        stall_s = given_or(spec.stall, lambda: sizes.storage_s(spec, f"{field}.stall", spec.bandwidth))
        return CheckpointWrite(stall_s=stall_s, persist_s=0.0, left_in_stall=1.0, left_after=1.0)
    stall_s = given_or(spec.snapshot_stall, lambda: sizes.copy_s(f"{field}.snapshot_stall"))
    persist_s = given_or(spec.persist, lambda: sizes.storage_s(spec, f"{field}.persist", spec.bandwidth))
    if isinstance(spec.persist_slow_factor, float) and spec.persist_slow_factor > 1.0:
        raise ValueError(
            f"{field}.persist_slow_factor: a step finds out itself what a write costs: give from_bytes, or 1 "
            "where storage has a network of its own"
        )
    over_network = spec.persist_slow_factor == "from_bytes" and nodes > 1
    return CheckpointWrite(
        stall_s=stall_s,
        persist_s=persist_s,
        left_in_stall=_beside_copy(scenario),
        left_after=1.0 - sizes.network_share(persist_s) if over_network else 1.0,
    )


def _beside_copy(scenario: Scenario) -> float:
    """What is left of a GPU's way into the network while its copy takes PCIe, which both leave by: by max-min
    half of PCIe, since the copy asks for more than that.
    """
    own = interconnect_of(scenario.cluster).host_bytes_per_s / scenario.cluster.gpus_per_node
    return min(1.0, gpu_of(scenario.cluster).pcie_bytes_per_s / 2 / own) if own else 1.0
