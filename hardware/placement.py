"""Which GPU each rank runs on.

Contiguous: rank r on GPU r, host after host. Rail-aware: groups of neighbouring ranks (a tensor-parallel
group) go down the rail: the same GPUs of every host of a leaf unit before the next GPUs of those hosts,
so that neighbouring groups are one switch apart. Scattered: whole hosts in random order, as a busy
scheduler hands them out. Explicit: a list.

Knows GPUs by number, hosts and leaf units by size. Does not know what ranks do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from .catalogue import unknown_name

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PlacementKind = Literal["contiguous", "rail-aware", "scattered", "explicit"]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """``group`` ranks stay together under rail-aware, ``seed`` is of scattered, ``gpus`` of explicit.

    Raises:
        ValueError: an unknown kind, or an option that the kind does not read.
    """

    kind: PlacementKind = "contiguous"
    group: int = 1
    seed: int = 0
    gpus: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in get_args(PlacementKind):
            raise unknown_name("placement", self.kind, get_args(PlacementKind))
        for option, owner, idle in (
            ("group", "rail-aware", 1),
            ("seed", "scattered", 0),
            ("gpus", "explicit", ()),
        ):
            if self.kind != owner and getattr(self, option) != idle:
                raise ValueError(f"placement {self.kind!r} takes no {option}; only {owner} does")
        if self.group < 1:
            raise ValueError(f"group must be at least 1, not {self.group}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")
        if self.kind == "explicit" and not self.gpus:
            raise ValueError("placement 'explicit' needs gpus: the GPU of each rank, in order of rank")


def gpus_of_ranks(
    placement: Placement, *, ranks: int, gpus: int, gpus_per_node: int, nodes_per_unit: int
) -> NDArray[np.int64]:
    """The GPU of every rank: ``ranks`` different numbers under ``gpus``, those of the whole fabric.

    ``nodes_per_unit`` hosts share leaf switches.

    Raises:
        ValueError: more ranks than GPUs, a group that does not divide a host, or a list that is too short or
            long, names a GPU twice, or names one that is not there.
    """
    import numpy as np

    if ranks > gpus:
        raise ValueError(f"{ranks} ranks do not fit on {gpus} GPUs")
    if placement.kind == "explicit":
        return _explicit(placement.gpus, ranks, gpus)
    rank = np.arange(ranks, dtype=np.int64)
    if placement.kind == "rail-aware":
        return _down_the_rail(rank, ranks, placement.group, gpus_per_node, nodes_per_unit)
    if placement.kind == "scattered":
        hosts = np.random.default_rng(placement.seed).permutation(-(-gpus // gpus_per_node))
        return np.asarray(hosts[rank // gpus_per_node] * gpus_per_node + rank % gpus_per_node)
    return rank


def _down_the_rail(
    rank: NDArray[np.int64], ranks: int, group: int, gpus_per_node: int, nodes_per_unit: int
) -> NDArray[np.int64]:
    import numpy as np

    per_node = min(gpus_per_node, ranks)
    if per_node % group:
        divisors = ", ".join(str(size) for size in range(1, per_node + 1) if per_node % size == 0)
        raise ValueError(f"group {group} must divide the {per_node} GPUs of a host; it can be {divisors}")
    per_unit = nodes_per_unit * per_node
    unit, within = rank // per_unit, rank % per_unit
    hosts = np.minimum(nodes_per_unit, ranks // per_node - unit * nodes_per_unit)
    nth, member = within // group, within % group
    node = unit * nodes_per_unit + nth % hosts
    return np.asarray(node * gpus_per_node + nth // hosts * group + member)


def _explicit(chosen: tuple[int, ...], ranks: int, gpus: int) -> NDArray[np.int64]:
    import numpy as np

    if len(chosen) != ranks:
        raise ValueError(f"placement lists {len(chosen)} GPUs for {ranks} ranks; give one for each rank")
    rank_on: dict[int, int] = {}
    for rank, gpu in enumerate(chosen):
        if not 0 <= gpu < gpus:
            raise ValueError(f"rank {rank}: there is no GPU {gpu}; they are numbered 0 to {gpus - 1}")
        if gpu in rank_on:
            raise ValueError(
                f"GPU {gpu} is given to ranks {rank_on[gpu]} and {rank}; each rank needs its own"
            )
        rank_on[gpu] = rank
    return np.asarray(chosen, dtype=np.int64)
