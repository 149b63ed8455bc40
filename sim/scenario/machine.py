"""The fabric and the placement that a scenario's block ``cluster`` means, in hardware's terms.

Knows both vocabularies. A field that the block leaves out keeps hardware's default.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...hardware.cluster import Cluster
from ...hardware.fabric import Fabric, default_fabric
from ...hardware.gpus import get_gpu, gpu_names
from ...hardware.interconnect import get_interconnect
from ...hardware.node import node_for
from ...hardware.own_gpu import gpu_from
from ...hardware.own_interconnect import interconnect_from
from ...hardware.own_node import gpu_in, node_from
from ...hardware.placement import Placement, gpus_of_ranks
from .neighbours import hosts_of_fabric

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...hardware.gpu import Gpu
    from ...hardware.interconnect import Interconnect
    from ...hardware.node import Node
    from .blocks import ClusterSpec, PowerSpec


def gpu_as_sold(spec: ClusterSpec) -> Gpu:
    """The GPU of the cluster as its datasheet has it, from the catalogue or the block's own description, with
    the NVLink of its host. ``gpu_of`` has the power limit and ``what_if`` besides."""
    gpu = get_gpu(spec.gpu) if isinstance(spec.gpu, str) else gpu_from(spec.gpu)
    return gpu_in(spec.node, gpu) if spec.node else gpu


def gpu_of(spec: ClusterSpec) -> Gpu:
    """The GPU at the power limit of the block, drawing what its boards draw, and as fast as ``what_if`` would
    have it."""
    gpu, times = gpu_as_sold(spec), spec.what_if
    if spec.power is not None:
        gpu = replace(gpu, tdp_w=spec.power.limit or gpu.tdp_w, draws=_draws(spec.power))
    if times is None:
        return gpu
    return replace(
        gpu,
        peak_flops={dtype: times.peak * rate for dtype, rate in gpu.peak_flops.items()},
        hbm_bytes_per_s=times.hbm * gpu.hbm_bytes_per_s,
        nvlink_bytes_per_s=times.nvlink * gpu.nvlink_bytes_per_s,
        nccl_nvlink_bytes_per_s=times.nvlink * gpu.nccl_nvlink_bytes_per_s,
    )


def _draws(power: PowerSpec) -> float:
    """Energy of a FLOP on the cluster's own boards over that of the type. Under one limit the clock goes as
    the cube root of what a FLOP leaves of it (``kernels/power.py``)."""
    return 1.0 if power.measured_products is None else power.measured_products**-3.0


def interconnect_of(spec: ClusterSpec) -> Interconnect:
    """The network between hosts, of the catalogue or of the block's own description, as fast as ``what_if``
    would have it, with messages cut as the job tells NCCL."""
    named, times = spec.interconnect, spec.what_if
    network = get_interconnect(named) if isinstance(named, str) else interconnect_from(named)
    if spec.message_chunk is not None:
        network = replace(network, message_chunk_bytes=spec.message_chunk)
    return replace(network, link_bytes_per_s=times.nic * network.link_bytes_per_s) if times else network


def node_of(spec: ClusterSpec) -> Node:
    """The host of the block's own description, else the one that the GPU is sold in."""
    gpu = gpu_of(spec)
    return node_from(spec.node, gpu) if spec.node else node_for(gpu)


def gpus_of_kinds(spec: ClusterSpec) -> list[Gpu]:
    """The GPU of the block, and of each of its other kinds in their order."""
    others = (spec.model_copy(update={"gpu": one.gpu}) for one in spec.other_gpus or ())
    return [gpu_of(spec), *map(gpu_of, others)]


def cluster_of(spec: ClusterSpec) -> Cluster:
    """The cluster, in closed form: the hosts of the job, and beside neighbours those of the whole fabric.

    Raises:
        ValueError: what hardware refuses, such as a published cluster with other GPUs.
    """
    interconnect = interconnect_of(spec)
    return Cluster(
        gpu=gpu_of(spec),
        gpus=gpus_of_fabric(spec),
        gpus_per_node=spec.gpus_per_node,
        interconnect=interconnect,
        fabric=fabric_of(spec, interconnect),
        host=node_of(spec) if spec.node else None,
        latency=spec.what_if.latency if spec.what_if else 1.0,
    )


def gpus_of_fabric(spec: ClusterSpec) -> int:
    """GPUs of all hosts that the fabric joins: those of the job, and beside neighbours up to the last
    that any job has.
    """
    if not spec.neighbours:
        return spec.gpus
    own = max(spec.placement.gpus) + 1 if spec.placement and spec.placement.gpus else spec.gpus
    return hosts_of_fabric(-(-own // spec.gpus_per_node), spec.neighbours) * spec.gpus_per_node


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


REGULAR_FABRICS = frozenset({"rail-optimized", "fat-tree", "nvlink"})
"""Kinds of fabric that join just the GPUs of a cluster; any other may join more than the job has."""


def gpus_of_job(spec: ClusterSpec, cluster: Cluster) -> NDArray[np.int64]:
    """The GPU of every rank of the job, by the placement of the block on the ``cluster`` that it describes.

    Raises:
        ValueError: the placement names GPUs that are not there, or one twice.
    """
    regular = cluster.fabric.kind in REGULAR_FABRICS
    return gpus_of_ranks(
        placement_of(spec),
        ranks=spec.gpus,
        gpus=cluster.gpus if regular else cluster.topology.gpus,
        gpus_per_node=spec.gpus_per_node,
        nodes_per_unit=cluster.switches.nodes_per_unit if cluster.switches else 1,
    )


def placement_of(spec: ClusterSpec) -> Placement:
    """The placement of the block; contiguous where it says nothing."""
    if spec.placement is None:
        return Placement()
    return Placement(**spec.placement.model_dump(exclude_none=True))


def slurm_segment(gpu: str, gpus: int, gpus_per_node: int) -> int | None:
    """GPUs of each NVLink domain that a job of NVIDIA's launchers uses; None where one holds it.

    They ask SLURM for segments of the most hosts of a rack that divide the job's.

    Sources: NVIDIA-NeMo/Megatron-Bridge scripts/performance/utils/executors.py, NVIDIA/NeMo
    scripts/performance/executors.py (``segment``).
    """
    rack = node_for(get_gpu(gpu)).hosts_per_domain if gpu in gpu_names() else 1
    hosts = gpus // gpus_per_node
    if not 1 < rack < hosts:
        return None
    return gpus_per_node * max(size for size in range(1, rack + 1) if hosts % size == 0)
