"""The ranks of a communicator, and the switches that may reduce for them, as vertices numbered from 0.

Knows which ranks share a node. Does not know what joins them, nor how fast.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Tier = Literal["local", "network"]
"""Whether a transfer stays within a node (an NVLink domain) or leaves it."""


@dataclass(frozen=True, kw_only=True)
class RankGroup:
    """``local`` ranks on each of ``nodes`` nodes, node after node; ``root`` of a broadcast or reduce.

    ``parts`` are the ranks on each node where they are not as many on all; ``local`` is then the fewest,
    which is how many channels NCCL gives all nodes.

    Vertices 0 .. n-1 are the ranks, then follow one switch for each node (its NVSwitches together),
    and last the switch that joins the nodes.

    Raises:
        ValueError: fewer than two ranks, a root that is not one of them, or parts of another group.
    """

    local: int
    nodes: int = 1
    root: int = 0
    parts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.local < 1 or self.nodes < 1:
            raise ValueError(
                f"a group needs at least 1 rank on each of at least 1 nodes, not {self.local} on {self.nodes}"
            )
        if self.parts and (len(self.parts), min(self.parts)) != (self.nodes, self.local):
            raise ValueError(f"parts {self.parts} are not {self.nodes} nodes with {self.local} ranks or more")
        if self.ranks < 2:
            raise ValueError("a group of 1 rank has nobody to talk to; use at least 2 ranks")
        if not 0 <= self.root < self.ranks:
            raise ValueError(f"root {self.root} is not in the group; ranks are 0 to {self.ranks - 1}")

    @property
    def ranks(self) -> int:
        """n."""
        return sum(self.parts) or self.local * self.nodes

    @property
    def most(self) -> int:
        """Ranks on the node that has the most of them."""
        return max(self.parts, default=self.local)

    @property
    def network_switch(self) -> int:
        """The vertex that joins the nodes (a tree of switches that reduce, taken as one)."""
        return self.ranks + self.nodes

    def node_switch(self, node: int) -> int:
        """The vertex that joins the ranks of a node."""
        return self.ranks + node

    def is_switch(self, vertex: int) -> bool:
        """Whether the vertex holds no payload of its own."""
        return vertex >= self.ranks

    def node_of(self, rank: int) -> int:
        """The node that a rank is on."""
        if self.parts:
            return bisect_right(list(accumulate(self.parts)), rank)
        return rank // self.local

    def members(self, node: int) -> range:
        """The ranks of a node."""
        if self.parts:
            first = sum(self.parts[:node])
            return range(first, first + self.parts[node])
        return range(node * self.local, (node + 1) * self.local)

    def rail(self, local_rank: int) -> Sequence[int]:
        """The ranks at the same place of every node."""
        if self.parts:
            return [self.members(node)[local_rank] for node in range(self.nodes)]
        return range(local_rank, self.ranks, self.local)

    def after_root(self, distance: int) -> int:
        """The rank ``distance`` places after the root, around the ring."""
        return (self.root + distance) % self.ranks

    def tier(self, rank: int, peer: int) -> Tier:
        """The tier on which a transfer between a rank and any vertex runs."""
        if peer == self.network_switch:
            return "network"
        if self.is_switch(peer):
            return "local"
        return "local" if self.node_of(rank) == self.node_of(peer) else "network"
