"""Data-parallel replicas with empty slots: how many work, which hosts stand idle, which slot comes first.

Knows slots and replicas, no time. A replica works when each of its slots has a host. The healthy hosts of one
that does not either wait for it (TPU slices, torchft's replica groups on hosts of their own) or are regrouped
with others' (torchelastic's rendezvous, which ranks whoever is there; DLRover's node_unit).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...scenario.faults.machine import Machine


@dataclass(frozen=True, slots=True)
class Standing:
    """``live`` replicas work; the hosts in ``idle`` slots are healthy and belong to none of them."""

    live: int
    idle: frozenset[int] = frozenset()


@lru_cache(maxsize=8)
def slots_of(machine: Machine) -> tuple[tuple[int, ...], ...]:
    """The slots of every replica, replica by replica."""
    found: list[list[int]] = [[] for _ in range(machine.replicas)]
    for slot in range(machine.nodes):
        for replica in machine.replicas_of(slot):
            found[replica].append(slot)
    return tuple(map(tuple, found))


def lacking(machine: Machine, empty: Collection[int]) -> dict[int, int]:
    """Empty slots of each replica that has any."""
    found: dict[int, int] = {}
    for slot in empty:
        for replica in machine.replicas_of(slot):
            found[replica] = found.get(replica, 0) + 1
    return found


def standing(machine: Machine, empty: Collection[int], *, regroup: bool) -> Standing:
    """What is left of the job without the hosts of these slots."""
    if not empty:
        return Standing(machine.replicas)
    broken = lacking(machine, empty)
    members = slots_of(machine)
    working = {slot for r, slots in enumerate(members) if r not in broken for slot in slots}
    waiting = sorted({slot for replica in broken for slot in members[replica]} - set(empty) - working)
    live = machine.replicas - len(broken)
    if not regroup:
        return Standing(live, frozenset(waiting))
    live = regrouped(machine, len(empty))
    used = math.ceil(live * machine.gpus / machine.replicas / machine.gpus_per_node - 1e-9)
    left_over = machine.nodes - len(empty) - used
    return Standing(live, frozenset(waiting[len(waiting) - left_over :] if left_over > 0 else ()))


def regrouped(machine: Machine, empty: int) -> int:
    """The whole replicas that the remaining hosts make together."""
    gpus = machine.gpus - empty * machine.gpus_per_node
    return max(0, min(machine.replicas, math.floor(gpus * machine.replicas / machine.gpus + 1e-9)))


def next_slot(machine: Machine, empty: Sequence[int]) -> int:
    """The slot that the next host takes: of the replica that lacks the fewest, of these the first lost."""
    broken = lacking(machine, empty)
    return min(empty, key=lambda slot: min(broken[replica] for replica in machine.replicas_of(slot)))


def grows(machine: Machine, empty: Sequence[int], hosts: int, live: int, *, regroup: bool) -> bool:
    """Whether so many hosts more make at least one replica more than the ``live`` ones work."""
    if not hosts or not empty:
        return False
    if regroup:
        return regrouped(machine, max(0, len(empty) - hosts)) > live
    return min(lacking(machine, empty).values()) <= hosts
