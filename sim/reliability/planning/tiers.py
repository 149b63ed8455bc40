"""Checkpoints in numbers: how long steps stall, when a copy is durable, how long it takes to load.

Knows bytes, links and storage. What a document gives as a duration is taken; ``from_bytes`` follows from the
size: 14 bytes a parameter (BF16 weights 2, FP32 master weights 4, Adam's moments 8 or what another optimizer
keeps: textbook bill without gradients), every rank writing its own share (Megatron-Core's fully parallel
saving), hosts at their front-end rate, the storage at its own.

While a copy is written beside steps, these take ``persist_slow_factor`` times as long: what that adds to each
interval counts as part of its stall, so that the stretch between two changes stays arithmetic. The copy is
durable when it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..campaign.plan import Tier

if TYPE_CHECKING:
    from ...scenario.faults.recovery import Checkpoint, StorageTier
    from ...scenario.models import Scenario

StepSlowdown = Callable[[float], float]

COPY_SHARE = 0.8
"""Of PCIe's rate that a copy from a GPU to pinned host memory reaches: 55.4 of 63 GB/s measured towards the
GPU; some is left to others. An assumption."""


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


def sizes_of(scenario: Scenario | None, spec: Checkpoint, nodes: int, gpus: int) -> Sizes:
    """Sizes of a scenario's checkpoint; of a bare campaign what the document says."""
    total = copy = network = math.nan
    if scenario:
        from ...lowering.sizes import checkpoint_bytes
        from ...scenario.machine import gpu_of, interconnect_of

        if not (spec.storage and spec.storage.bytes):
            total = checkpoint_bytes(scenario)
        copy = gpu_of(scenario.cluster).pcie_bytes_per_s * COPY_SHARE
        network = interconnect_of(scenario.cluster).host_bytes_per_s or math.nan
    if spec.storage and spec.storage.bytes:
        total = spec.storage.bytes
    return Sizes(
        total_bytes=total, nodes=nodes, gpus=gpus, copy_bytes_per_s=copy, network_bytes_per_s=network
    )


def tiers_of(
    spec: Checkpoint, sizes: Sizes, step_s: float, *, loads: bool, during_writes: StepSlowdown
) -> Iterator[Tier]:
    """Every tier, those in memory first. ``loads``: whether anyone asks how long loading takes; else it is 0.
    ``during_writes`` says how much slower steps are when writes take a share of every NIC.

    ValueError for an overlap without a rule, or a size that nobody
    knows.
    """
    if spec.peer_memory:
        peer = spec.peer_memory
        stall = _or(peer.stall, lambda: _copy(sizes, "checkpoint.peer_memory.stall"))
        load = _or(peer.load, lambda: _over_network(sizes) if loads else 0.0)
        yield Tier(
            name="peer_memory",
            every=peer.every.in_steps(step_s),
            stall_s=stall,
            lag_s=0.0,
            load_s=load,
            save_s=stall,
            group=peer.replicas,
            across=peer.placement == "cross_failure_domain",
        )
    if spec.local_disk:
        disk = spec.local_disk

        def own(field: str) -> float:
            return sizes.need(field) / sizes.nodes / disk.bandwidth

        stall = _or(disk.stall, lambda: own("checkpoint.local_disk.stall"))
        load = _or(disk.load, lambda: own("checkpoint.local_disk.load") if loads else 0.0)
        every = disk.every.in_steps(step_s)
        yield Tier(name="local_disk", every=every, stall_s=stall, lag_s=0.0, load_s=load, save_s=stall)
    if spec.storage:
        yield _storage(spec.storage, sizes, step_s, during_writes, loads=loads)


def _storage(
    spec: StorageTier, sizes: Sizes, step_s: float, during_writes: StepSlowdown, *, loads: bool
) -> Tier:
    every = spec.every.in_steps(step_s)

    def write(field: str) -> float:
        return _written(spec, sizes, field, spec.bandwidth)

    reading = spec.read_bandwidth
    load = _or(spec.load, lambda: _written(spec, sizes, "checkpoint.storage.load", reading) if loads else 0.0)
    if spec.mode == "blocking":
        stall = _or(spec.stall, lambda: write("checkpoint.storage.stall"))
        return Tier(name="storage", every=every, stall_s=stall, lag_s=0.0, load_s=load, save_s=stall)
    stall = _or(spec.snapshot_stall, lambda: _copy(sizes, "checkpoint.storage.snapshot_stall"))
    persist = _or(spec.persist, lambda: write("checkpoint.storage.persist"))
    tau = every * step_s
    save = stall + persist
    slowed = _slowed(spec, sizes, persist, during_writes)
    drag = persist * (1.0 - 1.0 / slowed)
    if persist > tau + stall + drag and spec.on_overlap is None:
        raise ValueError(
            f"checkpoint.storage.on_overlap: writing takes {persist:,.1f} s, but the next checkpoint "
            f"comes after "
            f"{tau + stall + drag:,.1f} s; say what happens then: skip, queue or block"
        )
    # What overlaps is followed write by write; what does not is arithmetic, with the drag in the stall.
    overlaps = spec.on_overlap is not None and persist > tau + drag
    return Tier(
        name="storage",
        every=every,
        stall_s=stall if overlaps else stall + drag,
        lag_s=persist if overlaps else persist - drag,
        load_s=load,
        save_s=save,
        slow_factor=slowed,
        overlap=spec.on_overlap or "" if overlaps else "",
    )


def _slowed(spec: StorageTier, sizes: Sizes, persist: float, during_writes: StepSlowdown) -> float:
    """How much slower steps are while a copy is being written."""
    field = "checkpoint.storage.persist_slow_factor"
    if isinstance(spec.persist_slow_factor, float):
        return spec.persist_slow_factor
    share = sizes.need(field) / sizes.nodes / persist / sizes.network_bytes_per_s if persist else 0.0
    if math.isnan(share):
        raise ValueError(f"{field}: from_bytes needs the network between hosts, so a model; or give a factor")
    if share >= 1.0:
        raise ValueError(
            f"{field}: writing in {persist:,.1f} s needs {share:.2f} times the network of a host; write for "
            "longer (persist), or give a factor"
        )
    return during_writes(share) if share else 1.0


def _or(given: float | str, derived: Callable[[], float]) -> float:
    return derived() if isinstance(given, str) else given


def _copy(sizes: Sizes, field: str) -> float:
    """A rank's share to its host's memory."""
    share = sizes.need(field) / sizes.gpus
    if math.isnan(sizes.copy_bytes_per_s):
        raise ValueError(f"{field}: from_bytes needs the GPU's PCIe rate, so a model; or give a duration")
    return share / sizes.copy_bytes_per_s


def _over_network(sizes: Sizes) -> float:
    """A lost host's share from its peers."""
    field = "checkpoint.peer_memory.load"
    if math.isnan(sizes.network_bytes_per_s):
        raise ValueError(
            f"{field}: from_bytes needs the network between hosts, so a model; or give a duration"
        )
    return sizes.need(field) / sizes.nodes / sizes.network_bytes_per_s


def _written(spec: StorageTier, sizes: Sizes, field: str, bandwidth: float) -> float:
    total = sizes.need(field)
    return max(total / bandwidth, total / sizes.nodes / spec.per_host)
