"""Small topologies of every regular kind, for laws."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import Fabric
from stepsim.hardware.gpus import get_gpu
from stepsim.hardware.interconnect import get_interconnect
from stepsim.hardware.topology import RegularTopology, topology_of


def regular(
    kind: str,
    *,
    gpus: int = 32,
    gpus_per_node: int = 8,
    gpu: str = "H100-SXM5-80GB",
    interconnect: str = "ib-ndr400-x8",
    **options: Any,
) -> RegularTopology:
    cluster = Cluster(
        gpu=get_gpu(gpu),
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        interconnect=get_interconnect(interconnect),
        fabric=Fabric(kind=kind, **options),
    )
    topology = topology_of(cluster)
    assert isinstance(topology, RegularTopology)
    return topology


def network_of(topology: RegularTopology) -> Any:
    """The network, of the kind that the test asked for."""
    assert topology.network is not None
    return topology.network


KINDS = {
    "rail-optimized": partial(regular, "rail-optimized", nodes_per_leaf=2),
    "fat-tree": partial(regular, "fat-tree", nodes_per_leaf=1),
    "dragonfly": partial(regular, "dragonfly", nodes_per_leaf=1),
    "torus": partial(regular, "torus"),
}


def cluster_of(topology: RegularTopology) -> Cluster:
    """The cluster that the test made it of."""
    assert isinstance(topology.cluster, Cluster)
    return topology.cluster


def as_cluster(topology: RegularTopology, **options: Any) -> Cluster:
    """The cluster with other options of its fabric."""
    cluster = cluster_of(topology)
    return replace(cluster, fabric=replace(cluster.fabric, **options))


@st.composite
def topologies(
    draw: st.DrawFn,
    kinds: tuple[str, ...] = ("rail-optimized", "fat-tree", "dragonfly", "torus"),
    ecmp: str = "spread",
) -> RegularTopology:
    """A few hosts; units of 1 to 3 hosts and switches of few ports give every tier."""
    kind = draw(st.sampled_from(kinds))
    gpu = draw(st.sampled_from(("H100-SXM5-80GB", "A100-PCIe-80GB", "MI300X", "GB200-NVL72")))
    per_node = draw(st.integers(1, 4 if gpu == "GB200-NVL72" else 8))
    nodes = draw(st.integers(2, 12))
    network = draw(st.sampled_from(("ib-ndr400-x8", "ib-ndr400-x4", "efa-3200", "roce-400-x8")))
    options: dict[str, Any] = {"ecmp": ecmp, "seed": draw(st.integers(0, 3)) if ecmp == "hashed" else 0}
    if gpu == "GB200-NVL72":
        options["nodes_per_rack"] = draw(st.integers(1, 2))
    if kind in ("rail-optimized", "fat-tree"):
        options |= {
            "nodes_per_leaf": draw(st.integers(1, 3)),
            "oversubscription": draw(st.sampled_from((0.5, 1.0, 7.0))),
        }
        options["spine_oversubscription"] = draw(st.sampled_from((1.0, 3.0)))
        options["pxn"] = kind == "rail-optimized" and draw(st.booleans())
    elif kind == "dragonfly":
        options["nodes_per_leaf"] = 1
        options |= draw(
            st.sampled_from(
                ({}, {"routers_per_group": 3, "global_links": 2}, {"routers_per_group": 2, "global_links": 8})
            )
        )
    else:
        options["oversubscription"] = draw(st.sampled_from((1.0, 4.0)))
    return regular(
        kind, gpus=nodes * per_node, gpus_per_node=per_node, gpu=gpu, interconnect=network, **options
    )
