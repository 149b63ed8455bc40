"""Which GPUs the process groups of a layout sit on: the rank grid is one reshaped array.

Ranks are laid out in the order of ``parallelism.order`` (fastest first, as Megatron names it); a
process group is a slice of the array along its axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..network.collectives import Reach, Seat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...hardware.cluster import Cluster
    from ..scenario.models import Parallelism


def rank_grid(parallelism: Parallelism) -> NDArray[np.int64]:
    """Ranks as an array of shape (pp, dp, cp, tp); expert parallelism lives inside dp."""
    sizes = {"tp": parallelism.tp, "cp": parallelism.cp, "dp": parallelism.dp, "pp": parallelism.pp}
    order = [axis for axis in parallelism.order.split("-") if axis != "ep"]
    world = int(np.prod(list(sizes.values())))
    grid = np.arange(world).reshape([sizes[axis] for axis in reversed(order)])
    positions = [len(order) - 1 - order.index(axis) for axis in ("pp", "dp", "cp", "tp")]
    return grid.transpose(positions)


def axis_groups(parallelism: Parallelism) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Every group of every axis by its name; together those of an axis are all ranks, each once.

    ``dp`` is of those that hold the same parameters, context-parallel ranks among them.
    """
    grid = rank_grid(parallelism)
    pp, dp, cp, tp = grid.shape
    found = {
        "tp": grid.reshape(-1, tp),
        "cp": grid.transpose(0, 1, 3, 2).reshape(-1, cp),
        "dp": grid.transpose(0, 3, 1, 2).reshape(-1, dp * cp),
        "pp": grid.transpose(1, 2, 3, 0).reshape(-1, pp),
    }
    if parallelism.ep > 1:
        experts = expert_grid(parallelism)
        found["ep"] = experts.transpose(0, 1, 3, 2).reshape(-1, parallelism.ep)
    return {
        axis: tuple(tuple(int(rank) for rank in members) for members in groups)
        for axis, groups in found.items()
    }


def expert_grid(parallelism: Parallelism) -> NDArray[np.int64]:
    """Ranks as an array of shape (pp, edp, ep, etp): how experts are spread over the ranks of a stage.

    The ranks of a stage in their global order, etp fastest, then ep (Megatron-LM parallel_state.py,
    ``expert_decoder_rank_generator``: the same order with sizes of its own).
    """
    grid = rank_grid(parallelism)
    stages = np.sort(grid.reshape(grid.shape[0], -1), axis=1)
    return stages.reshape(grid.shape[0], -1, parallelism.ep, parallelism.etp)


def seat(ranks: NDArray[np.int64], cluster: Cluster) -> Seat:
    """How a group of global ranks sits over NVLink domains and units of hosts."""
    domains = len({cluster.domain_of(int(rank)) for rank in ranks})
    units = len({unit_of(int(rank), cluster) for rank in ranks})
    return Seat(ranks=len(ranks), domains=domains, units=units)


def unit_of(rank: int, cluster: Cluster) -> int:
    """Which group of hosts with leaf switches of their own the rank is in; 0 without a network."""
    return cluster.node_of(rank) // cluster.switches.nodes_per_unit if cluster.switches else 0


def reach(a: int, b: int, cluster: Cluster) -> Reach:
    """How far a message from rank ``a`` to rank ``b`` goes."""
    if cluster.same_domain(a, b):
        return "domain"
    if cluster.same_node(a, b):
        return "host"
    return "unit" if unit_of(a, cluster) == unit_of(b, cluster) else "fabric"
