"""The picture of NVLink domains that join several hosts: racks side by side, their GPUs in use or idle.

Knows hosts as rows of GPUs. Idle GPUs are hollow: those of hosts that the job leaves to others, and of the
last rack where the job ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..drawing import palette
from ..drawing.svg import rect
from .sheet import FILLS, LEFT, MARGIN, WIDTH, Sheet, folded, hidden

if TYPE_CHECKING:
    from ....hardware.cluster import Cluster
    from ....hardware.host_links import RoutedCluster

CHIP = 7.0
ROW = 10.0
MOST = 8
"""Racks that are drawn; of more, the first ones and the last."""


def joins_hosts(cluster: RoutedCluster) -> bool:
    """Whether an NVLink domain holds several hosts."""
    return cluster.node.hosts_per_domain > 1


def gpus_in_use(cluster: Cluster, domain: int) -> int:
    """GPUs of a domain that the job has; only of racks the last may hold fewer."""
    if not joins_hosts(cluster):
        return min(cluster.nvlink_domain, cluster.gpus)
    return min(cluster.nvlink_domain, cluster.gpus - domain * cluster.nvlink_domain)


def domains_in_words(cluster: Cluster) -> str:
    """How many NVLink domains (of AMD Infinity Fabric) there are, and how many GPUs of each the job uses."""
    link = cluster.gpu.link_name
    count, used, whole = cluster.domains, gpus_in_use(cluster, 0), cluster.gpus_of_whole_domain
    if count == 1:
        return f"one {link} domain, {used} of {whole} GPUs in use"
    words = f"{count:,} {link} domains of {whole} GPUs"
    if used < whole:
        words += f", {used} of each in use"
    last = gpus_in_use(cluster, count - 1)
    return words + (f", {last} of the last in use" if last < used else "")


def draw_racks(cluster: Cluster, top: float, sheet: Sheet) -> float:
    """Draw from ``top`` down; the bottom edge."""
    each, hosts = cluster.gpus_per_node, cluster.node.hosts_per_domain
    shown = folded(cluster.domains, MOST)
    slot = min((WIDTH - LEFT - MARGIN) / len(shown), 150.0)
    high = hosts * ROW + 40
    for column, domain in enumerate(shown):
        left = LEFT + slot * column
        if domain is None:
            sheet.words(left + slot / 2, top + high / 2 - 8, "· · ·", 15)
            sheet.words(left + slot / 2, top + high / 2 + 10, f"{hidden(cluster.domains, shown)} more racks")
            continue
        used = gpus_in_use(cluster, domain)
        sheet.frame(left + 4, top, slot - 8, high, f"rack {domain}: {used} of {hosts * each}")
        for gpu in range(hosts * each):
            host, place = divmod(gpu, each)
            x = left + slot / 2 + (place - (each - 1) / 2) * (CHIP + 7)
            _chip(x, top + 9 + host * ROW, cluster, domain, gpu, used, sheet)
    sheet.tier(
        top + 16,
        f"{cluster.gpu.link_name} domains",
        f"{cluster.domains:,} racks \N{MULTIPLICATION SIGN} {hosts * each} GPUs",
    )
    idle = hosts * each - gpus_in_use(cluster, 0)
    lines = [f"rows: {hosts} hosts of {each} GPUs", "hollow: idle"]
    sheet.rate(
        top + 50, lines if idle or gpus_in_use(cluster, cluster.domains - 1) < hosts * each else lines[:1]
    )
    return top + high


def _chip(x: float, y: float, cluster: Cluster, domain: int, gpu: int, used: int, sheet: Sheet) -> None:
    if gpu < used:
        number = domain * cluster.nvlink_domain + gpu
        title = f"GPU {number}, host {number // cluster.gpus_per_node}"
        sheet.boxes.append(rect(x - CHIP / 2, y, CHIP, CHIP, title, rx=1.5, fill=FILLS["gpu"]))
    else:
        outline: dict[str, float | str] = {"stroke": palette.FAINT_INK, "stroke_width": 0.9}
        sheet.boxes.append(rect(x - CHIP / 2, y, CHIP, CHIP, "idle GPU", rx=1.5, fill="none", **outline))
