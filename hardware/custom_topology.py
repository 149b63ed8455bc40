"""Routes through a custom graph, by networkx: the quickest for an empty message, and of those the shortest.

GPUs do not forward: a route runs through NICs and switches only. Equal-cost ways are those of a shortest-path
tree towards the target; an ideal spread divides evenly at every vertex, a hash picks one way at each.
Distances are cached for the targets that were asked for last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .fabric import Fabric
from .fabrics.links import LinkFamily, LinkTable, Vertex
from .fabrics.network import flow_key, hashed
from .graph_file import Edge, gpu_number, read_graph
from .routes import RoutePart, Routes, gpu_vectors, joined

if TYPE_CHECKING:
    import networkx as nx
    from numpy.typing import ArrayLike, NDArray

_REMEMBERED_TARGETS = 1024


@dataclass(frozen=True)
class CustomTopology:
    """The graph of a file. Link 2e is edge e forwards and 2e + 1 backwards (a gap for one-way edges)."""

    edges: tuple[Edge, ...]
    gpus: int
    ecmp: str
    seed: int
    _trees: dict[int, Any] = field(default_factory=dict, hash=False, compare=False)

    @cached_property
    def links(self) -> LinkTable:
        rates = np.repeat([edge.bytes_per_s for edge in self.edges], 2)

        def family(number: int, edge: Edge) -> LinkFamily:
            a, b = _as_vertex(edge.source), _as_vertex(edge.target)

            def ends(local: int) -> tuple[Vertex, Vertex] | None:
                return (a, b) if local == 0 else None if edge.one_way else (b, a)

            return LinkFamily(
                kind=edge.kind,
                count=2,
                latency_s=edge.latency_s,
                bytes_per_s=lambda local: rates[2 * number + local],
                ends=ends,
                gaps=int(edge.one_way),
            )

        return LinkTable(tuple(family(number, edge) for number, edge in enumerate(self.edges)))

    @cached_property
    def graph(self) -> nx.DiGraph[str]:
        """Edges with their link id and an integer cost: picoseconds, then hops."""
        import networkx as nx

        graph: nx.DiGraph[str] = nx.DiGraph()
        for number, edge in enumerate(self.edges):
            cost = round(edge.latency_s * 1e12) * 4096 + 1
            graph.add_edge(edge.source, edge.target, cost=cost, link=2 * number, rate=edge.bytes_per_s)
            if not edge.one_way:
                graph.add_edge(
                    edge.target, edge.source, cost=cost, link=2 * number + 1, rate=edge.bytes_per_s
                )
        return graph

    @cached_property
    def _inner(self) -> nx.DiGraph[str]:
        """Reversed, without GPUs: ways towards a target."""
        inner = self.graph.reverse()
        inner.remove_nodes_from([v for v in self.graph if gpu_number(v) is not None])
        return inner

    @cached_property
    def bisection_bytes_per_s(self) -> float:
        """Maximum flow from the first half of the GPUs to the rest; GPUs forward nothing."""
        import networkx as nx

        if self.gpus < 2:
            return 0.0
        flow: nx.DiGraph[object] = nx.DiGraph()
        for a, b, data in self.graph.edges(data=True):
            flow.add_edge(self._side(a, "first"), self._side(b, "rest"), capacity=0.0)
            flow.edges[self._side(a, "first"), self._side(b, "rest")]["capacity"] += data["rate"]
        return float(nx.maximum_flow_value(flow, ("first",), ("rest",)))

    def _side(self, vertex: str, end: str) -> object:
        gpu = gpu_number(vertex)
        if gpu is None:
            return vertex
        half = "first" if gpu < self.gpus // 2 else "rest"
        return (half,) if half == end else ("unused", vertex, end)

    def links_of(self, a: ArrayLike, b: ArrayLike, flow: ArrayLike = 0) -> Routes:
        """The links of routes, as ``RegularTopology.links_of`` gives them; one networkx search for each new
        target.

        Raises:
            ValueError: a GPU that is not there, or no way between two.
        """
        a, b, flow = gpu_vectors(a, b, flow, self.gpus)
        keys = flow_key(self.seed, a, b, flow)
        parts = [
            part
            for route, (start, end) in enumerate(zip(a.tolist(), b.tolist(), strict=True))
            if start != end
            for part in self._walk(route, f"gpu {start}", end, keys[route : route + 1])
        ]
        return joined(len(a), parts, merge=False)

    def _walk(self, route: int, start: str, end: int, key: NDArray[np.uint64]) -> list[RoutePart]:
        """Vertex after vertex along all best ways, or one of them."""
        at, parts = {start: 1.0}, []
        target = f"gpu {end}"
        for order in range(len(self.graph)):
            reached: dict[str, float] = defaultdict(float)
            for vertex, share in at.items():
                ways = self._next(vertex, start, end)
                if self.ecmp == "hashed":
                    ways = [ways[int(hashed(key, order)[0] % np.uint64(len(ways)))]]
                for way in ways:
                    link = self.graph.edges[vertex, way]["link"]
                    parts.append(_part(order, route, link, share / len(ways)))
                    reached[way] += share / len(ways)
            at = {vertex: share for vertex, share in reached.items() if vertex != target}
            if not at:
                return parts
        raise AssertionError("a shortest path visits no vertex twice")

    def _next(self, vertex: str, start: str, end: int) -> list[str]:
        """Neighbours on a best way from ``vertex`` to GPU ``end``."""
        distance = self._distances(end)
        costs = {
            way: data["cost"] + distance[way]
            for way, data in self.graph.adj[vertex].items()
            if way in distance
        }
        if not costs:
            raise ValueError(f"no way leads from {start} to gpu {end}: GPUs do not forward; add edges")
        best = min(costs.values())
        return [way for way, cost in costs.items() if cost == best]

    def _distances(self, end: int) -> dict[str, int]:
        """Cost from every vertex that is no GPU, and from the target, to the target."""
        import networkx as nx

        if end not in self._trees:
            if len(self._trees) >= _REMEMBERED_TARGETS:
                self._trees.clear()
            target = f"gpu {end}"
            inner = self._inner.copy()
            inner.add_node(target)
            inner.add_edges_from(
                (target, v, data)
                for v, _, data in self.graph.in_edges(target, data=True)
                if gpu_number(v) is None
            )
            self._trees[end] = nx.single_source_dijkstra_path_length(inner, target, weight="cost")
        tree: dict[str, int] = self._trees[end]
        return tree


def custom_topology(fabric: Fabric, gpus: int) -> CustomTopology:
    """The graph that ``fabric`` names.

    Raises:
        ValueError: the file is missing or wrong, or it has another number of GPUs.
    """
    assert fabric.file is not None  # the fabric refuses kind custom without a file
    edges = read_graph(fabric.file)
    held = len({gpu_number(v) for edge in edges for v in (edge.source, edge.target)} - {None})
    if held < gpus:
        raise ValueError(f"{fabric.file}: the graph has {held} GPUs, fewer than the {gpus} of the job")
    return CustomTopology(edges=edges, gpus=held, ecmp=fabric.ecmp, seed=fabric.seed)


def _as_vertex(vertex: str) -> Vertex:
    kind, name = vertex.split(" ")
    return (kind, int(name)) if kind == "gpu" else (vertex,)


def _part(order: int, route: int, link: int, weight: float) -> RoutePart:
    return RoutePart(order=order, route=np.array([route]), link=np.array([link]), weight=np.array([weight]))
