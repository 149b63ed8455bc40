"""The picture of a custom graph: GPUs at the bottom, above them what is as many cables away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .sheet import LEFT, MARGIN, WIDTH, Point, Sheet, folded, gigabits, hidden

if TYPE_CHECKING:
    from ....hardware.custom_topology import CustomTopology

ROW = 96.0
MOST = 16
PLURALS = {"gpu": "GPUs", "nic": "NICs", "switch": "switches"}


def draw_custom(topology: CustomTopology, top: float, sheet: Sheet) -> float:
    """Rows by distance from the nearest GPU, at most MOST vertices of each."""
    rows = _rows(topology)
    at: dict[str, Point] = {}
    for depth, row in enumerate(rows):
        y = top + 20 + ROW * (len(rows) - 1 - depth)
        shown = folded(len(row), MOST)
        slot = (WIDTH - LEFT - MARGIN) / len(shown)
        kinds = sorted({PLURALS[vertex.split(" ")[0]] for vertex in row})
        sheet.tier(y + 10, " and ".join(kinds), f"{len(row):,}")
        for column, index in enumerate(shown):
            x = LEFT + slot * (column + 0.5)
            if index is None:
                sheet.words(x, y + 10, "· · ·", 12)
                sheet.words(x, y + 24, f"{hidden(len(row), shown)} more", 9)
                continue
            vertex = row[index]
            kind, name = vertex.split(" ")
            at[vertex] = (x, y)
            sheet.box(x, y, min(slot - 8, 90), 24, name if kind == "switch" else vertex, kind, vertex)
    for edge in topology.edges:
        if edge.source in at and edge.target in at:
            (x, y), (to_x, to_y) = at[edge.source], at[edge.target]
            bow = 0.0 if y != to_y else 26.0 + 0.08 * abs(to_x - x)
            start, end = (y, to_y) if y == to_y else (y + 24, to_y) if y < to_y else (y, to_y + 24)
            sheet.wire((x, start), (to_x, end), edge.kind, (edge.source, edge.target), bow=bow)
    for depth in range(1, len(rows)):
        between = {
            gigabits(edge.bytes_per_s)
            for edge in topology.edges
            if {edge.source in rows[depth], edge.target in rows[depth - 1]} == {True}
            or {edge.target in rows[depth], edge.source in rows[depth - 1]} == {True}
        }
        sheet.rate(top + 20 + ROW * (len(rows) - depth) - 28, (", ".join(sorted(between)[:2]),))
    return top + 20 + ROW * len(rows) - 44


def _rows(topology: CustomTopology) -> list[list[str]]:
    """Vertices by distance from the nearest GPU."""
    import networkx as nx

    graph = topology.graph.to_undirected(as_view=True)
    gpus = {f"gpu {number}" for number in range(topology.gpus)}
    lengths = nx.multi_source_dijkstra_path_length(graph, gpus, weight=lambda *_: 1)
    depth = {vertex: int(length) for vertex, length in lengths.items()}
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for vertex in graph:
        if vertex in depth:
            rows[depth[vertex]].append(vertex)
    rows[0].sort(key=lambda vertex: int(vertex.split(" ")[1]))
    return rows
