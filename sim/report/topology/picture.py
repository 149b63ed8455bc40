"""The topology of a cluster as a picture, in SVG: what is wired to what, how fast, how busy.

Knows the page: heading, legend and which shape is drawn by which file beside this one. Nothing depends on
the size of the cluster, since long rows are folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ...figures import TIMES, count
from ...scenario.machine import cluster_of
from ..drawing import palette
from ..drawing.headings import headings
from ..drawing.svg import group, line, rect, text, text_width
from ..timeline.page import page
from .racks import domains_in_words, draw_racks, joins_hosts
from .sheet import MARGIN, WIDTH, WIRES, Sheet, gigabits, load_colour

if TYPE_CHECKING:
    from ....hardware.cluster import Cluster
    from ...result.result import Result

WORDS = {
    "nic": "host to switch",
    "uplink": "leaf to spine",
    "core": "spine to core",
    "local": "inside a group",
    "global": "between groups",
    "torus": "to neighbours",
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "cable": "cable",
}


def topology_svg(cluster: Cluster, *, title: str = "", loads: Mapping[str, float] | None = None) -> str:
    """An SVG document, 1200 pixels wide; the same bytes for the same cluster.

    ``loads`` colours links by name (``leaf 3 -> spine 1``, or ``leaf 3 -> spines 0`` for all of a pod): 0 is
    idle, 1 full; a wire shows the busiest of its cables and directions.

    Raises:
        ValueError: a load outside 0 to 1, or a cluster without a network.
    """
    for name, load in (loads or {}).items():
        if not 0 <= load <= 1:
            raise ValueError(f"load of {name!r} is {load}; loads are 0 (idle) to 1 (full)")
    sheet = Sheet(loads=loads)
    bottom = _drawn(cluster, 118.0, sheet)
    if joins_hosts(cluster):
        bottom = draw_racks(cluster, bottom + 22, sheet)
    heading = title or f"{count(cluster.gpus)} {TIMES} {cluster.gpu.name}"
    parts = [*_header(cluster, heading), *_legend(cluster, sheet)]
    parts += [group(sheet.frames), group(sheet.wires, stroke_linecap="round"), group(sheet.boxes)]
    return page(f"Topology: {heading}", parts, bottom + 16)


def _drawn(cluster: Cluster, top: float, sheet: Sheet) -> float:
    from ....hardware.custom_topology import CustomTopology
    from ....hardware.fabrics.dragonfly import Dragonfly
    from ....hardware.fabrics.tiers import Tiers
    from ....hardware.fabrics.torus import Torus
    from ....hardware.topology import RegularTopology
    from .custom import draw_custom
    from .direct import draw_dragonfly, draw_torus
    from .tree import draw_tree

    topology = cluster.topology
    if isinstance(topology, CustomTopology):
        return draw_custom(topology, top, sheet)
    assert isinstance(topology, RegularTopology)
    match topology.network:
        case Tiers() as tiers:
            sheet.trunk_end = tiers.trunk_end
            return draw_tree(topology, tiers, top, sheet)
        case Dragonfly() as fly:
            return draw_dragonfly(topology, fly, top, sheet)
        case Torus() as torus:
            return draw_torus(topology, torus, top, sheet)
    if joins_hosts(cluster):
        return top - 22
    raise ValueError("a cluster inside one NVLink domain has no switches to draw; name an interconnect")


def _header(cluster: Cluster, title: str) -> Iterator[str]:
    fabric = cluster.fabric
    way = "hashed ECMP" if fabric.ecmp == "hashed" else "even spread over equal-cost links"
    line_two = f"{fabric.kind}{', PXN' if fabric.pxn else ''} · {cluster.interconnect.name} · {way}"
    bisection = cluster.bisection_bytes_per_s
    used = f"job of {count(cluster.gpus)} GPUs · {domains_in_words(cluster)}"
    if bisection:
        used += f" · bisection {gigabits(bisection)} per direction"
    yield from headings(MARGIN, WIDTH - 2 * MARGIN, title, line_two, used)


def _legend(cluster: Cluster, sheet: Sheet) -> Iterator[str]:
    y = 96.0
    if sheet.loads is not None:
        yield text(MARGIN, y + 4, "load of the busier direction", font_size=12, fill=palette.INK)
        x = MARGIN + 172
        for step in range(40):
            yield rect(x + 4 * step, y - 6, 4.2, 12, fill=load_colour(step / 39))
        for share in (0, 50, 100):
            label = f"{share} %"
            yield text(
                x + 1.6 * share, y + 18, label, font_size=10, text_anchor="middle", fill=palette.FAINT_INK
            )
        return
    inside = {"nvlink", "pcie"} if cluster.fabric.kind != "custom" else set()
    not_drawn = inside | ({"nic"} if cluster.fabric.kind == "torus" else set())
    kinds = dict.fromkeys(family.kind for family in cluster.topology.links.families if family.used)
    x = MARGIN
    for kind in kinds:
        if kind in not_drawn:
            continue
        yield line(x, y, x + 22, y, stroke=WIRES[kind], stroke_width=2.4)
        yield text(x + 28, y + 4, WORDS[kind], font_size=12, fill=palette.INK)
        x += 28 + text_width(WORDS[kind], 12) + 24


def loaded_topology(result: Result) -> str:
    """The network of a run as SVG, its links coloured by the share of their capacity that the step took."""
    assert result.scenario is not None  # a run has one
    cluster = cluster_of(result.scenario.cluster)
    return topology_svg(cluster, title=result.scenario.title, loads=result.loads_source())
