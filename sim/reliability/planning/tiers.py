"""Checkpoints in numbers: how long steps stall, when a copy is durable, how long it takes to load.

Knows the blocks of a campaign; bytes and rates are those of ``degradation/checkpoint_write.py``.

While a copy is written beside steps, these take ``persist_slow_factor`` times as long: what that adds to each
interval counts as part of its stall, so that the stretch between two changes stays arithmetic. The copy is
durable when it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ...degradation.checkpoint_write import given_or
from ..campaign.plan import Tier

if TYPE_CHECKING:
    from ...degradation.checkpoint_write import Sizes
    from ...scenario.faults.recovery import Checkpoint, StorageTier

StepSlowdown = Callable[[float], float]


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
        stall = given_or(peer.stall, lambda: sizes.copy_s("checkpoint.peer_memory.stall"))
        load = given_or(peer.load, lambda: sizes.from_peers_s() if loads else 0.0)
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

        stall = given_or(disk.stall, lambda: own("checkpoint.local_disk.stall"))
        load = given_or(disk.load, lambda: own("checkpoint.local_disk.load") if loads else 0.0)
        every = disk.every.in_steps(step_s)
        yield Tier(name="local_disk", every=every, stall_s=stall, lag_s=0.0, load_s=load, save_s=stall)
    if spec.storage:
        yield _storage(spec.storage, sizes, step_s, during_writes, loads=loads)


def _storage(
    spec: StorageTier, sizes: Sizes, step_s: float, during_writes: StepSlowdown, *, loads: bool
) -> Tier:
    every = spec.every.in_steps(step_s)

    def write(field: str) -> float:
        return sizes.storage_s(spec, field, spec.bandwidth)

    reading = spec.read_bandwidth
    load = given_or(
        spec.load, lambda: sizes.storage_s(spec, "checkpoint.storage.load", reading) if loads else 0.0
    )
    if spec.mode == "blocking":
        stall = given_or(spec.stall, lambda: write("checkpoint.storage.stall"))
        return Tier(name="storage", every=every, stall_s=stall, lag_s=0.0, load_s=load, save_s=stall)
    stall = given_or(spec.snapshot_stall, lambda: sizes.copy_s("checkpoint.storage.snapshot_stall"))
    persist = given_or(spec.persist, lambda: write("checkpoint.storage.persist"))
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
    if isinstance(spec.persist_slow_factor, float):
        return spec.persist_slow_factor
    share = sizes.network_share(persist)
    return during_writes(share) if share else 1.0
