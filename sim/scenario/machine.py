"""The fabric and the placement that a scenario's block ``cluster`` means, in hardware's terms.

Knows both vocabularies. A field that the block leaves out keeps hardware's default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...hardware.cluster import Cluster
from ...hardware.fabric import Fabric, default_fabric
from ...hardware.gpus import get_gpu
from ...hardware.interconnect import get_interconnect
from ...hardware.node import node_for
from ...hardware.own_gpu import gpu_from
from ...hardware.own_interconnect import interconnect_from
from ...hardware.own_node import gpu_in, node_from
from ...hardware.placement import Placement

if TYPE_CHECKING:
    from ...hardware.gpu import Gpu
    from ...hardware.interconnect import Interconnect
    from ...hardware.node import Node
    from .blocks import ClusterSpec


def gpu_of(spec: ClusterSpec) -> Gpu:
    """The GPU of the catalogue or of the block's own description, joined as its host joins it."""
    gpu = get_gpu(spec.gpu) if isinstance(spec.gpu, str) else gpu_from(spec.gpu)
    return gpu_in(spec.node, gpu) if spec.node else gpu


def interconnect_of(spec: ClusterSpec) -> Interconnect:
    """The network between hosts, of the catalogue or of the block's own description."""
    if isinstance(spec.interconnect, str):
        return get_interconnect(spec.interconnect)
    return interconnect_from(spec.interconnect)


def node_of(spec: ClusterSpec) -> Node:
    """The host of the block's own description, else the one that the GPU is sold in."""
    gpu = gpu_of(spec)
    return node_from(spec.node, gpu) if spec.node else node_for(gpu)


def cluster_of(spec: ClusterSpec) -> Cluster:
    """The cluster, in closed form.

    Raises:
        ValueError: what hardware refuses, such as a published cluster with other GPUs.
    """
    interconnect = interconnect_of(spec)
    return Cluster(
        gpu=gpu_of(spec),
        gpus=spec.gpus,
        gpus_per_node=spec.gpus_per_node,
        interconnect=interconnect,
        fabric=fabric_of(spec, interconnect),
        host=node_of(spec) if spec.node else None,
    )


def fabric_of(spec: ClusterSpec, interconnect: Interconnect) -> Fabric:
    """The fabric of the block; the interconnect's usual one where it says nothing."""
    used = spec.gpus_per_domain
    per_rack = used // spec.gpus_per_node if used else None
    if not (spec.fabric.model_fields_set and interconnect.connects_hosts):
        return replace(default_fabric(interconnect), nodes_per_rack=per_rack)
    ratio = spec.fabric.oversubscription
    leaf, spine = ratio if isinstance(ratio, tuple) else (ratio, 1.0)
    options: dict[str, Any] = spec.fabric.model_dump(
        exclude_none=True, exclude={"oversubscription", "dimensions"}
    )
    return Fabric(
        oversubscription=leaf,
        spine_oversubscription=spine,
        dimensions=spec.fabric.dimensions,
        nodes_per_rack=per_rack,
        **options,
    )


def placement_of(spec: ClusterSpec) -> Placement:
    """The placement of the block; contiguous where it says nothing."""
    if spec.placement is None:
        return Placement()
    return Placement(**spec.placement.model_dump(exclude_none=True))
