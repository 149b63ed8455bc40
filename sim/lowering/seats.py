"""Which GPUs the process groups of a layout sit on: the rank grid is one reshaped array, placed on GPUs.

Ranks are laid out in the order of ``parallelism.order`` (fastest first, as Megatron names it); a
process group is a slice of the array along its axes. The placement says which GPU each rank runs on.
Oversubscribed links are no part of a seat: what a group may take of them is decided while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...hardware.placement import gpus_of_ranks
from ..network.collectives import Reach
from ..network.seat import Seat, seat_of
from ..scenario.machine import placement_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.blocks import ClusterSpec, Parallelism

    Ids = NDArray[np.int64]

AXES = ("pp", "dp", "cp", "tp")
"""Axes of ``rank_grid``, slowest first."""

FINE_AXES = ("pp", "dp", "cp.ring", "cp.heads", "tp")
"""The same with cp in two: neighbours that exchange heads, and rings of these."""

SHARD_AXES = ("pp", "replicas", "shards", "tp")
"""Axes with dp and cp as one, in two: ranks that hold one copy of the sharded state, and copies of it."""

EXPERT_AXES = ("pp", "edp", "ep", "etp")
"""Axes of ``expert_grid``."""

EXPERT_SHARD_AXES = ("pp", "expert replicas", "expert shards", "ep", "etp")
"""The same with edp in two, as dp is."""

Groups = Mapping[str, tuple[str, ...]]

_CP = ("cp.ring", "cp.heads")
GROUPS: Groups = {
    "tp": ("tp",),
    "cp": _CP,
    "cp.ring": ("cp.ring",),
    "cp.heads": ("cp.heads",),
    "dp": ("dp", *_CP),
    "world": FINE_AXES,
}
"""Process groups by name, with the fine axes that they run along; what joins single stages is not here.

A communicator with a name from here, or from the tables below, gets its links, its place in the folding
and the check of a placement by being here.
"""

SHARD_GROUPS: Groups = {"fsdp": ("shards",), "hsdp": ("replicas",)}
EXPERT_GROUPS: Groups = {"ep": ("ep",), "etp": ("etp",), "edp": ("edp",)}
EXPERT_SHARD_GROUPS: Groups = {"efsdp": ("expert shards",), "ehsdp": ("expert replicas",)}


def rank_grid(parallelism: Parallelism) -> Ids:
    """Ranks as an array of shape (pp, dp, cp, tp); expert parallelism lives inside dp."""
    sizes = {"tp": parallelism.tp, "cp": parallelism.cp, "dp": parallelism.dp, "pp": parallelism.pp}
    order = [axis for axis in parallelism.order.split("-") if axis != "ep"]
    world = int(np.prod(list(sizes.values())))
    grid = np.arange(world).reshape([sizes[axis] for axis in reversed(order)])
    positions = [len(order) - 1 - order.index(axis) for axis in AXES]
    return grid.transpose(positions)


def expert_grid(parallelism: Parallelism) -> Ids:
    """Ranks as an array of shape (pp, edp, ep, etp): how experts are spread over the ranks of a stage.

    The ranks of a stage in their global order, etp fastest, then ep (Megatron-LM parallel_state.py,
    ``expert_decoder_rank_generator``: the same order with sizes of its own).
    """
    grid = rank_grid(parallelism)
    stages = np.sort(grid.reshape(grid.shape[0], -1), axis=1)
    return stages.reshape(grid.shape[0], -1, parallelism.ep, parallelism.etp)


def group_numbers(
    parallelism: Parallelism, *, heads: int, shards: int, across_stages: bool = False
) -> dict[str, Ids]:
    """By name and rank, the number of the rank's group.

    ``heads`` neighbours of a cp group exchange heads, ``shards`` ranks of a dp group hold one copy of the
    sharded state. ``across_stages``: a group holds the same ranks of all stages, of which its members are
    those of some, as of both copies of a stage.
    """
    more = ("pp",) if across_stages else ()
    found = {
        name: instances(grid, axes, (*more, *along))
        for grid, axes, groups in group_grids(parallelism, heads=heads, shards=shards)
        for name, along in groups.items()
    }
    if across_stages:
        found["embedding"] = instances(rank_grid(parallelism), AXES, more)
    return found


def group_grids(
    parallelism: Parallelism, *, heads: int, shards: int
) -> tuple[tuple[Ids, Sequence[str], Groups], ...]:
    """The arrays of ranks that groups are slices of, with the names of their axes and those of the groups."""
    dense = rank_grid(parallelism)
    pp, dp, cp, tp = dense.shape
    held = min(shards, dp * cp)
    experts = expert_grid(parallelism)
    copies = dp * cp // held
    return (
        (dense.reshape(pp, dp, cp // heads, heads, tp), FINE_AXES, GROUPS),
        (dense.reshape(pp, dp * cp // held, held, tp), SHARD_AXES, SHARD_GROUPS),
        (experts, EXPERT_AXES, EXPERT_GROUPS),
        (
            experts.reshape(pp, copies, -1, *experts.shape[2:]),
            EXPERT_SHARD_AXES,
            EXPERT_SHARD_GROUPS,
        ),
    )


def members(grid: Ids, axes: Sequence[str], along: Sequence[str]) -> Ids:
    """The ranks of each group, one group a row: ranks that differ in nothing but the axes ``along``."""
    apart = [number for number, axis in enumerate(axes) if axis not in along]
    joined = [number for number, axis in enumerate(axes) if axis in along]
    size = int(np.prod([grid.shape[number] for number in joined]))
    return grid.transpose([*apart, *joined]).reshape(-1, size)


def instances(grid: Ids, axes: Sequence[str], along: Sequence[str]) -> Ids:
    """By rank, the number of its group: ranks that differ in nothing but the axes ``along`` are one."""
    shape = [1 if axis in along else size for axis, size in zip(axes, grid.shape, strict=True)]
    number = np.empty(grid.size, dtype=np.int64)
    number[grid.ravel()] = np.broadcast_to(np.arange(np.prod(shape)).reshape(shape), grid.shape).ravel()
    return number


def gpus(spec: ClusterSpec, cluster: Cluster) -> Ids:
    """The GPU of every rank."""
    placement = placement_of(spec)
    if placement.kind == "contiguous":
        return np.arange(spec.gpus)
    regular = cluster.fabric.kind in ("rail-optimized", "fat-tree", "nvlink")
    return gpus_of_ranks(
        placement,
        ranks=spec.gpus,
        gpus=spec.gpus if regular else cluster.topology.gpus,
        gpus_per_node=spec.gpus_per_node,
        nodes_per_unit=cluster.switches.nodes_per_unit if cluster.switches else 1,
    )


def domains(gpu: Ids, cluster: Cluster) -> Ids:
    """The NVLink domain of each GPU (``Cluster.domain_of`` for many)."""
    size, per_node = cluster.nvlink_domain, cluster.gpus_per_node
    if size >= per_node:
        return gpu // size
    return gpu // per_node * -(-per_node // size) + gpu % per_node // size


def seat(gpu: Ids, cluster: Cluster) -> Seat:
    """How a group on these GPUs sits over NVLink domains."""
    return seat_of(np.unique(domains(gpu, cluster), return_counts=True)[1].tolist())


def reach(a: int, b: int, cluster: Cluster) -> Reach:
    """How far a message from GPU ``a`` to GPU ``b`` goes."""
    if cluster.same_domain(a, b):
        return "domain"
    return "host" if cluster.same_node(a, b) else "unit"
