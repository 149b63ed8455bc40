"""A custom topology from a file: vertices gpu, nic and switch, edges with bandwidth and latency.

YAML, an edge list (a shipped example is hardware/graphs/two-hosts.yaml)::

    edges:
      - { from: gpu 0, to: nic 0, bandwidth: 64 GB/s, latency: 500 ns }
      - { from: nic 0, to: switch leaf0, bandwidth: 400 Gb/s, latency: 850 ns }
      - { from: gpu 0, to: gpu 1, bandwidth: 450 GB/s, latency: 855 ns, kind: nvlink, one_way: false }

A vertex is its kind (gpu, nic, switch) and a name; GPUs are numbered from 0. An edge is a full-duplex
cable with ``bandwidth`` in each direction, or with ``one_way: true`` only from ``from`` to ``to``.
``kind`` is one of the link kinds and only colours reports (default: cable).

GraphML: the vertices' ids (or their attribute ``name``) are written as above; edges have the attributes
``bandwidth`` and ``latency`` (text), and may have ``kind``. An undirected graph has full-duplex cables, a
directed one has one-way links.

Knows files and their mistakes: each names the file, the line (YAML) or edge (GraphML), the field, the value
and what would be valid. Does not know routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import yaml

from .catalogue import unknown_name
from .files import TABLES, check_xml, compose_yaml, read_bytes, read_text
from .link import LinkKind
from .quantities import parse_quantity
from .shown import clipped, value_text

LARGEST_LATENCY_S = 60.0
"""Largest latency of a link, the same bound as in profile files."""
_RATES = (0.125, 1e18)  # one bit a second; a million times the fastest link of 2026
_LONGEST_NUMBER = 9  # digits
_LONGEST_VALUE = 200  # characters

VERTEX_KINDS = ("gpu", "nic", "switch")
_FIELDS = ("from", "to", "bandwidth", "latency", "kind", "one_way")
_NAME = re.compile(r"(\w+) +(\S+)")


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A link from ``source`` to ``target``, vertices as text as ``gpu 0``; full duplex unless ``one_way``."""

    source: str
    target: str
    bytes_per_s: float
    latency_s: float
    kind: LinkKind = "cable"
    one_way: bool = False


def read_graph(path: str | Path) -> tuple[Edge, ...]:
    """Edges of the file, in its order; every GPU from 0 to the highest is there.

    Raises:
        ValueError: the file cannot be read; for the first mistake, with its place.
    """
    path = Path(path)
    if path.suffix in (".yaml", ".yml"):
        rows = _yaml_rows(path)
    elif path.suffix == ".graphml":
        rows = _graphml_rows(path)
    else:
        raise ValueError(f"{path}: a graph file ends in .yaml, .yml or .graphml")
    seen: dict[tuple[str, str], str] = {}
    edges = []
    for where, fields in rows:
        edge = _edge(where, fields)
        for pair in [(edge.source, edge.target)] + [(edge.target, edge.source)] * (not edge.one_way):
            if pair in seen:
                raise ValueError(
                    f"{where}: {pair[0]} -> {pair[1]} is already given ({seen[pair]}); add bandwidths up"
                )
            seen[pair] = where.rsplit(": ", 1)[-1]
        edges.append(edge)
    _check_gpus(path, edges)
    return tuple(edges)


def gpu_number(vertex: str) -> int | None:
    """The number of a GPU; None for other vertices."""
    kind, name = vertex.split(" ")
    return int(name) if kind == "gpu" else None


def _yaml_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each edge with the place where it stands."""
    root = compose_yaml(read_text(path), path, TABLES)
    entries = {_text(key): value for key, value in root.value} if isinstance(root, yaml.MappingNode) else {}
    rows = entries.get("edges")
    if set(entries) != {"edges"} or not isinstance(rows, yaml.SequenceNode) or not rows.value:
        raise ValueError(f"{path}: a graph file holds one list, edges, with one block an edge")
    for row in rows.value:
        where = f"{path}: line {row.start_mark.line + 1}"
        if not isinstance(row, yaml.MappingNode):
            raise ValueError(f"{where}: an edge is a block with {', '.join(_FIELDS[:4])}")
        fields: dict[str, Any] = {}
        for key, value in row.value:
            name = _text(key)
            if name in fields:
                raise ValueError(f"{path}: line {key.start_mark.line + 1}: {name} is given twice")
            if not isinstance(value, yaml.ScalarNode):
                line = value.start_mark.line + 1
                raise ValueError(f"{path}: line {line}: {name} must be text, as in {name}: ...")
            fields[name] = value.value
        yield where, fields


def _text(key: yaml.Node) -> str:
    """A key as text; a block or list as a key is not a field that anybody knows."""
    return clipped(str(key.value)) if isinstance(key, yaml.ScalarNode) else "a block or list as a key"


def _graphml_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import networkx as nx

    content = read_bytes(path, limit=TABLES.bytes)
    check_xml(content, path)  # before networkx builds a tree of it
    try:
        graph = nx.read_graphml(BytesIO(content))
    except Exception as error:  # networkx passes on whatever its XML reader raises
        raise ValueError(f"{path}: not GraphML: {clipped(str(error))}") from None
    names = {vertex: str(data.get("name", vertex)) for vertex, data in graph.nodes(data=True)}
    for a, b, data in graph.edges(data=True):
        where = f"{path}: edge {value_text(names[a])} to {value_text(names[b])}"
        kept = {str(key): str(value) for key, value in data.items() if key != "id"}
        if twice := {"from", "to"} & set(kept):
            raise ValueError(f"{where}: {min(twice)} is an attribute besides; the edge's own ends count")
        yield where, {"from": names[a], "to": names[b], "one_way": str(graph.is_directed()), **kept}


def _edge(where: str, fields: Mapping[str, Any]) -> Edge:
    for field in fields:
        if field not in _FIELDS:
            raise ValueError(f"{where}: {unknown_name('field of an edge', str(field), _FIELDS)}")
        if len(fields[field]) > _LONGEST_VALUE:
            raise ValueError(f"{where}: {field}: {value_text(fields[field])} is too long")
    for field in _FIELDS[:4]:
        if field not in fields:
            raise ValueError(f"{where}: {field} is missing; an edge has {', '.join(_FIELDS[:4])}")
    source, target = (_vertex(where, field, fields[field]) for field in ("from", "to"))
    if source == target:
        raise ValueError(f"{where}: from and to are both {source!r}; an edge joins two vertices")
    rate = _quantity(where, "bandwidth", fields["bandwidth"])
    if rate == 0:
        raise ValueError(f"{where}: bandwidth {fields['bandwidth']!r} is zero; leave the edge out")
    kind = str(fields.get("kind", "cable"))
    if kind not in get_args(LinkKind):
        raise ValueError(f"{where}: kind: {unknown_name('link kind', kind, get_args(LinkKind))}")
    one_way = str(fields.get("one_way", "false")).lower()
    if one_way not in ("true", "false"):
        raise ValueError(f"{where}: one_way must be true or false, not {fields['one_way']!r}")
    return Edge(
        source=source,
        target=target,
        bytes_per_s=rate,
        latency_s=_quantity(where, "latency", fields["latency"]),
        kind=next(known for known in get_args(LinkKind) if known == kind),
        one_way=one_way == "true",
    )


def _quantity(where: str, field: str, text: str) -> float:
    try:
        value = parse_quantity(str(text), "bytes_per_s" if field == "bandwidth" else "seconds")
    except ValueError as error:
        raise ValueError(f"{where}: {field}: {error}") from None
    low, high = (0.0, LARGEST_LATENCY_S) if field == "latency" else _RATES
    if value and not low <= value <= high:
        unit = "s" if field == "latency" else "B/s"
        raise ValueError(f"{where}: {field}: {text!r} is out of range: {low:g} to {high:g} {unit}")
    return value


def _vertex(where: str, field: str, text: str) -> str:
    found = _NAME.fullmatch(str(text).strip())
    example = "write its kind and its name, as in gpu 0, nic 3 or switch leaf1"
    if found is None or found[1] not in VERTEX_KINDS:
        raise ValueError(f"{where}: {field}: {text!r} is not a vertex; {example}")
    number = found[2].isascii() and found[2].isdigit() and len(found[2]) <= _LONGEST_NUMBER
    if found[1] == "gpu" and not number:
        raise ValueError(f"{where}: {field}: {text!r}: GPUs are numbered from 0, as in gpu 0")
    return f"{found[1]} {int(found[2]) if found[1] == 'gpu' else found[2]}"


def _check_gpus(path: Path, edges: list[Edge]) -> None:
    found = {gpu_number(vertex) for edge in edges for vertex in (edge.source, edge.target)} - {None}
    if not found:
        raise ValueError(f"{path}: no edge names a GPU, as in from: gpu 0")
    missing = sorted(set(range(len(found))) - found)
    if missing:
        raise ValueError(
            f"{path}: gpu {missing[0]} has no edge, but {len(found)} GPUs do; "
            f"number them 0 to {len(found) - 1}"
        )
