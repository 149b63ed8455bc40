"""Dragonfly: groups of fully joined routers, and every two groups joined directly.

A router has ``nodes_per_leaf`` hosts, a cable to every other router of its group and ``global_links``
cables to other groups, dealt evenly: group g's link to the group d further on sits at position d - 1 of
every turn through the other groups. Routing is minimal: at most one local cable, one global cable and
one local cable, over the global cables that make the way shortest.

Sources: Kim, Dally, Scott, Abts, Technology-Driven, Highly-Scalable Dragonfly Topology, ISCA 2008
(balanced shape: a = 2p = 2h; at most a h + 1 groups). Not modelled: Valiant and adaptive detours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from .links import Ids, LinkFamily, Vertex, constant
from .network import LinkCrossing, RouteFlows, hashed

if TYPE_CHECKING:
    from .inputs import Options, Ports

LOCAL, GLOBAL = range(2)


@dataclass(frozen=True, kw_only=True)
class Dragonfly:
    """``groups`` of ``routers`` with ``nodes_per_router`` hosts and ``global_links`` cables each.

    ``trunk`` cables join each two groups.
    """

    nodes: int
    links_per_host: int
    nodes_per_router: int
    routers: int
    global_links: int
    planes: int = 1

    @property
    def groups(self) -> int:
        """Groups of fully joined routers that hold all hosts; the last one may have places left."""
        return ceil(self.nodes / (self.routers * self.nodes_per_router))

    @property
    def trunk(self) -> int:
        """Cables between each two groups: the global links of a group, shared out among all others."""
        return self.routers * self.global_links // (self.groups - 1) if self.groups > 1 else 0

    @property
    def tiers(self) -> tuple[tuple[str, int], ...]:
        return (("router", self.groups * self.routers),)

    def leaf(self, node: Ids, link: Ids) -> Ids:
        return node // self.nodes_per_router + 0 * link

    def families(self, net: Ports) -> tuple[LinkFamily, ...]:
        """Local and global cables; an ordered pair of routers, or of groups, is a direction."""

        def family(kind: str, count: int) -> LinkFamily:
            return LinkFamily(
                kind="local" if kind == "local" else "global",
                count=count,
                latency_s=net.switch_latency_s,
                bytes_per_s=constant(net.link_bytes_per_s),
                ends=self._local_ends if kind == "local" else self.global_ends,
                efficiency=net.efficiency,
                cables=1 if kind == "local" else self.trunk,
            )

        between = self.groups * (self.groups - 1) * self.trunk
        return (
            family("local", self.groups * self.routers * (self.routers - 1)),
            family("global", between),
        )

    def _local_ends(self, local: int) -> tuple[Vertex, Vertex]:
        router, step = divmod(local, self.routers - 1)
        group, inside = divmod(router, self.routers)
        return ("router", router), ("router", group * self.routers + (inside + step + 1) % self.routers)

    def global_ends(self, local: int) -> tuple[Vertex, Vertex]:
        pair, turn = divmod(local, self.trunk)
        group, ahead = divmod(pair, self.groups - 1)
        position = turn * (self.groups - 1) + ahead
        other = (group + ahead + 1) % self.groups
        back = turn * (self.groups - 1) + (group - other - 1) % self.groups
        return (
            ("router", group * self.routers + position // self.global_links),
            ("router", other * self.routers + back // self.global_links),
        )

    def crossings(self, flows: RouteFlows) -> Iterator[LinkCrossing]:
        source, target = flows.source // self.routers, flows.target // self.routers
        inside = (source == target) & (flows.source != flows.target)
        near = flows.take(inside)
        if len(near.route):
            yield self._local(near, near.source, near.target, order=0)
        far = flows.take(source != target)
        if len(far.route):
            yield from self._between_groups(far)

    def _between_groups(self, flows: RouteFlows) -> Iterator[LinkCrossing]:
        """Over the trunk's cables with the fewest local cables before and behind them."""
        source, target = flows.source // self.routers, flows.target // self.routers
        turns = np.arange(self.trunk) * (self.groups - 1)
        leaves = turns + ((target - source - 1) % self.groups)[:, None]
        enters = turns + ((source - target - 1) % self.groups)[:, None]
        exits = source[:, None] * self.routers + leaves // self.global_links
        entries = target[:, None] * self.routers + enters // self.global_links
        detours = (exits != flows.source[:, None]).astype(np.int8) + (entries != flows.target[:, None])
        best = detours == detours.min(axis=1, keepdims=True)
        if flows.hashed:
            wanted = hashed(flows.key, 1) % best.sum(axis=1).astype(np.uint64)
            rank = np.cumsum(best, axis=1) - 1
            best &= rank == wanted.astype(np.int64)[:, None]
        origin, cable = np.nonzero(best)
        parts = flows.take(origin)
        weight = parts.weight / best.sum(axis=1)[origin]
        pair = source * (self.groups - 1) + (target - source - 1) % self.groups
        local = pair[origin] * self.trunk + cable
        yield LinkCrossing(order=1, family=GLOBAL, route=parts.route, local=local, weight=weight)
        exit_, entry = exits[origin, cable], entries[origin, cable]
        for order, start, end in ((0, parts.source, exit_), (2, entry, parts.target)):
            moves = start != end
            if moves.any():
                some = self._local(parts.take(moves), start[moves], end[moves], order=order)
                yield LinkCrossing(
                    order=order, family=LOCAL, route=some.route, local=some.local, weight=weight[moves]
                )

    def _local(self, flows: RouteFlows, start: Ids, end: Ids, *, order: int) -> LinkCrossing:
        step = (end - start - 1) % self.routers
        local = start * (self.routers - 1) + step
        return LinkCrossing(order=order, family=LOCAL, route=flows.route, local=local, weight=flows.weight)

    def bisection_bytes_per_s(self, net: Ports) -> float:
        """Global cables from the first half of the groups to the rest, at most what the hosts can send.

        One group: local cables between the first half of its routers and the rest.
        """
        if self.groups > 1:
            first = self.groups // 2
            cables, hosts = first * (self.groups - first) * self.trunk, first * self.routers
        else:
            hosts = self.routers // 2
            cables = hosts * (self.routers - hosts)
        sent = min(hosts * self.nodes_per_router, self.nodes // 2 or 1) * self.links_per_host
        return min(cables, sent) * net.link_bytes_per_s


def network(fabric: Options, interconnect: Ports, nodes: int) -> Dragonfly:
    """The balanced shape for the ports of the switch, unless the fabric states its own.

    Raises:
        ValueError: too few ports, or too few global cables to join every two groups.
    """
    ports, links = interconnect.switch_ports, interconnect.links_per_host
    per_router = fabric.nodes_per_leaf or max(1, ports // 4 // links)
    hosts = per_router * links
    routers = fabric.routers_per_group or 2 * hosts
    global_links = fabric.global_links or hosts
    used = hosts + routers - 1 + global_links
    if used > ports:
        raise ValueError(
            f"dragonfly: {hosts} links of hosts, {routers - 1} local and {global_links} global cables "
            f"are {used}, but a switch of {interconnect.name} has {ports} ports; take fewer "
            f"nodes_per_leaf (now {per_router}), routers_per_group or global_links"
        )
    built = Dragonfly(
        nodes=nodes,
        links_per_host=links,
        nodes_per_router=per_router,
        routers=routers,
        global_links=global_links,
    )
    if built.groups > routers * global_links + 1:
        raise ValueError(
            f"dragonfly: {nodes} hosts need {built.groups} groups, but {routers} routers with {global_links} "
            f"global cables each join at most {routers * global_links + 1}; take more "
            "routers_per_group or global_links"
        )
    return built
