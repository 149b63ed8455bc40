"""What a cluster is made of, as a document and as tables: hosts, tiers, links, bandwidths, sources.

Knows hardware's figures; computes sums and ratios of capacities only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....hardware.cited import marks_explained
from ...figures import TIMES, count, seconds
from .racks import gpus_in_use, joins_hosts
from .sheet import gigabits

if TYPE_CHECKING:
    from rich.console import Console

    from ....hardware.cluster import Cluster
    from ....hardware.fabrics.links import LinkFamily
    from ....hardware.placement import Placement

_WORDS = {
    "nvlink": "NVLink",
    "pcie": "PCIe",
    "nic": "NIC to switch",
    "uplink": "leaf to spine",
    "core": "spine to core",
    "local": "inside a group",
    "global": "between groups",
    "torus": "to a neighbour",
    "cable": "cable",
}


def cluster_document(cluster: Cluster, placement: Placement) -> dict[str, Any]:
    """Everything that ``stepsim cluster`` shows, with SI units in the names of fields."""
    from ....hardware.published import PUBLISHED

    fabric, net = cluster.fabric, cluster.interconnect
    published = PUBLISHED.records().get(fabric.kind)
    return {
        "gpu": cluster.gpu.name,
        "link_name": cluster.gpu.link_name,
        "gpus": cluster.gpus,
        "hosts": cluster.nodes,
        "gpus_per_node": cluster.gpus_per_node,
        "host": cluster.node.name,
        "nvlink_domain": cluster.nvlink_domain,
        "nvlink_domains": _domains(cluster),
        "fabric": fabric.kind,
        "fabric_gpus": cluster.topology.gpus,
        "interconnect": net.name,
        "ecmp": fabric.ecmp,
        "pxn": fabric.pxn,
        "placement": placement.kind,
        "tiers": dict(_tiers(cluster)),
        "links": _links(cluster),
        "nic_bytes_per_s_per_gpu": cluster.nic_bytes_per_s_per_gpu,
        "bisection_bytes_per_s": cluster.bisection_bytes_per_s,
        "oversubscription": _ratios(cluster),
        "facts": dict(published.facts) if published else {},
        "sources": _sources(cluster, published.sources if published else ()),
    }


def _domains(cluster: Cluster) -> dict[str, int | bool]:
    """NVLink domains: how many, the GPUs of each and those in use; whether each is a rack."""
    return {
        "count": cluster.domains,
        "gpus": cluster.gpus_of_whole_domain,
        "gpus_in_use": gpus_in_use(cluster, 0),
        "gpus_in_use_of_last": gpus_in_use(cluster, cluster.domains - 1),
        "racks": joins_hosts(cluster),
    }


def _tiers(cluster: Cluster) -> tuple[tuple[str, int], ...]:
    from ....hardware.topology import RegularTopology

    topology = cluster.topology
    if isinstance(topology, RegularTopology):
        return topology.network.tiers if topology.network else ()
    switches = {v for e in topology.edges for v in (e.source, e.target) if v.startswith("switch")}  # type: ignore[attr-defined]
    return (("switch", len(switches)),)


def _links(cluster: Cluster) -> list[dict[str, Any]]:
    """Links of each kind, both directions counted: number, line rate and latency of one."""
    import numpy as np

    found: dict[tuple[str, float, float], int] = {}
    for family in cluster.topology.links.families:
        if family.used:
            key = (family.kind, _rate(family, np.zeros(1, dtype=np.int64)), family.latency_s)
            found[key] = found.get(key, 0) + family.used
    return [
        {"kind": kind, "directed_links": number, "bytes_per_s": rate, "latency_s": latency}
        for (kind, rate, latency), number in found.items()
    ]


def _rate(family: LinkFamily, first: Any) -> float:
    return float(family.bytes_per_s(first)[0])


def _ratios(cluster: Cluster) -> dict[str, float]:
    """Capacity below each tier of switches over the capacity above it; a last unit may have less of both."""
    import numpy as np

    sums: dict[str, float] = {}
    for family in cluster.topology.links.families if cluster.fabric.kind != "custom" else ():
        if family.kind in ("nic", "uplink", "core"):
            capacity = float(family.bytes_per_s(np.arange(family.count)).sum())
            sums[family.kind] = sums.get(family.kind, 0.0) + capacity
    return {
        tier: sums[below] / sums[above]
        for tier, below, above in (("leaf", "nic", "uplink"), ("spine", "uplink", "core"))
        if below in sums and above in sums
    }


def _sources(cluster: Cluster, published: tuple[str, ...]) -> list[str]:
    net = cluster.interconnect
    host = f"{cluster.node.name}: {cluster.node.source}"
    return [*published, host, *(f"{net.name}, {what}: {where}" for what, where in net.sources.items())]


def print_cluster(cluster: Cluster, placement: Placement, console: Console) -> None:
    """The document as tables."""
    from rich.table import Table
    from rich.text import Text

    facts = cluster_document(cluster, placement)
    console.print(Text(f"{count(cluster.gpus)} {TIMES} {cluster.gpu.name}, {facts['fabric']}", style="bold"))
    grid = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in _rows(facts):
        grid.add_row(name, value)
    console.print(grid)
    links = Table(box=None, padding=(0, 2, 0, 0), header_style="", title="Links", title_justify="left")
    for column in ("kind", "links", "rate each", "latency"):
        links.add_column(column, justify="left" if column == "kind" else "right")
    for link in facts["links"]:
        links.add_row(
            facts["link_name"] if link["kind"] == "nvlink" else _WORDS[link["kind"]],
            f"{link['directed_links']:,}",
            gigabits(link["bytes_per_s"]),
            seconds(link["latency_s"]),
        )
    console.print()
    console.print(links)
    console.print("links are counted in each direction; rates are line rates per direction")
    for title, lines in (
        ("As printed", [f"{k}: {v}" for k, v in facts["facts"].items()]),
        ("Sources", [*facts["sources"], *marks_explained(facts["sources"])]),
    ):
        if lines:
            console.print()
            console.print(Text(title, style="bold"))
            for words in lines:
                console.print(Text(f"  {words}"))


def _domain_words(domains: dict[str, Any]) -> str:
    """Words for the NVLink domains, such as ``4 racks × 72 GPUs, 64 of each in use``."""
    count, gpus = domains["count"], domains["gpus"]
    what = " racks" if domains["racks"] else ""
    words = f"{count:,}{what} {TIMES} {gpus} GPUs" if count > 1 else f"1{what[:-1]} {TIMES} {gpus} GPUs"
    used, last = domains["gpus_in_use"], domains["gpus_in_use_of_last"]
    if used < gpus:
        words += f", {used}{' of each' * (count > 1)} in use"
    elif last < used:
        words += ", all in use"
    return words + (f", {last} of the last" if last < used else "")


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    hosts = f"{facts['hosts']:,} {TIMES} {facts['gpus_per_node']} GPUs ({facts['host']})"
    rows = [("hosts", hosts), (f"{facts['link_name']} domains", _domain_words(facts["nvlink_domains"]))]
    if facts["fabric_gpus"] != facts["gpus"]:
        rows.append(
            ("whole fabric", f"{facts['fabric_gpus']:,} GPUs, of which the job has {facts['gpus']:,}")
        )
    rows += [
        (f"{name} switches" if name != "switch" else "switches", f"{n:,}")
        for name, n in facts["tiers"].items()
    ]
    if facts["tiers"]:
        way = "hashed ECMP" if facts["ecmp"] == "hashed" else "even spread over equal-cost links"
        rows += [
            ("interconnect", facts["interconnect"]),
            ("routing", way + (", PXN" if facts["pxn"] else "")),
            ("network per GPU", f"{gigabits(facts['nic_bytes_per_s_per_gpu'])} usable"),
            ("bisection", f"{gigabits(facts['bisection_bytes_per_s'])} per direction"),
        ]
    rows += [
        (f"{tier} oversubscription", f"{ratio:.4g} : 1") for tier, ratio in facts["oversubscription"].items()
    ]
    return [*rows, ("placement", facts["placement"])]
