"""What runs and what joins it: GPUs, hosts, networks, and the cluster that they make.

Knows no language model, no schedule and no time. Figures lie in the YAML files beside the modules,
each with its source.
"""

from __future__ import annotations

from .cluster import Cluster, Route
from .fabric import Fabric, default_fabric
from .gpu import Gpu
from .gpus import get_gpu, gpu_names
from .interconnect import Interconnect, get_interconnect, interconnect_names
from .link import Link
from .node import Node, node_for

__all__ = [
    "Cluster",
    "Fabric",
    "Gpu",
    "Interconnect",
    "Link",
    "Node",
    "Route",
    "default_fabric",
    "get_gpu",
    "get_interconnect",
    "gpu_names",
    "interconnect_names",
    "node_for",
]
