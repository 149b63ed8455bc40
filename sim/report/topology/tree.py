"""The picture of leaf, spine and core switches with their hosts.

Knows ``Tiers``: pods side by side, in each its spines over its leaves over its hosts; planes side by side in
every pod. Whatever is too many is folded to the first ones and the last, with the count between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .racks import joins_hosts
from .sheet import LEFT, MARGIN, WIDTH, Point, Sheet, folded, gigabits, hidden

if TYPE_CHECKING:
    from ....hardware.fabrics.tiers import Tiers
    from ....hardware.topology import RegularTopology

SLOT = 34.0  # the narrowest leaf that can be labelled
GAP = 18.0
CHIP = 7.0
_SHORTER = ((4, 4, 8), (3, 3, 8), (2, 3, 8), (2, 2, 8), (2, 2, 4), (2, 2, 3), (2, 1, 3), (2, 1, 2))
"""Most pods, units and leaves of a unit, from generous to frugal."""


@dataclass(frozen=True, kw_only=True)
class _Pod:
    """A drawn pod: its number, its left edge and width, and the drawn units with theirs."""

    number: int
    left: float
    width: float
    units: tuple[tuple[int | None, float, float], ...]


def draw_tree(topology: RegularTopology, tiers: Tiers, top: float, sheet: Sheet) -> float:
    """Draw from ``top`` down; the bottom edge."""
    core_y, spine_y = top + 8, top + (98 if tiers.cores else 34)
    leaf_y = spine_y + (118 if tiers.spines else 26)
    host_y = leaf_y + 104
    shown = _layout(tiers)
    leaves: dict[int, Point] = {}
    spines: dict[int, Point] = {}
    for pod in shown:
        if isinstance(pod, _Pod):
            name = f"pod {pod.number}" if tiers.pods > 1 else ""
            sheet.frame(pod.left, spine_y - 14, pod.width, host_y + 74 - spine_y, name)
            drawn = _leaves(tiers, pod, leaf_y, sheet)
            leaves |= drawn
            _hosts(topology, tiers, pod, host_y, drawn, sheet)
            over = _spines(tiers, pod, spine_y, sheet)
            _uplinks(tiers, drawn, over, sheet)
            spines |= over
        else:
            count = hidden(tiers.pods, [one.number for one in shown if isinstance(one, _Pod)])
            sheet.words(pod, leaf_y + 4, "· · ·", 15)
            sheet.words(pod, leaf_y + 22, f"{count} more pods")
    if tiers.cores:
        _cores(tiers, core_y, spines, sheet)
    _margin(topology, tiers, (core_y, spine_y, leaf_y, host_y), sheet)
    return host_y + 60


def _layout(tiers: Tiers) -> list[_Pod | float]:
    """Drawn pods, and the middle of the gap where some are left out."""
    units = -(-tiers.leaves_per_pod // tiers.leaves_per_unit)
    units = min(units, tiers.leaves // tiers.leaves_per_unit)
    for most_pods, most_units, most_leaves in _SHORTER:
        pods = folded(tiers.pods, most_pods)
        slots = _slots(units, tiers, most_units, most_leaves)
        columns = sum(slots) * sum(pod is not None for pod in pods) + (2 if None in pods else 0)
        width = (WIDTH - LEFT - MARGIN - GAP * (len(pods) - 1)) / columns
        if width >= SLOT:
            break
    placed: list[_Pod | float] = []
    x = LEFT
    for pod in pods:
        if pod is None:
            placed.append(x + width)
            x += 2 * width + GAP
            continue
        here = min(units, -(-(tiers.leaves - pod * tiers.leaves_per_pod) // tiers.leaves_per_unit))
        spans = []
        left = x
        for unit in folded(here, most_units):
            span = (2.0 if unit is None else _slots(1, tiers, 1, most_leaves)[0]) * width
            spans.append((unit, left, span))
            left += span
        placed.append(_Pod(number=pod, left=x, width=sum(slots) * width, units=tuple(spans)))
        x += sum(slots) * width + GAP
    return placed


def _slots(units: int, tiers: Tiers, most_units: int, most_leaves: int) -> list[float]:
    """Columns of each drawn unit of a pod; an ellipsis takes two."""
    leaves = len(folded(tiers.leaves_per_unit, most_leaves)) * tiers.planes
    one = max(leaves + 0.5, 3.0)
    return [2.0 if unit is None else one for unit in folded(units, most_units)]


def _leaves(tiers: Tiers, pod: _Pod, y: float, sheet: Sheet) -> dict[int, Point]:
    """Boxes of the pod's drawn leaves; their middles by number."""
    drawn: dict[int, Point] = {}
    total = -(-tiers.leaves // tiers.leaves_per_unit)
    units_per_pod = tiers.leaves_per_pod // tiers.leaves_per_unit
    in_pod = min(units_per_pod, total - pod.number * units_per_pod)
    for unit, left, span in pod.units:
        if unit is None:
            shown = [one[0] for one in pod.units]
            sheet.words(left + span / 2, y + 8, "· · ·", 14)
            more = hidden(in_pod, shown)
            one, many = ("unit", "units") if tiers.leaves_per_unit > 1 else ("leaf", "leaves")
            sheet.words(left + span / 2, y + 24, f"{more} more", 10)
            sheet.words(left + span / 2, y + 36, one if more == 1 else many, 10)
            continue
        for plane in range(tiers.planes):
            width = span / tiers.planes
            fits = int((width - 8) / SLOT)
            most = tiers.leaves_per_unit if fits >= tiers.leaves_per_unit else max(2, fits - 1)
            ranks = folded(tiers.leaves_per_unit, most)
            slot = (width - 8) / len(ranks)
            for column, rank in enumerate(ranks):
                x = left + plane * width + 4 + slot * (column + 0.5)
                if rank is None:
                    sheet.words(x, y + 10, "· · ·", 11)
                    sheet.words(x, y + 24, f"{hidden(tiers.leaves_per_unit, ranks)} more", 9)
                    continue
                first = (pod.number * units_per_pod + unit) * tiers.leaves_per_unit
                leaf = plane * tiers.leaves + first + rank
                kind = "leaf 1" if plane else "leaf"
                sheet.box(x, y, min(slot - 4, 64), 22, str(leaf), kind, f"leaf {leaf}")
                drawn[leaf] = (x, y)
    return drawn


def _hosts(
    topology: RegularTopology, tiers: Tiers, pod: _Pod, y: float, leaves: dict[int, Point], sheet: Sheet
) -> None:
    """Hosts of each drawn unit, with a wire from every drawn rail's GPU to its leaf."""
    units_per_pod = tiers.leaves_per_pod // tiers.leaves_per_unit
    cluster = topology.cluster
    per_node, links = cluster.gpus_per_node, tiers.links_per_host
    for unit, left, span in pod.units:
        if unit is None:
            continue
        first = (pod.number * units_per_pod + unit) * tiers.nodes_per_unit
        hosts = min(tiers.nodes_per_unit, tiers.nodes - first)
        most = max(1, min(4, int(span / 92)))
        shown = folded(hosts, most)
        slot = span / len(shown)
        for column, host in enumerate(shown):
            x = left + slot * (column + 0.5)
            if host is None:
                sheet.words(x, y + 16, "· · ·", 12)
                sheet.words(x, y + 30, f"{hidden(hosts, shown)} more", 9)
                continue
            width = min(slot - 8, 118.0)
            sheet.box(x, y, width, 36, "", "host", f"host {first + host}: {per_node} GPUs")
            size, racked = min(10.0, width / 5), joins_hosts(cluster)
            sheet.words(x, y + (22 if racked else 30), f"host {first + host}", size)
            if racked:
                sheet.words(x, y + 33, f"rack {(first + host) * per_node // cluster.nvlink_domain}", size)
            step = (width - 8) / per_node
            for gpu in range(per_node):
                middle = x - width / 2 + 4 + step * (gpu + 0.5)
                sheet.box(middle, y + 5, min(step - 1.5, CHIP), CHIP, "", "gpu")
            for link in range(links):
                chip = x - width / 2 + 4 + step * (link * per_node // links + 0.5)
                unit_leaf = int(tiers.leaf(np.array(first), np.array(link)))
                for plane in range(tiers.planes):
                    leaf = plane * tiers.leaves + unit_leaf
                    if leaf in leaves:
                        ends = (f"nic {first + host}.{link}", f"leaf {leaf}")
                        sheet.wire((chip, y), (leaves[leaf][0], leaves[leaf][1] + 22), "nic", ends)


def _spines(tiers: Tiers, pod: _Pod, y: float, sheet: Sheet) -> dict[int, Point]:
    """Boxes of the pod's drawn spines; their middles by number."""
    if not tiers.spines:
        return {}
    drawn: dict[int, Point] = {}
    width = (pod.width - 16) / tiers.planes
    for plane in range(tiers.planes):
        most = max(2, min(8, int(width / 52) - 1))
        shown = folded(tiers.spines_per_pod, most)
        slot = min(width / len(shown), 90.0)
        left = pod.left + 8 + plane * width + (width - slot * len(shown)) / 2
        for column, spine in enumerate(shown):
            x = left + slot * (column + 0.5)
            if spine is None:
                sheet.words(x, y + 10, "· · ·", 12)
                sheet.words(x, y + 24, f"{hidden(tiers.spines_per_pod, shown)} more", 9)
                continue
            number = plane * tiers.spines + pod.number * tiers.spines_per_pod + spine
            kind = "spine 1" if plane else "spine"
            sheet.box(x, y, min(slot - 6, 70), 22, str(number), kind, f"spine {number}")
            drawn[number] = (x, y)
    return drawn


def _uplinks(tiers: Tiers, leaves: dict[int, Point], spines: dict[int, Point], sheet: Sheet) -> None:
    for leaf, (x, y) in leaves.items():
        for spine, (to_x, to_y) in spines.items():
            if leaf // tiers.leaves == spine // tiers.spines:
                sheet.wire((x, y), (to_x, to_y + 22), "uplink", (f"leaf {leaf}", f"spine {spine}"))


def _cores(tiers: Tiers, y: float, spines: dict[int, Point], sheet: Sheet) -> None:
    """Core switches, and wires to the drawn spines of their groups."""
    shown = folded(tiers.cores * tiers.planes, 10)
    # The cores of the drawn spines' groups say more than the first ones by number.
    groups = sorted({spine % tiers.spines_per_pod for spine in spines})
    ends = (0, tiers.cores_per_group - 1)
    wanted = sorted({group * tiers.cores_per_group + k for group in groups for k in ends})
    if None in shown and len(wanted) <= 16:
        shown = [*wanted]
    room = WIDTH - LEFT - MARGIN - 86
    width = min(84.0, room / len(shown))
    left = LEFT + (room - width * len(shown)) / 2
    for column, core in enumerate(shown):
        x = left + width * (column + 0.5)
        if core is None:
            sheet.words(x, y + 10, "· · ·", 12)
            continue
        sheet.box(x, y, min(width - 6, 70), 22, str(core), "core", f"core {core}")
        for spine, (to_x, to_y) in spines.items():
            if spine % tiers.spines_per_pod == core % tiers.cores // tiers.cores_per_group:
                sheet.wire((to_x, to_y), (x, y + 22), "core", (f"spine {spine}", f"core {core}"))
    more = hidden(tiers.cores * tiers.planes, shown)
    if more:
        sheet.words(left + width * len(shown) + 8, y + 15, f"and {more} more", 11, "start")


def _margin(
    topology: RegularTopology, tiers: Tiers, rows: tuple[float, float, float, float], sheet: Sheet
) -> None:
    core_y, spine_y, leaf_y, host_y = rows
    net, cluster = topology.cluster.interconnect, topology.cluster
    port = net.link_bytes_per_s / tiers.planes
    counts = dict(tiers.tiers)
    planes = f" in {tiers.planes} planes" if tiers.planes > 1 else ""
    families = {family.kind: family for family in topology.links.families if family.used}
    for kind, name, y, below in (("core", "core", core_y, spine_y), ("spine", "uplink", spine_y, leaf_y)):
        if kind not in counts:
            continue
        sheet.tier(y + 10, f"{kind} switches", f"{counts[kind]:,}{planes}")
        family = families["core" if kind == "core" else "uplink"]
        cables = f" in {family.cables} cables" if family.cables > 1 else ""
        rate = float(family.bytes_per_s(np.zeros(1, dtype=np.int64))[0])
        above = "each spine and core" if name == "core" else "each leaf and spine"
        sheet.rate((y + below) / 2 + 14, (f"{gigabits(rate * family.cables)}{cables}", above))
    sheet.tier(leaf_y + 10, "leaf switches", f"{counts['leaf']:,}{planes}")
    per_link = f"{tiers.planes} \N{MULTIPLICATION SIGN} " if tiers.planes > 1 else ""
    sheet.rate(
        (leaf_y + host_y) / 2 + 8,
        (f"{per_link}{gigabits(port)} per NIC", f"{net.links_per_host} NICs per host"),
    )
    sheet.tier(host_y + 12, "hosts", f"{tiers.nodes:,} \N{MULTIPLICATION SIGN} {cluster.gpus_per_node} GPUs")
