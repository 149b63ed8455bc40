"""Small clusters for tests: one by its fields, and drawn ones of every GPU, network and shape."""

from __future__ import annotations

from hypothesis import strategies as st

from stepsim.hardware.cluster import Cluster
from stepsim.hardware.fabric import Fabric
from stepsim.hardware.gpus import get_gpu, gpu_names
from stepsim.hardware.interconnect import get_interconnect, interconnect_names
from stepsim.hardware.node import node_for

NETWORKS = tuple(name for name in interconnect_names() if get_interconnect(name).connects_hosts)


def cluster(
    gpu: str = "H100-SXM5-80GB",
    gpus: int = 16,
    gpus_per_node: int = 8,
    interconnect: str = "ib-ndr400-x8",
    **fabric: object,
) -> Cluster:
    return Cluster(
        gpu=get_gpu(gpu),
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        interconnect=get_interconnect(interconnect),
        fabric=Fabric(**fabric),  # type: ignore[arg-type]
    )


@st.composite
def clusters(draw: st.DrawFn, most_nodes: int = 12) -> Cluster:
    """Small clusters of every GPU, network and shape; units of 1 to 3 hosts give every tier of switches."""
    gpu = get_gpu(draw(st.sampled_from(gpu_names())))
    gpus_per_node = draw(st.integers(1, node_for(gpu).max_gpus))
    nodes = draw(st.integers(1, most_nodes))
    rack = draw(st.none() | st.integers(1, node_for(gpu).hosts_per_domain))
    return Cluster(
        gpu=gpu,
        gpus=draw(st.integers(1, gpus_per_node)) if nodes == 1 else nodes * gpus_per_node,
        gpus_per_node=gpus_per_node,
        interconnect=get_interconnect(draw(st.sampled_from(NETWORKS))),
        fabric=Fabric(
            kind=draw(st.sampled_from(("rail-optimized", "fat-tree"))),
            oversubscription=draw(st.sampled_from((0.5, 1.0, 1.7, 7.0))),
            nodes_per_leaf=draw(st.none() | st.integers(1, 3)),
            nodes_per_rack=rack,
        ),
    )
